"""The comparison of lab 02: both files hold the same numbers, and what is measured is what was read."""

import json
import struct
import sys

import pytest

from lab_engine import data_path
from lab_engine.errors import NanoqwenError
from lab_engine.file_comparison import READERS, bytes_by_part, measure, write_safetensors
from lab_engine.nanoqwen_file import NanoqwenFile
from lab_engine.processes import output_of

GATE = "model.layers.0.mlp.gate_proj.weight"
ROW = 5


@pytest.fixture(scope="module")
def shipped():
    return NanoqwenFile(data_path("tiny-coder.nanoqwen"))


@pytest.fixture(scope="module")
def costs(shipped, tmp_path_factory):
    """One measurement by each reader of the shipped model."""
    copy = write_safetensors(shipped, tmp_path_factory.mktemp("copy") / "int4.safetensors")
    paths = dict(zip(READERS, (shipped.path, copy, copy), strict=True))
    return paths, {reader: measure(reader, path, GATE, ROW) for reader, path in paths.items()}


def test_the_copy_holds_every_tensor_of_the_file_bit_for_bit(shared_file, tmp_path):
    """Read back by the format's own description: u64 length, JSON, bytes."""
    file = NanoqwenFile(shared_file)
    data = write_safetensors(file, tmp_path / "copy.safetensors").read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    tensors = {name: section for name, section in file.sections.items() if section.dtype != "JSON"}
    assert set(header) == set(tensors)
    for name, section in tensors.items():
        start, stop = (8 + length + at for at in header[name]["data_offsets"])
        assert data[start:stop] == shared_file.read_bytes()[section.offset : section.offset + section.length]
        assert header[name]["dtype"] == {"INT4": "I32", "F16": "F16", "F32": "F32"}[section.dtype]


def test_every_byte_of_both_files_is_counted_once(shared_file, tmp_path):
    file = NanoqwenFile(shared_file)
    copy = write_safetensors(file, tmp_path / "copy.safetensors")
    ours, theirs = bytes_by_part(shared_file), bytes_by_part(copy)
    for parts, path in ((ours, shared_file), (theirs, copy)):
        assert parts["all"] == path.stat().st_size == sum(parts.values()) - parts["all"]
    tensors = sum(section.length for section in file.sections.values() if section.dtype != "JSON")
    assert ours["tensors"] == theirs["tensors"] == tensors
    assert ours["tokenizer"] == file.sections["tokenizer"].length
    assert ours["header"] == 24 + file.header_length
    assert theirs["padding"] == theirs["tokenizer"] == 0


def test_every_way_reads_the_row_that_was_asked_for(shipped, costs):
    rows = [bytes.fromhex(cost.row) for cost in costs[1].values()]
    section = shipped.sections[GATE]
    start = section.offset + ROW * section.shape[1] // 2
    assert rows[0] == rows[1] == rows[2] == shipped.path.read_bytes()[start : start + section.shape[1] // 2]


def test_the_measurements_say_how_much_was_read(costs):
    paths, by_reader = costs
    for reader, cost in by_reader.items():
        assert cost.reader == reader
        assert cost.num_bytes == paths[reader].stat().st_size
        assert 0 < cost.row_seconds < 1
        assert 0 < cost.open_seconds < 1
    mapped, lazy, whole = by_reader.values()
    assert whole.resident_bytes > 0.6 * whole.num_bytes
    assert mapped.resident_bytes < 0.2 * mapped.num_bytes
    assert lazy.resident_bytes < 0.2 * lazy.num_bytes


def test_a_reader_that_there_is_not_is_refused_with_those_that_there_are(shipped):
    with pytest.raises(NanoqwenError) as error:
        measure("gguf", shipped.path, GATE, ROW)
    assert str(error.value) == f"reader 'gguf': expected one of {'; '.join(READERS)}"


@pytest.mark.parametrize(
    ("reader", "tensor", "row", "reason"),
    [(0, "x", 0, "section 'x'"), (0, GATE, 896, "896"), (1, "x", 0, "tensor x"), (2, "x", 0, "'x'")],
)
def test_what_a_reader_does_not_find_is_one_line_with_its_reason(costs, reader, tensor, row, reason):
    name, path = list(costs[0].items())[reader]
    with pytest.raises(NanoqwenError) as error:
        measure(name, path, tensor, row)
    assert str(error.value).startswith(f"-m lab_engine.file_comparison {name}: ended with 1: ")
    assert reason in str(error.value)
    assert "\n" not in str(error.value)


def test_the_processes_that_measure_need_no_torch():
    code = "import sys, lab_engine.file_comparison; print('torch' in sys.modules)"
    assert output_of([sys.executable, "-c", code]) == b"False\n"
