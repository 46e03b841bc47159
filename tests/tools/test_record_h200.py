"""The recorder, with a stand-in for the GPU: what it compares, what it computes from clocks, what it refuses."""

import json
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lab_engine import ptx
from lab_engine.errors import RecordingError, ToolchainError
from lab_engine.recordings import parse_recording
from lab_engine.sass import SassLine
from lab_engine.unpack import COMPILED, unpack_all
from lab_engine.unpack_gpu import THREADS, UnpackGpu, clocks_per_word
from tools import h200_machine, h200_unpack, record_h200
from tools.bootstrap import ROOT
from tools.h200_unpack import measure

SMS = 3
CLOCKS = {"shift_mask": 40, "lop3": 10, "prmt": 20, "prmt_bit3": 19}
"""Clocks a turn of the stand-in's loop; one SM runs two blocks of THREADS · 16 words a turn."""


class Kernel:
    """A kernel of the stand-in: checks what it is launched with, then emulates it. The clock runs at 1,000 MHz."""

    def __init__(self, cupy: SimpleNamespace, name: str) -> None:
        self.cupy = cupy
        self.kind, _, self.method = name.partition("_")

    def __call__(self, grid: tuple[int], block: tuple[int], arguments: tuple[Any, ...]) -> None:
        types = [(getattr(a, "dtype", type(a)), np.ndim(a)) for a in arguments]
        assert types == [(np.dtype(dtype), dimensions) for dtype, dimensions in SIGNATURES[self.kind]]
        getattr(self, self.kind)(grid[0] * block[0], *arguments)

    def words(self, threads, words, halves, n):
        assert threads >= n == len(words)
        halves[:] = unpack_all(words, self.method)
        self.cupy.wrong(halves)

    def raw(self, threads, a, b, out, n):
        assert threads >= n == len(out)
        out[:] = ptx.run(ptx.parse(f"prmt.b32 d, {a}, {b}, s;"), {"s": np.arange(n, dtype=np.uint32)})["d"]

    def loop16(self, threads, rounds, words, spans):
        assert threads == len(words) == len(spans) * THREADS
        clocks = CLOCKS[self.method] * int(rounds)
        spans[:] = [(sm, 1000 * sm, 1000 * sm + clocks) for sm in range(SMS) for _ in range(2)]
        self.cupy.elapsed = clocks / 1e6


SIGNATURES = {
    "words": [("uint32", 1), ("float16", 2), ("int32", 0)],
    "raw": [("uint32", 0), ("uint32", 0), ("uint32", 1), ("int32", 0)],
    "loop16": [("int32", 0), ("uint32", 1), ("int64", 2)],
}
"""As in unpack.cu: what each kernel takes."""


def gpu(wrong: Callable[[np.ndarray], None] = lambda _: None) -> UnpackGpu:
    """The recorder's GPU over a stand-in for CuPy; `wrong` may change an output."""
    cupy = SimpleNamespace(asarray=np.asarray, zeros=np.zeros, asnumpy=np.array, wrong=wrong, elapsed=0.0)
    cupy.cuda = SimpleNamespace(
        is_available=lambda: True,
        Device=lambda: SimpleNamespace(attributes={"MultiProcessorCount": SMS}),
        Event=lambda: SimpleNamespace(record=lambda: None, synchronize=lambda: None),
        get_elapsed_time=lambda _start, _stop: cupy.elapsed,
        driver=SimpleNamespace(CUDADriverError=RuntimeError),
    )
    cupy.RawModule = lambda path: path and SimpleNamespace(get_function=lambda name: Kernel(cupy, name))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "cupy", cupy)
        return UnpackGpu(b"cubin")


def listing() -> dict[str, tuple[SassLine, ...]]:
    """Machine code in which a word takes two look-ups beside the two XORs of the loops."""

    def code(words: int) -> tuple[SassLine, ...]:
        opcodes = ["LDG.E", "STG.E"] + ["PRMT", "PRMT", "LOP3.LUT", "LOP3.LUT"] * words
        return tuple(SassLine(16 * i, opcode, f"{opcode} R0, R0") for i, opcode in enumerate(opcodes))

    kinds = {"words": code(1), "loop16": code(16), "loop32": code(32)}
    return {f"{kind}_{method}": lines for method in COMPILED for kind, lines in kinds.items()}


@pytest.fixture(scope="module")
def data():
    """What the stand-in measures."""
    return measure(gpu(), listing())


@pytest.fixture
def h200(monkeypatch, data):
    """A machine that says it is an H200, in a checkout without git."""
    said = {"name": "NVIDIA H200", "driver_version": "580.1", "clocks.sm": "1980", "clocks.mem": "3201"}
    monkeypatch.setattr(h200_machine, "nvidia_smi", lambda *fields: [said[field] for field in fields])
    recorder = record_h200.Recorder(h200_unpack.SOURCES, lambda: (data, h200_machine.clocks_mhz()), lambda: "13.0")
    monkeypatch.setattr(record_h200, "RECORDERS", {"unpack": recorder})
    monkeypatch.delenv("NANOQWEN_COMMIT", raising=False)
    return said


def run(monkeypatch, *arguments: object) -> int:
    monkeypatch.setattr("sys.argv", ["record_h200", *map(str, arguments)])
    return record_h200.main()


def test_a_recording_is_written_as_a_reader_wants_it(h200, monkeypatch, tmp_path, capsys):
    assert run(monkeypatch, "unpack", "--out", tmp_path, "--commit", "abcdef0123") == 0
    path = tmp_path / "unpack.json"
    assert capsys.readouterr().out.strip() == str(path)
    recording = parse_recording(path.read_text(), path)
    assert recording.provenance.commit == "abcdef0123"
    assert recording.provenance.clocks_mhz == {"sm": 1980, "memory": 3201}
    assert set(recording.provenance.sources) == {f"lab_engine/kernels/unpack.cu{h}" for h in ("", "h")}
    assert "numpy" in recording.provenance.versions
    assert str(tmp_path) not in recording.provenance.command
    assert json.loads(path.read_text())["data"]["methods"]["lop3"]["outputs"]["low"]["differences"] == 0


def test_the_commit_may_come_from_the_environment(h200, monkeypatch, tmp_path):
    monkeypatch.setenv("NANOQWEN_COMMIT", "fedcba")
    assert run(monkeypatch, "unpack", "--out", tmp_path) == 0
    assert json.loads((tmp_path / "unpack.json").read_text())["provenance"]["commit"] == "fedcba"


def test_without_git_and_commit_nothing_is_measured(h200, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("PATH", "")
    assert run(monkeypatch, "unpack", "--out", tmp_path) == 2
    assert "give --commit HASH" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_an_unknown_name_is_one_line_with_the_known_ones(h200, monkeypatch, tmp_path, capsys):
    assert run(monkeypatch, "unpacks", "--out", tmp_path, "--commit", "a") == 2
    assert capsys.readouterr().err == "record_h200: recording 'unpacks': expected one of unpack\n"


def test_another_gpu_is_refused_by_its_name(h200):
    h200["name"] = "NVIDIA H100"
    with pytest.raises(RecordingError, match="device NVIDIA H100: expected an NVIDIA H200"):
        h200_unpack.record()


def test_a_machine_without_cupy_is_told_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(ToolchainError, match=r"cupy.*pip install .* -e \.\[gpu\]"):
        UnpackGpu(b"cubin")


def test_code_for_another_gpu_is_refused_with_the_right_target(monkeypatch):
    def refuse(_: str) -> None:
        raise RuntimeError("no kernel image is available")

    cupy = SimpleNamespace(RawModule=lambda path: path and SimpleNamespace(get_function=refuse))
    device = SimpleNamespace(compute_capability="75")
    cupy.cuda = SimpleNamespace(
        is_available=lambda: True, Device=lambda: device, driver=SimpleNamespace(CUDADriverError=RuntimeError)
    )
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    with pytest.raises(ToolchainError, match=r"no kernel image .*; compile them for this GPU, sm_75"):
        UnpackGpu(b"cubin")


def test_unpack_is_recorded_without_xxhash():
    """Nothing has to be installed there that the GPU does not need."""
    blocked = "import sys; sys.modules['xxhash'] = sys.modules['torch'] = None; import tools.record_h200"
    assert subprocess.run([sys.executable, "-c", blocked], cwd=ROOT, check=False).returncode == 0


def test_a_machine_without_nvidia_smi_is_told_what_is_missing(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(RecordingError, match="nvidia-smi"):
        h200_machine.clocks_mhz()


def test_one_wrong_half_of_one_word_stops_the_recording():
    def wrong(halves: np.ndarray) -> None:
        halves[0x1234, 5] += 1

    with pytest.raises(RecordingError, match=r"shift_mask, half-words in the low half: .* 1 words, first 0x1234"):
        measure(gpu(wrong), listing())


def test_minus_zero_counts_as_a_difference():
    def wrong(halves: np.ndarray) -> None:
        halves[halves == 0] = np.float16(-0.0)

    with pytest.raises(RecordingError, match="differ"):
        measure(gpu(wrong), listing())


def test_times_are_the_clocks_and_the_words_of_the_launch(data):
    timing = data["timing"]
    assert (timing["sms"], timing["threads_per_sm"]) == (SMS, 2 * THREADS)
    words_a_turn = 2 * THREADS * 16
    for method, clocks in CLOCKS.items():
        found = timing["methods"][method]
        assert found["clocks_per_word_per_sm"] == pytest.approx(clocks / words_a_turn, abs=1e-5)
        assert found["words_per_second"] == pytest.approx(SMS * words_a_turn / clocks * 1e9)
        assert found["sm_mhz"] == 1000


def test_clocks_run_from_the_first_start_to_the_last_stop_of_an_sm():
    spans = np.array([(7, 100, 200), (7, 150, 300), (2, 0, 200)])
    # SM 7: 200 clocks for 2 blocks, SM 2: 200 clocks for one.
    assert clocks_per_word(spans, words_per_block=10) == (200 / 20 + 200 / 10) / 2


def test_what_the_code_costs_stands_beside_its_listing(data):
    method = data["methods"]["prmt"]
    assert method["sass_instructions_per_word"] == {"PRMT": 2}
    assert method["sass_instructions_per_weight"] == 2 / 8
    assert method["sass"][0] == {"address": 0, "opcode": "LDG.E", "text": "LDG.E R0, R0"}
