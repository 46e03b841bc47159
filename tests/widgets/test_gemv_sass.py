"""The tables of the ladder's inner loops, from a recording made of code that is compiled here."""

import sys
from dataclasses import asdict

import pytest

import lab_engine.gemv_sass
from lab_engine.errors import NanoqwenError, ToolchainError
from lab_engine.gemv_ladder import RUNGS
from lab_engine.gemv_sass import CLASSES, rung_loop
from lab_engine.recordings import Provenance, Recording
from lab_engine.sass import compile_cubin
from widgets import gemv_sass
from widgets.gemv_sass import code_here, instructions_table, issue_room, loop_source

CLOCKS = {"sm": 1800, "memory": 3201}
CUDA = [name for name in RUNGS if not name.startswith("triton")]


@pytest.fixture(scope="module")
def recording():
    """Of two rungs; the others have the loop of `lop3`."""
    try:
        loops = {name: rung_loop(name) for name in ("lop3", "naive")}
    except ToolchainError as error:
        pytest.skip(str(error))
    rungs = {name: {"sass": sass(loops.get(name, loops["lop3"]))} for name in RUNGS}
    origin = Provenance("NVIDIA H200", "580", "13.0", {}, CLOCKS, "2026-12-01", "record", "0123456789", {})
    return Recording("gemv", origin, {"rungs": rungs, "read_bytes_per_second": 4.65e12})


def sass(loop):
    lines = [asdict(line) for line in loop.lines]
    return {"loop": lines, "weights_per_loop": loop.weights, "per_weight": loop.per_weight}


def test_a_row_counts_what_the_listing_shows(recording):
    rows = {row[0]: row[1:] for row in instructions_table(recording).rows}
    assert list(rows) == list(RUNGS)
    listing = loop_source(recording, "lop3").text.splitlines()
    assert rows["lop3"][0] == f"{len(listing) / 32:.2f}"
    loads = sum(line.split()[1].startswith(("LDG", "LDS")) for line in listing if "@" not in line)
    assert rows["lop3"][1 + list(CLASSES).index("loads")] == f"{loads / 32:.2f}"


def test_the_classes_of_a_row_add_up(recording):
    for _, total, *classes in instructions_table(recording).rows:
        assert float(total) == pytest.approx(sum(map(float, classes)), abs=0.03)


def test_the_room_is_what_132_sms_issue_while_memory_brings_a_weight(recording):
    room = issue_room(recording)
    assert room == pytest.approx(132 * 128 * 1.8e9 / (4.65e12 / 0.515625))
    assert f"issue {room:.2f} instructions" in instructions_table(recording).note


def test_an_unknown_rung_is_told_the_known_ones(recording):
    with pytest.raises(NanoqwenError, match="rung 'fastest': expected one of naive, coalesced"):
        loop_source(recording, "fastest")


def test_code_here_stands_beside_the_recorded_count(recording):
    table = code_here(recording).table
    rows = {row[0]: row[1:] for row in table.rows}
    assert list(rows) == CUDA
    here, recorded = rows["naive"][2:]
    assert here == recorded == f"{rung_loop('naive').per_weight['total']:.2f}"
    assert rows["lop3"][0] == "32"


def test_without_a_compiler_the_table_says_why_and_its_text_is_the_same(recording, monkeypatch):
    text = repr(code_here(recording))
    monkeypatch.setattr(lab_engine.gemv_sass, "_cuda_cubin", compile_cubin)  # nothing from before
    monkeypatch.setitem(sys.modules, "cuda.core", None)
    table = code_here(recording)
    assert table.table.rows == ()
    assert table.table.badge is None
    assert table.table.note.startswith("Not compiled here: naive: compiling gemv_naive.cu")
    assert f"(and {len(CUDA) - 1} more)" in table.table.note
    assert repr(table) == text


def test_one_rung_that_does_not_compile_leaves_the_others(recording, monkeypatch):
    def loop(name):
        if name == "ring":
            raise ToolchainError("compiling ring: no")
        return rung_loop("lop3")

    monkeypatch.setattr(gemv_sass, "rung_loop", loop)
    table = code_here(recording).table
    assert [row[0] for row in table.rows] == [name for name in CUDA if name != "ring"]
    assert table.note == "Not compiled here: ring: compiling ring: no"
