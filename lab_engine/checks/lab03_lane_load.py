"""Lab 03, lane_load: which 16 bytes of a packed row a lane reads, and which scale they belong to."""

from typing import Any

from lab_engine.checks.case import Args, Case, Mismatch
from lab_engine.checks.exercise import Exercise
from lab_engine.checks.values import describe, first_true, judge_ints, number, wrong_ints
from lab_engine.checks.verdict import Row


def lane_load(row: int, k: int, lane: int, iteration: int) -> tuple[int, int] | None:
    """What a lane of the warp of `row` reads: (byte offset in the matrix, group in the row).

    The matrix has rows of k weights, two a byte, one row after the other. The 32 lanes of a
    warp read neighbouring 16-byte pieces of its row, again and again until the row ends: in
    iteration 0 its first 512 bytes, in iteration 1 the next ones. The group is the run of 128
    weights, counted from the beginning of the row, that the piece lies in.
    None for a lane that has nothing left to read in this iteration.

    >>> lane_load(5, 3584, 9, 2)
    (10128, 18)
    >>> lane_load(5, 3584, 16, 3) is None
    True
    """
    in_row = 512 * iteration + 16 * lane
    if in_row >= k // 2:
        return None
    return row * k // 2 + in_row, 2 * in_row // 128


def _judge(args: Args, expected: tuple[int, int] | None, yours: Any) -> Mismatch | None:
    if expected is not None:
        return judge_ints(yours, expected, _PARTS, _show(args), lambda found: _hint(args, expected, found))
    if yours is None:
        return None
    return Mismatch(f"returned {describe(yours)}; expected None", hint=_hint_for_idle(args, yours))


def _hint(args: Args, expected: tuple[int, int], yours: tuple[int, int]) -> str:
    """The wrong answers that people give, computed: first the offset, then the group."""
    row, k, lane, iteration = args
    (byte, group), piece = expected, 32 * iteration + lane
    start = byte - 16 * piece
    return first_true(
        (yours == (group, byte), "In this order: byte offset, group."),
        (yours[0] == start + lane * (k // 64) + 16 * iteration, _NEIGHBOURS),
        (yours[0] in (row * k + 16 * piece, row * k + 32 * piece, start + 32 * piece), _HALF_A_BYTE),
        (yours[0] == 16 * piece, "Start of the row: row × k // 2 bytes come before it."),
        (yours[0] in (start + 128 * iteration + 4 * lane, start + 4 * piece), _WIDTH),
        (yours[0] == start + 4 * iteration * 32 + 16 * lane, "32 lanes × 16 bytes: an iteration is 512 bytes."),
        (yours[0] in (start + 16 * lane, start + 16 * iteration, start + 16 * (lane + iteration)), _ITERATION),
        (yours[0] != byte, ""),
        (yours[1] == 16 * piece // 128, "Two weights a byte: 128 weights are 64 bytes."),
        (yours[1] == row * (k // 128) + group, "The group counts from the beginning of the row, not of the matrix."),
        (yours[1] in (piece, 32 * piece, piece // 8), "16 bytes are 32 weights: four lanes share a group."),
    )


def _hint_for_idle(args: Args, yours: Any) -> str:
    """Did the lane go on into the next row, or was idleness said in another way?"""
    _, k, lane, iteration = args
    goes_on = wrong_ints(yours, _PARTS) is None and yours[0] > 0
    if not goes_on:
        return "A lane that has nothing left to read is None."
    return f"{_NEXT_ROW} This one has {k // 2} bytes, and the piece begins at byte {512 * iteration + 16 * lane} of it."


def _hint_without_value(case: Case, error: BaseException | None) -> str:
    """A lane that has work left was called idle: which limit does that?"""
    _, k, _, iteration = case.args
    if error is not None:
        return ""
    if iteration < k // 1024:
        return f"{k} weights are whole iterations: all lanes have work in each." if k % 1024 == 0 else ""
    return f"Half a warp has work left: the row ends after {k // 2} bytes, not after whole iterations of 512."


def _show(args: Args) -> tuple[Row, ...]:
    return (Row("argument", ("row", "k", "lane", "iteration")), Row("value", tuple(map(number, args))))


_PARTS = ("byte offset", "group")
_NEIGHBOURS = "Neighbouring lanes must read neighbouring bytes: lane 1 begins where the 16 bytes of lane 0 end."
_HALF_A_BYTE = "Half a byte a weight: a row of k weights has k // 2 bytes."
_WIDTH = "16 bytes a lane, not 4: lane 1 begins at byte 16."
_ITERATION = "An iteration is 512 bytes, all 32 lanes: 512 × iteration + 16 × lane."
_NEXT_ROW = "This lane reads the next row: it has to be idle."
_BY_HAND = "512 × iteration + 16 × lane bytes of the row come before the piece; 128 weights are 64 bytes."


def _case(name: str, row: int, k: int, lane: int, iteration: int) -> Case:
    return Case(name, (row, k, lane, iteration), _BY_HAND)


CASES = (
    _case("lane 9 in iteration 2", 5, 3584, 9, 2),
    _case("lane 0 of row 0", 0, 3584, 0, 0),
    _case("lane 31 of row 1", 1, 3584, 31, 1),
    _case("the last lane of a row of 3584", 7, 3584, 15, 3),
    _case("the first idle lane of a row of 3584", 7, 3584, 16, 3),
    _case("an iteration too many", 7, 3584, 0, 4),
    _case("the last lane of a row of 384", 3, 384, 11, 0),
    _case("the first idle lane of a row of 384", 3, 384, 12, 0),
    _case("the last lane of a row of 128", 2, 128, 3, 0),
    _case("the first idle lane of a row of 128", 2, 128, 4, 0),
    _case("the last lane of a row of 18944", 3583, 18944, 15, 18),
    _case("lane 31 of a row of 18944", 3583, 18944, 31, 17),
    _case("the first idle lane of a row of 18944", 3583, 18944, 16, 18),
    _case("the last lane of a row of 2048", 4, 2048, 31, 1),
    _case("an iteration too many for a row of 2048", 4, 2048, 0, 2),
    _case("row 152063 of lm_head", 152_063, 3584, 31, 2),
)


EXERCISE = Exercise(
    lab="03_gemv",
    solution=lane_load,
    cases=CASES,
    judge=_judge,
    show=_show,
    first_hints=(
        "32 lanes × 16 bytes: an iteration is 512 bytes of the row. Where in its row does this lane's piece begin?",
        "A row has k // 2 bytes: compare with that for the end of the row, and add row × k // 2 for its beginning.",
    ),
    hint_without_value=_hint_without_value,
)
