"""Recordings: one that says too little or is older than its source is refused; the shipped agree with the emulator."""

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lab_engine import data_path, ptx
from lab_engine.errors import NanoqwenError, RecordingError
from lab_engine.recordings import Provenance, Recording, load_recording, parse_recording, source_hash
from lab_engine.unpack import COMPILED, every_half_word, unpack_all
from tools.record_h200 import RECORDERS

CUH = "lab_engine/kernels/unpack.cuh"
PATH = Path("data/h200/example.json")
FILES = sorted(path.stem for path in data_path("h200").glob("*.json"))


def example() -> dict[str, Any]:
    provenance = Provenance(
        device="NVIDIA H200",
        driver="580.1",
        cuda="13.0",
        versions={"cupy-cuda13x": "14.2.0"},
        clocks_mhz={"sm": 1980, "memory": 3201},
        date="2026-12-01",
        command="python3 -m tools.record_h200 example",
        commit="0123456789abcdef",
        sources={CUH: source_hash(CUH)},
    )
    return asdict(Recording("example", provenance, {"value": 1}))


def refused(content: Any, words: str) -> None:
    with pytest.raises(RecordingError, match=words) as caught:
        parse_recording(json.dumps(content), PATH)
    assert str(PATH) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_complete_recording_is_read_and_says_where_it_comes_from():
    recording = parse_recording(json.dumps(example()), PATH)
    assert recording.data == {"value": 1}
    assert recording.badge_source == (
        "NVIDIA H200, driver 580.1, CUDA 13.0, SM 1980 MHz, memory 3201 MHz, "
        "2026-12-01, commit 0123456: python3 -m tools.record_h200 example"
    )


@pytest.mark.parametrize("field", ["name", "provenance", "data"])
def test_a_recording_without_a_part_is_refused(field):
    content = example()
    del content[field]
    refused(content, f"{field} is missing")


@pytest.mark.parametrize("field", Provenance.__annotations__)
@pytest.mark.parametrize("empty", [True, False])
def test_a_recording_without_a_field_of_its_provenance_is_refused(field, empty):
    content = example()
    if empty:
        content["provenance"][field] = type(content["provenance"][field])()
    else:
        del content["provenance"][field]
    refused(content, f"provenance: {field} is missing or empty")


@pytest.mark.parametrize("clock", ["sm", "memory"])
def test_a_recording_without_a_clock_is_refused(clock):
    content = example()
    del content["provenance"]["clocks_mhz"][clock]
    refused(content, f"clocks_mhz: {clock} is missing")


def test_an_unknown_field_is_refused():
    refused(example() | {"note": "x"}, "unknown field note")
    content = example()
    content["provenance"]["host"] = "x"
    refused(content, "provenance: unknown field host")


def test_a_field_of_another_type_is_refused():
    content = example()
    content["provenance"]["sources"] = [CUH]
    refused(content, "sources is .* expected an object")
    refused([1], "expected an object, found list")


@pytest.mark.parametrize("source", [CUH, "lab_engine/device_copy.py"])
def test_a_recording_that_is_older_than_its_source_is_refused_with_the_command_that_renews_it(source):
    content = example()
    content["provenance"]["sources"][source] = "0" * 64
    refused(content, f"older than {source} .*run python3 -m tools.record_h200 example")


@pytest.mark.parametrize("source", ["lab_engine/kernels/gone.cu", "lab_engine", "../secrets", "/etc/passwd"])
def test_a_source_that_is_no_file_of_the_project_is_refused(source):
    content = example()
    content["provenance"]["sources"] = {source: "0" * 64}
    refused(content, f"source '{source}': expected a file of the project")


def test_a_source_is_hashed_as_sha256sum_does():
    """Its bytes in a checkout with Unix line ends; others give the same."""
    path = data_path("h200").parent.parent / CUH
    assert source_hash(CUH) == hashlib.sha256(path.read_bytes().replace(b"\r\n", b"\n")).hexdigest()


def test_a_recording_under_another_name_and_broken_json_are_refused():
    refused(example() | {"name": "other"}, "name is 'other', expected 'example'")
    with pytest.raises(RecordingError, match="not JSON"):
        parse_recording("{", PATH)


def test_a_recording_that_is_not_there_is_named():
    with pytest.raises(NanoqwenError, match=r"absent\.json"):
        load_recording("absent")


# The shipped files


@pytest.mark.parametrize("name", FILES)
def test_every_shipped_recording_is_complete_and_as_new_as_its_sources(name):
    assert "H200" in load_recording(name).provenance.device


def test_the_gpu_gave_what_the_emulator_gives():
    data = load_recording("unpack").data
    assert set(data["methods"]) == set(COMPILED)
    for method, recorded in data["methods"].items():
        for half, words in zip(("low", "high"), np.split(every_half_word(), 2), strict=True):
            digest = hashlib.sha256(unpack_all(words, method).tobytes()).hexdigest()
            assert recorded["outputs"][half] == {"sha256": digest, "differences": 0}
    for recorded in data["prmt"].values():
        selectors = np.arange(1 << 16, dtype=np.uint32)
        line = f"prmt.b32 d, {recorded['a']}, {recorded['b']}, s;"
        bits = ptx.run(ptx.parse(line), {"s": selectors})["d"]
        assert hashlib.sha256(bits.tobytes()).hexdigest() == recorded["sha256"]


@pytest.mark.parametrize("name", FILES)
def test_a_recording_names_all_that_its_recorder_measures(name):
    """Else one of them could change unnoticed."""
    assert set(load_recording(name).provenance.sources) == set(RECORDERS[name].sources)


@pytest.mark.parametrize("name", ["../h200/unpack", "", "/etc/passwd", "a" * 9 + "."])
def test_a_name_that_leads_elsewhere_is_refused(name):
    with pytest.raises(RecordingError, match="expected a name of small letters"):
        load_recording(name)


def test_json_that_is_nested_without_end_is_refused():
    with pytest.raises(RecordingError, match="not JSON"):
        parse_recording("[" * 100_000, PATH)
