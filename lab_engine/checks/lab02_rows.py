"""Lab 02, row_bytes: where one row of packed nibbles lies in the file."""

from typing import Any

from lab_engine.checks.case import Args, Case, Mismatch
from lab_engine.checks.exercise import Exercise
from lab_engine.checks.values import describe, first_true, number, numbers_row
from lab_engine.checks.verdict import Row


def row_bytes(offset: int, shape: tuple[int, int], row: int) -> tuple[int, int]:
    """Bytes of the file that hold one row of packed nibbles, as [start, stop): without stop.

    offset: where the section of the matrix begins, in bytes from the start of the file.
    shape: (rows, k), in weights of half a byte. Rows lie one after the other; the scales are a
    section of their own. ValueError that names the row if there is none.

    >>> row_bytes(8192, (1024, 384), 5)
    (9152, 9344)
    """
    rows, k = shape
    if not 0 <= row < rows:
        raise ValueError(f"row {row}: expected 0 to {rows - 1}")
    start = offset + row * k // 2
    return start, start + k // 2


def _judge(args: Args, expected: tuple[int, int], yours: Any) -> Mismatch | None:
    if not isinstance(yours, tuple) or len(yours) != 2:
        return Mismatch(f"returned {describe(yours)}; expected (start, stop)", about_form=True)
    for part in yours:
        if type(part) is not int:
            hint = "Bytes are whole numbers: `//` keeps an int, `/` makes a float." if isinstance(part, float) else ""
            message = f"returned a tuple that holds {describe(part)}; expected two ints"
            return Mismatch(message, hint=hint, about_form=True)
    if yours == expected:
        return None
    return Mismatch(
        given=(*_show(args), Row("result", ("start", "stop"))),
        expected=numbers_row("expected", expected),
        yours=numbers_row("yours", yours),
        differ=tuple(i for i in range(2) if yours[i] != expected[i]),
        hint=_hint(args, expected, yours),
    )


def _hint(args: Args, expected: tuple[int, int], yours: tuple[int, int]) -> str:
    """The wrong answers that people give, computed."""
    offset, (rows, k), row = args
    start, stop = expected
    with_scales = k // 128 * 66
    return first_true(
        (yours == (offset + row * k, offset + (row + 1) * k), "Two weights a byte: a row of k weights has k // 2."),
        (yours == (offset + row * rows // 2, offset + (row + 1) * rows // 2), _COLUMNS),
        (yours == (offset + row * rows // 2, offset + row * rows // 2 + k // 2), _COLUMNS),
        (yours == (start - offset, stop - offset), "From the start of the file: add the offset of the section."),
        (yours == (start, stop - 1), "Half-open: stop is the first byte after the row, as in a slice."),
        (
            yours == (offset + row * with_scales, offset + (row + 1) * with_scales),
            "Scales are a section of their own: no 66 bytes a group here.",
        ),
        (yours == (start, k // 2), "(start, stop), not (start, length)."),
        (yours == (start - k // 2, stop - k // 2), "Rows count from 0: row 1 is the second one."),
    )


def _show(args: Args) -> tuple[Row, ...]:
    offset, (rows, k), row = args
    labels = ("offset", "shape", "row")
    return (Row("argument", labels), Row("value", (number(offset), f"({rows}, {k})", number(row))))


_COLUMNS = "shape is (rows, columns): a row is as long as there are columns, shape[1]."
_BY_HAND = "How many bytes has one row? Then offset + row × that."
_RANGE = "Refuse it by a ValueError that names the row: "

CASES = (
    Case("the example", (8192, (1024, 384), 5), _BY_HAND),
    Case("row 0", (4096, (640, 128), 0), "The first row begins where its section begins."),
    Case("the last row", (61_440, (37, 896), 36), "The last row ends where the section ends."),
    Case("row 21 crosses a page", (12_288, (64, 384), 21), _BY_HAND),
    Case("a wide row", (1_048_576, (3584, 18_944), 1), _BY_HAND),
    Case("behind 4 GiB", (4_400_001_024, (152_064, 3584), 152_000), "Offsets are larger than 32 bits."),
    Case("as many rows as columns", (20_480, (256, 256), 100), _BY_HAND),
    Case("row = rows", (8192, (64, 384), 64), _RANGE + "there are rows 0 to 63.", ("64",)),
    Case("row −1", (8192, (64, 384), -1), _RANGE + "−1 is the row before: another tensor's bytes.", ("-1",)),
    Case("row = 3 × rows", (8192, (64, 384), 192), _RANGE + "any row from 64 on is not there.", ("192",)),
    Case("row = −rows", (8192, (64, 384), -64), _RANGE + "no row is below 0.", ("-64",)),
)


EXERCISE = Exercise(
    lab="02_nanoqwen_file",
    solution=row_bytes,
    cases=CASES,
    judge=_judge,
    show=_show,
    first_hints=(
        "How many bytes has one row of k weights, two weights a byte?",
        "start = offset + row × k // 2, and stop is k // 2 bytes later. Refuse a row that is not there first.",
    ),
)
