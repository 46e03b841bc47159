"""The addresses of the kernels, from the header's text: operators, errors, and every byte of a matrix read once."""

import re
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab_engine.errors import NanoqwenError
from lab_engine.index_text import functions, parse
from lab_engine.kernels import read_source

INDEX = functions()
SHAPES = [(n, k) for n in (1, 7, 33, 130) for k in (128, 384, 3584, 18944)]


def evaluate(expression: str, **values: int) -> int:
    parameters = ", ".join(f"long long {name}" for name in values)
    return parse(f"INDEX f({parameters}) {{ return {expression}; }}")["f"](*values.values())


# The evaluator


@pytest.mark.parametrize(
    ("expression", "value"),
    [("a / b * b + a % b", 17), ("a - b * 3", 2), ("(a > b) * 10 + (a <= b)", 10), ("a == 17", 1), ("a < b", 0)],
)
def test_an_expression_means_what_c_means(expression, value):
    assert evaluate(expression, a=17, b=5) == value


@given(st.lists(st.integers(0, 1 << 40), min_size=1, max_size=5), st.integers(1, 1 << 20))
def test_an_array_gives_what_its_numbers_give(numbers, k):
    text = parse("INDEX f(long long a, long long k) { return a / k * 3 + a % k - (a < k); }")["f"]
    together = text(np.array(numbers), np.array(k))
    assert together.dtype == np.int64
    assert together.tolist() == [text(number, k) for number in numbers]


@pytest.mark.parametrize("expression", ["a & 1", "a < 2 < 3", "-a", "a ** 2", "later(a)", "b", "a if a else 1", "1.5"])
def test_what_c_reads_in_another_way_or_nobody_needs_is_refused(expression):
    with pytest.raises(NanoqwenError, match=r"f: .* expected its parameters, whole numbers"):
        evaluate(expression, a=1)


def test_a_function_sees_only_those_above_it():
    text = "INDEX one() { return 1; }\nINDEX two() { return one() + one(); }"
    assert parse(text)["two"]() == 2
    with pytest.raises(NanoqwenError, match=r"two: 'one\(\)'"):
        parse("\n".join(reversed(text.splitlines())))["two"]()


@pytest.mark.parametrize("value", [-1, 1.0, True, "3"])
def test_an_argument_that_is_no_count_is_named(value):
    with pytest.raises(NanoqwenError, match=r"row_bytes: k = .*expected whole numbers of 0 or more"):
        INDEX["row_bytes"](value)


def test_too_few_arguments_are_counted():
    with pytest.raises(NanoqwenError, match=r"naive_offset\(lane, i\): found 1 arguments, expected 2"):
        INDEX["naive_offset"](1)


def test_division_is_exact_beyond_what_a_float_holds():
    half, big = parse("INDEX f(long long a) { return a / 2; }")["f"], 2**60 + 2
    assert half(big) == half(np.array([big]))[0] == 2**59 + 1


@pytest.mark.parametrize("operator", ["/", "%"])
@pytest.mark.parametrize("zero", [0, np.array([1, 0])])
def test_nothing_is_divided_by_zero(operator, zero):
    with pytest.raises(NanoqwenError, match="expected a divisor that is not 0"):
        parse(f"INDEX f(long long a, long long b) {{ return a {operator} b; }}")["f"](3, zero)


def test_a_negative_number_is_not_divided():
    with pytest.raises(NanoqwenError, match="C rounds a negative number up"):
        evaluate("(a - 9) / 2", a=1)


def test_a_line_that_is_no_function_is_shown():
    with pytest.raises(NanoqwenError, match=r"line 'INDEX f\(\) \{ 1; \}': expected INDEX NAME"):
        parse("INDEX f() { 1; }")


def test_every_function_of_the_header_is_read():
    assert list(INDEX) == re.findall(r"^INDEX (\w+)\(", read_source("gemv_index.cuh"), re.MULTILINE)


# What the lab says


def test_lane_9_of_row_5_reads_byte_10128_in_iteration_2():
    assert INDEX["coalesced_byte"](5, 3584, 9, 2) == 10128
    assert INDEX["group_of"](INDEX["coalesced_offset"](9, 2)) == 18


def test_half_a_warp_is_idle_in_the_last_iteration_of_3584_weights():
    assert INDEX["coalesced_iterations"](3584) == 4
    assert INDEX["coalesced_active"](3584, np.arange(32), np.int64(3)).tolist() == [1] * 16 + [0] * 16


# Every byte once


def count_reads(name: str, n: int, k: int) -> np.ndarray:
    """How often each byte of the packed (n, k) tensor is read by a warp's lanes, over a whole launch."""
    f = {part: INDEX[f"{name}_{part}"] for part in "warps rows width row iterations active byte".split()}
    a_block = f["warps"]() * f["rows"]() * (32 if name.startswith("naive") else 1)
    ranges = (-(-n // a_block), f["warps"](), 32, f["rows"](), f["iterations"](k))
    block, warp, lane, j, i = (axis.ravel() for axis in np.indices(ranges))
    row = f["row"](block, warp, lane, j)
    reads = (row < n) & (f["active"](np.full_like(i, k), lane, i) == 1)
    first = f["byte"](row, np.full_like(row, k), lane, i)[reads]
    return np.bincount((first[:, None] + np.arange(f["width"]())).ravel(), minlength=n * k // 2)


@pytest.mark.parametrize(("n", "k"), SHAPES)
@pytest.mark.parametrize("name", ["naive", "naive16", "coalesced", "rows"])
def test_every_byte_of_every_row_is_read_exactly_once(name, n, k):
    reads = count_reads(name, n, k)
    assert reads.size == n * k // 2
    assert (reads == 1).all()


def ring_copies(n: int, k: int, blocks: int) -> list[tuple[int, int]]:
    """(first byte, length) of every bulk copy of a launch: of each block, round, chunk and warp."""
    f, copies = INDEX, []
    step = f["ring_copy_rows"](k)
    for block in range(blocks):
        stop, rounds = f["ring_first_tile"](block + 1, blocks, n), f["ring_rounds"](block, blocks, n)
        for round_, chunk, warp in product(range(rounds), range(f["ring_chunks"](k)), range(f["ring_warps"]())):
            tile = f["ring_tile"](block, blocks, n, round_, warp)
            rows = [f["ring_row"](tile, j) for j in range(f["ring_rows"]())] if tile < stop else []
            there = [row for row in rows if row < n]
            parts = [there[at : at + step] for at in range(0, len(there), step)]
            copies += [(f["ring_byte"](part[0], k, chunk), len(part) * f["ring_length"](k, chunk)) for part in parts]
    return copies


@pytest.mark.parametrize("blocks", [1, 5, 132])
@pytest.mark.parametrize(("n", "k"), SHAPES)
def test_the_bulk_copies_of_the_ring_bring_every_byte_exactly_once(n, k, blocks):
    copies = sorted(ring_copies(n, k, blocks))
    assert copies[0][0] == 0
    assert all(first + length == after for (first, length), (after, _) in pairwise(copies))
    assert sum(copies[-1]) == n * k // 2
    slot = INDEX["ring_slot"](1)
    assert all(first % 16 == 0 and 0 < length <= slot and length % 16 == 0 for first, length in copies)


@pytest.mark.parametrize("k", [128, 3584, 18944])
def test_no_two_pieces_of_x_share_a_place(k):
    places = INDEX["x_place"](np.arange(k // 8))
    assert len(set(places.tolist())) == k // 8
    assert 16 * (places.max() + 1) <= INDEX["x_bytes"](k)


def test_the_lanes_of_a_warp_read_neighbouring_pieces_of_x():
    assert INDEX["x_place"](128 + 4 * np.arange(32) + 3).tolist() == list(range(128 + 96, 128 + 128))


@pytest.mark.parametrize("k", [128, 384, 3584, 4096, 4224, 18944])
def test_shared_memory_holds_every_piece_of_x_that_a_batch_of_four_iterations_reads(k):
    batches = -(-INDEX["rows_iterations"](k) // 4)
    assert 16 * batches * 4 * 128 == INDEX["x_bytes"](k)
