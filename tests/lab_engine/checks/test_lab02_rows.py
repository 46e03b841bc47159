import numpy as np
import pytest

from lab_engine import nanoqwen_file
from lab_engine.checks.lab02_damage import SmallFile
from lab_engine.checks.lab02_rows import EXERCISE as ROWS
from lab_engine.checks.lab02_rows import row_bytes
from tests.lab_engine.checks.answers import names


def row_with(numerator=1, denominator=2, *, side=1, plus_offset=True, last=0, check=True, length=False, first=0):
    """A row_bytes that does one thing differently."""

    def find(offset, shape, row):
        if check and not 0 <= row < shape[0]:
            raise ValueError(f"no row {row}")
        size = shape[side] * numerator // denominator
        start = offset * plus_offset + (row - first) * size
        return start, size if length else start + size - last

    return find


def rows_and_columns_of_another_length(offset, shape, row):
    start, _ = row_with(side=0)(offset, shape, row)
    return start, start + shape[1] // 2


def negative_rows_accepted(offset, shape, row):
    if row >= shape[0]:
        raise ValueError(f"row {row}")
    return row_with(check=False)(offset, shape, row)


def two_rows_refused(offset, shape, row):
    if row in (shape[0], -1):
        raise ValueError(f"row {row}")
    return row_with(check=False)(offset, shape, row)


def from_the_end(offset, shape, row):
    if row >= shape[0] or row == -1:
        raise ValueError(f"row {row}")
    return row_with(check=False)(offset, shape, row)


def index_error(offset, shape, row):
    return row_bytes(offset, shape, range(shape[0])[row])


def raises_index_error(offset, shape, row):
    if not 0 <= row < shape[0]:
        raise IndexError(f"row {row}")
    return row_bytes(offset, shape, row)


BELOW = {"row −1", "row = −rows"}
OUTSIDE = {"row = rows", "row = 3 × rows", *BELOW}
INSIDE = names(ROWS) - OUTSIDE
WRONG_ROWS = {
    "a byte a weight": (row_with(1, 1), "Two weights a byte", INSIDE),
    "shape[0] as row length": (row_with(side=0), "shape is (rows, columns)", INSIDE - {"as many rows as columns"}),
    "shape[0] for the start": (
        rows_and_columns_of_another_length,
        "shape is (rows, columns)",
        INSIDE - {"as many rows as columns", "row 0"},
    ),
    "offset forgotten": (row_with(plus_offset=False), "From the start of the file", INSIDE),
    "inclusive stop": (row_with(last=1), "Half-open", INSIDE),
    "scales in between": (row_with(66, 128), "Scales are a section of their own", INSIDE),
    "no range check": (row_with(check=False), "a ValueError that names the row: there are rows 0 to 63", OUTSIDE),
    "−1 accepted": (negative_rows_accepted, "−1 is the row before: another tensor's bytes", BELOW),
    "only rows and −1 refused": (two_rows_refused, "any row from 64 on", {"row = 3 × rows", "row = −rows"}),
    "counted from the end": (from_the_end, "no row is below 0", {"row = −rows"}),
    "Python's own index": (index_error, "a ValueError that names the row", OUTSIDE),
    "IndexError": (raises_index_error, "a ValueError that names the row", OUTSIDE),
    "length for stop": (row_with(length=True), "not (start, length)", INSIDE),
    "counted from 1": (row_with(first=1), "Rows count from 0", INSIDE),
    "a word a weight": (row_with(4, 1), "How many bytes has one row", INSIDE),
    "the example's answer": (lambda *_: (9152, 9344), "The first row begins where its section begins", None),
}


@pytest.mark.parametrize("name", WRONG_ROWS)
def test_a_wrong_place_of_a_row_fails_with_its_own_hint(name, failing_cases):
    wrong, hint, only = WRONG_ROWS[name]
    verdict = ROWS.check(wrong)
    assert verdict.status == "failed"
    assert hint in verdict.hint, verdict
    if only is not None:
        assert failing_cases(ROWS, wrong) == only


def test_the_results_stand_below_their_own_headings():
    verdict = ROWS.check(row_with(1, 1))
    assert [row.values for row in verdict.rows] == [
        ("offset", "shape", "row"),
        ("8,192", "(1024, 384)", "5"),
        ("start", "stop"),
        ("9,152", "9,344"),
        ("10,112", "10,496"),
    ]


def by_a_range(offset, shape, row):
    starts = range(offset, offset + shape[0] * shape[1] // 2, shape[1] // 2)
    if row not in range(len(starts)):
        raise ValueError(f"row {row} is not there")
    return starts[row], starts[row] + shape[1] // 2


def by_words(offset, shape, row):
    if row < 0 or row >= shape[0]:
        raise ValueError(f"{row} of {shape[0]} rows")
    words = shape[1] // 8
    return offset + 4 * words * row, offset + 4 * words * (row + 1)


@pytest.mark.parametrize("right", [row_bytes, row_with(), by_a_range, by_words])
def test_a_right_place_of_a_row_passes(right):
    verdict = ROWS.check(right)
    assert verdict.status == "passed", verdict


def test_row_bytes_gives_the_known_bytes_and_those_of_a_real_file():
    assert row_bytes(8192, (1024, 384), 5) == (9152, 9344)
    assert row_bytes(0, (64, 384), 21) == (4032, 4224)
    data = SmallFile(1, True, "linear").data
    entry = nanoqwen_file.parse_header(data)[1]["sections"]["model.layers.0.mlp.down_proj.weight"]
    words = np.frombuffer(data, "<i4", entry["length"] // 4, entry["offset"]).reshape(entry["shape"][0], -1)
    start, stop = row_bytes(entry["offset"], tuple(entry["shape"]), 77)
    assert data[start:stop] == words[77].tobytes()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda *a: row_bytes(*a)[0], "returned an int; expected (start, stop)"),
        (lambda *a: tuple(map(float, row_bytes(*a))), "returned a tuple that holds a float; expected two ints"),
        (lambda *a: slice(*row_bytes(*a)), "returned a slice; expected (start, stop)"),
    ],
)
def test_a_place_of_another_form_is_refused_in_words(wrong, message):
    assert ROWS.check(wrong).message == message


def test_arithmetic_in_32_bits_fails_behind_4_gib(failing_cases):
    def in_float32(offset, shape, row):
        start, stop = row_bytes(offset, shape, row)
        return int(np.float32(start)), int(np.float32(stop))

    def in_int32(offset, shape, row):
        start, stop = row_bytes(offset, shape, row)
        return start & 0xFFFFFFFF, stop & 0xFFFFFFFF

    assert failing_cases(ROWS, in_int32) == {"behind 4 GiB"}
    assert "behind 4 GiB" in failing_cases(ROWS, in_float32)
