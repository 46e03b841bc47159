"""The tables of what an unpacking costs: recorded numbers, code compiled here, a machine with or without a GPU."""

import json
import sys

import pytest

from lab_engine.recordings import load_recording
from lab_engine.unpack import unpack_all
from tools.bootstrap import ROOT
from widgets import unpack_tables
from widgets.source import Source
from widgets.unpack_tables import code_here, gpu_here, instructions_table, integer_room, kernel_source, machine_code

BANDWIDTH = 4.68e12


@pytest.mark.parametrize("method", ["shift_mask", "lop3", "prmt", "prmt_bit3"])
def test_the_source_is_one_function_with_its_comment(method):
    text = kernel_source(method).text
    assert text.startswith("// ")
    assert text.endswith("\n}")
    assert text.count("__device__") == 1
    assert f"void unpack_{method}(" in text


def test_the_machine_code_holds_the_instructions_that_the_lab_names():
    code = machine_code(load_recording("unpack"), "lop3")
    found = [line.split()[1] for line in repr(code).splitlines()]
    assert [found.count(op) for op in ("LOP3.LUT", "SHF.R.U32.HI", "HADD2", "HFMA2")] == [4, 1, 2, 2]
    assert repr(code).startswith("0000  ")
    assert "&lt;" in Source("a < b")._repr_html_()


def test_the_share_of_the_bandwidth_is_words_times_eight_over_what_memory_brings():
    recording = load_recording("unpack")
    row = {cells[0]: cells for cells in instructions_table(recording, BANDWIDTH).rows}["lop3"]
    words = recording.data["timing"]["methods"]["lop3"]["words_per_second"]
    assert row[1] == row[2] == f"{9 / 8:.3f}"
    assert row[3] == f"{5 / 8:.3f}"  # HADD2 and HFMA2 are no integer instructions
    assert row[5] == f"{100 * 8 * words * 66 / 128 / BANDWIDTH:.0f} %"


def test_only_lop3_keeps_up_with_the_memory_of_the_h200():
    """The lab's text says so."""
    shares = {
        row[0]: int(str(row[5]).split()[0]) for row in instructions_table(load_recording("unpack"), BANDWIDTH).rows
    }
    assert [name for name, share in shares.items() if share >= 100] == ["lop3"]


def test_the_room_for_integer_instructions_lies_between_lop3_and_prmt():
    """132 SMs × 64 a clock × 1.98 GHz ÷ 9.08 × 10¹² weights a second."""
    room = integer_room(load_recording("unpack"), BANDWIDTH)
    assert room == pytest.approx(132 * 64 * 1.98e9 / (4.68e12 / (66 / 128)))
    assert 5 / 8 < room < 15 / 8


def test_without_cupy_the_gpu_table_says_why(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    table = gpu_here()
    assert table.table.rows == ()
    assert table.table.note.startswith("Not run here: ")
    assert "cupy" in table.table.note


def test_without_a_compiler_the_code_table_says_why(monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda.core", None)
    table = code_here(load_recording("unpack"))
    assert table.table.rows == ()
    assert "compiling unpack.cu" in table.table.note


@pytest.mark.parametrize(("spoilt", "answers"), [(None, {"yes"}), ("prmt", {"yes", "NO"})])
def test_a_gpu_is_compared_with_the_emulator(monkeypatch, spoilt, answers):
    class StandIn:
        def __init__(self, cubin):
            assert cubin == b"code for sm_75"

        def unpack(self, words, method):
            halves = unpack_all(words, method)
            return -halves if method == spoilt else halves

        def loop(self, _method):
            return type("Loop", (), {"words_per_second": 1e12})

    monkeypatch.setattr(unpack_tables, "gpu_arch", lambda: "sm_75")
    monkeypatch.setattr(unpack_tables, "compile_cubin", lambda _, arch: f"code for {arch}".encode())
    monkeypatch.setattr(unpack_tables, "UnpackGpu", StandIn)
    table = gpu_here().table
    assert {row[1] for row in table.rows} == answers
    assert all(row[2] == "8.00" for row in table.rows)


def test_the_texts_are_the_same_on_every_machine(monkeypatch):
    here = repr(gpu_here()), repr(code_here(load_recording("unpack")))
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setitem(sys.modules, "cuda.core", None)
    assert here == (repr(gpu_here()), repr(code_here(load_recording("unpack"))))


def test_lab_01_names_the_recorded_numbers():
    notebook = json.loads((ROOT / "labs" / "01_int4.ipynb").read_text(encoding="utf-8"))
    text = "\n".join("".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "markdown")
    recording = load_recording("unpack")
    needs = {row[0]: row[3] for row in instructions_table(recording, BANDWIDTH).rows}
    assert f"**{integer_room(recording, BANDWIDTH):.2f} integer instructions**" in text
    assert "lop3 needs {lop3}, the look-up {prmt}, the plain way {shift_mask}".format(**needs) in text
    words = recording.data["timing"]["methods"]["lop3"]["words_per_second"]
    assert f"Measured: {8 * words / 1e12:.1f}." in text
