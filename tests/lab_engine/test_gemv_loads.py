"""The loads of a warp against counts by hand, and against every byte of a small matrix counted one by one."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab_engine.errors import NanoqwenError
from lab_engine.gemv_loads import BLOCKS, PATTERNS, first_rows, trace_loads, warps, whole_matrix

K7B = 3584


def sectors_one_by_one(loads, shift):
    """The sectors of all bytes of all loads, byte by byte."""
    return {(byte + shift) // 32 for load in loads for byte in range(load.start, load.start + load.size)}


def everything(pattern, n, k, shift=0):
    """Every request of every warp that has a row below n."""
    blocks = BLOCKS if PATTERNS[pattern].bulk else n
    for block in range(blocks):
        for warp in range(warps(pattern)):
            first = trace_loads(pattern, n, k, block, warp, 0, shift)
            for iteration in range(first.iterations if first.requests else 0):
                yield from trace_loads(pattern, n, k, block, warp, iteration, shift).requests


@pytest.mark.parametrize(
    ("pattern", "shift", "sectors", "lines", "moved", "used"),
    [
        ("coalesced", 0, 16, 4, 512, 512),
        ("coalesced", 16, 17, 5, 544, 512),
        ("naive", 0, 32, 32, 1024, 128),
        ("naive16", 0, 32, 32, 1024, 512),
    ],
)
def test_a_request_touches_the_sectors_that_one_counts_by_hand(pattern, shift, sectors, lines, moved, used):
    (request,) = trace_loads(pattern, K7B, K7B, iteration=2, shift=shift).requests
    assert (len(request.sectors), len(request.lines), request.moved, request.used) == (sectors, lines, moved, used)


@pytest.mark.parametrize(
    ("pattern", "shift", "percent"),
    [("naive", 0, 12.5), ("naive16", 0, 50), ("coalesced", 0, 100), ("coalesced", 16, 94.1), ("rows", 0, 100)],
)
def test_the_share_of_bytes_used_is_the_known_one(pattern, shift, percent):
    assert round(100 * trace_loads(pattern, K7B, K7B, shift=shift).efficiency, 1) == percent


def test_lane_9_of_row_5_reads_byte_10128_of_group_18_in_iteration_2():
    (load,) = trace_loads("coalesced", K7B, K7B, warp=5, iteration=2).lane(9)
    assert (load.row, load.start, load.size) == (5, 10128, 16)
    assert (load.offset, load.weight, load.group) == (10128 - 5 * 1792, 2336, 18)


@pytest.mark.parametrize(
    ("k", "iterations", "working"),
    [(K7B, 4, range(16)), (384, 1, range(12)), (128, 1, range(4)), (18944, 19, range(16))],
)
def test_lanes_past_the_end_of_the_row_idle_in_the_last_iteration(k, iterations, working):
    last = trace_loads("coalesced", K7B, k, iteration=iterations - 1)
    assert last.iterations == iterations
    assert [lane for lane in range(32) if last.lane(lane)] == list(working)
    assert last.efficiency == 1


def test_the_warp_of_two_rows_asks_twice_for_512_bytes():
    trace = trace_loads("rows", K7B, K7B, warp=1)
    assert [[load.row for load in request.loads[:2]] for request in trace.requests] == [[2, 2], [3, 3]]
    assert [len(request.sectors) for request in trace.requests] == [16, 16]


@pytest.mark.parametrize("k", [128, K7B, 18944])
def test_a_bulk_copy_is_asked_for_by_one_lane_and_brings_neighbouring_lines(k):
    for request in trace_loads("ring", K7B, k, warp=3).requests:
        assert [load.lane for load in request.loads] == [0]
        assert list(request.sectors) == list(range(request.sectors[0], request.sectors[-1] + 1))
        assert request.used == request.moved


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize(("n", "k"), [(37, 128), (5, 4224)])
@pytest.mark.parametrize("shift", [0, 16])
def test_every_byte_of_a_matrix_is_read_once_and_the_totals_are_the_sum_of_all_requests(pattern, n, k, shift):
    requests = list(everything(pattern, n, k, shift))
    read = Counter(byte for one in requests for load in one.loads for byte in range(load.start, load.start + load.size))
    assert read == Counter(range(n * k // 2))
    totals = whole_matrix(pattern, n, k, shift)
    assert totals.requests == len(requests)
    assert totals.moved == sum(32 * len(sectors_one_by_one(one.loads, shift)) for one in requests)
    assert totals.used == n * k // 2


@settings(deadline=None, max_examples=60, derandomize=True, database=None)
@given(st.data())
def test_sectors_and_lines_are_those_of_the_bytes_one_by_one(data):
    pattern = data.draw(st.sampled_from(sorted(PATTERNS)))
    k = 128 * data.draw(st.integers(1, 40))
    shift, block = data.draw(st.integers(0, 200)), data.draw(st.integers(0, 9))
    warp = data.draw(st.integers(0, warps(pattern) - 1))
    count = trace_loads(pattern, 200, k).iterations
    trace = trace_loads(pattern, 200, k, block, warp, data.draw(st.integers(0, count - 1)), shift)
    assert len(trace.requests) <= len(first_rows(pattern, k))
    for request in trace.requests:
        sectors = sectors_one_by_one(request.loads, shift)
        assert request.sectors == tuple(sorted(sectors))
        assert request.lines == tuple(sorted({sector // 4 for sector in sectors}))
        for load in request.loads:
            assert load.start == load.row * k // 2 + load.offset
            assert (load.weight, load.group) == (2 * load.offset, 2 * load.offset // 128)
            assert 0 <= load.row < 200
            assert 0 <= load.offset < k // 2
            assert load.start + load.size <= (200 if PATTERNS[pattern].bulk else load.row + 1) * k // 2


def test_the_naive_kernel_moves_eight_times_the_matrix_without_a_cache():
    totals = whole_matrix("naive", K7B, K7B)
    assert (totals.used, totals.moved) == (6_422_528, 8 * 6_422_528)
    assert whole_matrix("coalesced", K7B, K7B).moved == 6_422_528
    assert whole_matrix("coalesced", K7B, K7B, 16).moved == 6_422_528 + 4 * 32 * K7B  # one sector more a request


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("lop3", 8, 128), 'pattern is "lop3", expected one of: naive, naive16, coalesced, rows, ring'),
        (("naive", 8, 100), "k: found 100, expected 128 or more"),
        (("naive", 8, 192), "k: found 192, expected a multiple of 128, one group"),
        (("naive", 0, 128), "n: found 0, expected 1 or more"),
        (("coalesced", 8, 128, 0, 8), "warp: found 8, expected 0 to 7"),
        (("coalesced", 8, 128, 0, 0, 1), "iteration: found 1, expected 0 to 0"),
        (("coalesced", 8, 128, 0, 0, 0, -16), "shift: found -16, expected 0 or more"),
    ],
)
def test_what_does_not_exist_is_refused_in_one_line(arguments, line):
    with pytest.raises(NanoqwenError) as refused:
        trace_loads(*arguments)
    assert str(refused.value) == line
