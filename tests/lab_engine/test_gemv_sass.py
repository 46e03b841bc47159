"""The inner loops of the GEMV rungs: found in made-up listings and in code compiled here, and counted."""

import os
import platform
import sys
from collections import Counter
from fractions import Fraction

import pytest

from lab_engine import gemv_sass
from lab_engine.errors import NanoqwenError, ToolchainError
from lab_engine.gemv_ladder import RUNGS
from lab_engine.gemv_sass import count_classes, inner_loop, rung_loop
from lab_engine.index_text import functions
from lab_engine.sass import SassLine


def listing(text):
    """One instruction a line; its address is 16 times the number of the line."""
    lines = [line.strip() for line in text.strip().splitlines()]
    opcodes = [line.split()[1] if line.startswith("@") else line.split()[0] for line in lines]
    return tuple(SassLine(16 * i, opcode, line) for i, (opcode, line) in enumerate(zip(opcodes, lines, strict=True)))


NESTED = listing("""
    S2R R0, SR_TID.X
    LDG.E.128 R4, [R2]
    @P0 BRA 0x10
    MOV R9, RZ
    LDG.E.128 R4, [R2]
    LDG.E.128 R8, [R2]
    IMAD R3, R4, R5, R6
    FFMA R3, R4, R5, R6
    @!P1 BRA 0x40
    FADD R3, R3, R4
    @P2 BRA 0x30
    BRA 0xb0
""")


def test_the_loop_with_the_most_loads_is_found_and_of_two_with_as_many_the_inner_one():
    loop = inner_loop(NESTED, "LDG.E.128", Fraction(32))
    assert [line.address for line in loop.lines] == [0x40, 0x50, 0x60, 0x70, 0x80]
    assert loop.weights == 64
    assert loop.counts == {"integer": 1, "float": 1, "loads": 2, "tensor": 0, "other": 1}
    assert loop.per_weight == {
        "total": 5 / 64, "integer": 1 / 64, "float": 1 / 64, "loads": 2 / 64, "tensor": 0, "other": 1 / 64,
    }  # fmt: skip


def test_a_branch_forward_and_the_endless_loop_behind_the_end_are_no_loops():
    with pytest.raises(NanoqwenError, match=r"no loop with LDS\.128 among 12 instructions"):
        inner_loop(NESTED, "LDS.128", Fraction(32))
    with pytest.raises(NanoqwenError, match=r"no loop with LDG\.E"):
        inner_loop(listing("LDG.E R1, [R2]\nBRA 0x20\nEXIT\nBRA 0x30"), "LDG.E", Fraction(8))


def test_loads_that_share_no_whole_number_of_weights_are_refused():
    """Two loads, of which three would be 64 weights: the compiler found another way to load x."""
    with pytest.raises(NanoqwenError, match=r"2 LDG\.E\.128 of 64/3 weights each, expected a whole number together"):
        inner_loop(NESTED, "LDG.E.128", Fraction(64, 3))


WAITING = listing("""
    @P0 BRA 0x50
    MUFU R1, R1
    @P1 BRA 0x10
    SHFL R1, R1
    LDG.E R9, [R8]
    LDG.E.128 R4, [R2]
    @P2 BRA 0x80
    @P3 BRA 0x70
    @P4 BRA 0xa0
    @P5 BRA 0x90
    FFMA R3, R4, R5, R6
    BRA 0x0
""")


def test_a_part_that_a_turn_jumps_over_counts_only_if_it_holds_no_loop():
    """0x10 to 0x40 and 0x70 hold loops of their own; 0x90, a branch to itself, too."""
    loop = inner_loop(WAITING, "LDG.E.128", Fraction(32))
    assert [line.address for line in loop.lines] == [0x00, 0x50, 0x60, 0x70, 0x80, 0x90, 0xA0, 0xB0]


def test_an_opcode_belongs_to_the_class_of_its_first_word():
    code = listing("LOP3.LUT a\nIMAD.WIDE.U32 a\nIDP.4A.S8.S8 a\nHFMA2.MMA a\nHADD2.F32 a\nI2FP.F32.S32 a\n"
                   "LDG.E.U16 a\nUBLKCP.S.G a\nIMMA.16832.S8.S8 a\nULEA a\nBAR.SYNC a\nSHFL.BFLY a")  # fmt: skip
    assert count_classes(code) == {"integer": 3, "float": 3, "loads": 2, "tensor": 1, "other": 3}


def test_no_opcode_is_in_two_classes():
    opcodes = Counter(" ".join(gemv_sass.CLASSES.values()).split())
    assert set(opcodes.values()) == {1}


def test_every_rung_has_its_entry():
    assert set(gemv_sass.WEIGHTS) == set(RUNGS)


def test_an_unknown_rung_is_told_the_known_ones():
    with pytest.raises(NanoqwenError, match="rung 'fastest': expected one of naive, coalesced"):
        rung_loop("fastest")


# In code that is compiled here


@pytest.fixture(scope="module", params=list(RUNGS))
def compiled(request):
    """A rung's name and its loop; CI has the tools, elsewhere they may be missing."""
    try:
        return request.param, rung_loop(request.param)
    except ToolchainError as error:
        if os.environ.get("CI") and (sys.platform, platform.machine()) == ("linux", "x86_64"):
            raise
        pytest.skip(str(error))


INDEX = functions()
RING = (INDEX["ring_rows"](), 16, INDEX["ring_chunk"]() // 512)
ROWS = (INDEX["rows_rows"](), 16, 4)
BY_HAND = {
    "naive": (1, 4, 1),
    "coalesced": (1, 16, 1),
    "lop3": (1, 16, 1),
    "prmt": (1, 16, 1),
    "rows": ROWS,
    "ring": RING,
    "mma": (4, 16, 1),
    "dp4a_separate": ROWS,
    "dp4a_fused": ROWS,
    "dp4a_limbs": ROWS,
    "triton_naive": (1, 4, 1),
    "triton_coalesced": (1, 16, 1),
    "triton_best": (8, 16, 1),
}
"""Rows of a lane, bytes of a row that it takes at once, and how often before it goes on: from the kernels' sources."""

OTHER_LOADS = {"mma": 2, "triton_coalesced": 4, "triton_best": 4}
"""Loads of the same width in the same loop that bring x, by hand; in `ring` and `rows` x has loads of its own kind."""


def test_the_weights_of_a_turn_are_those_that_the_source_takes(compiled):
    name, loop = compiled
    rows, width, times = BY_HAND[name]
    assert loop.weights == rows * width * times * 2


def test_the_loop_loads_the_words_that_it_takes(compiled):
    """From global memory, or from the ring in shared memory; there x comes as wide, once for all rows."""
    name, loop = compiled
    rows, width, times = BY_HAND[name]
    kind = {"ring": "LDS", "mma": "LDS"}.get(name, "LDG.E")
    opcode = f"{kind}{'.128' * (width == 16)}"
    found = sum(line.opcode in {opcode, f"{opcode}.CONSTANT"} for line in loop.lines)
    x = {"ring": 4 * times, "coalesced": 4, "lop3": 4, "prmt": 4}.get(name, OTHER_LOADS.get(name, 0))
    assert found == rows * times + x


def test_what_a_block_does_once_is_no_part_of_a_turn(compiled):
    """The prologue of dp4a, which quantizes x, stands in the middle of the loop: only it rounds and divides."""
    _, loop = compiled
    assert not any(line.opcode.startswith(("F2I", "MUFU")) for line in loop.lines)


def test_all_instructions_are_in_one_class(compiled):
    _, loop = compiled
    assert sum(loop.counts.values()) == len(loop.lines)
    assert loop.per_weight["total"] == len(loop.lines) / loop.weights


@pytest.fixture(scope="module")
def totals():
    try:
        return {name: rung_loop(name).per_weight for name in ("naive", "coalesced", "lop3", "prmt", "rows")}
    except ToolchainError as error:
        pytest.skip(str(error))


def test_each_idea_saves_the_instructions_that_it_should(totals):
    """Logic is less than conversions, look-up less than conversions and more than logic, shared x less than its own."""
    assert totals["lop3"]["integer"] < totals["prmt"]["integer"] < totals["coalesced"]["integer"]
    assert totals["lop3"]["total"] < totals["prmt"]["total"] < totals["coalesced"]["total"] < totals["naive"]["total"]
    assert (
        totals["rows"]["loads"] < totals["lop3"]["loads"] <= totals["coalesced"]["loads"] < totals["naive"]["loads"] / 4
    )
