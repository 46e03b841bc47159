import numpy as np
import pytest

from lab_engine.checks.lab03_lane_load import EXERCISE as LANE_LOAD
from lab_engine.checks.lab03_lane_load import lane_load
from lab_engine.index_text import functions
from tests.lab_engine.checks.answers import names


def load_with(
    *,
    lane_bytes=16,
    row_bytes=lambda k: k // 2,
    guard=lambda k, in_row: in_row < k // 2,
    group=lambda in_row: in_row // 64,
    in_row=None,
    use_row=True,
):
    """A lane_load that does one thing differently."""

    def load(row, k, lane, iteration):
        here = in_row(k, lane, iteration) if in_row else 32 * lane_bytes * iteration + lane_bytes * lane
        if not guard(k, here):
            return None
        return row * row_bytes(k) * use_row + here, group(here)

    return load


def contiguous_chunk(row, k, lane, iteration):
    chunk = k // 2 // 32
    here = lane * chunk + 16 * iteration
    return row * k // 2 + here, here // 64


def whole_iterations_only(row, k, lane, iteration):
    return lane_load(row, k, lane, iteration) if iteration < k // 1024 else None


def group_in_the_matrix(row, k, lane, iteration):
    found = lane_load(row, k, lane, iteration)
    return found and (found[0], found[1] + row * k // 128)


def tail_by_remainder(row, k, lane, iteration):
    """Right unless whole iterations end the row: then the remainder is 0, and all of the last one idles."""
    last = (k - 1) // 1024
    if iteration > last or (iteration == last and lane >= k % 1024 // 32):
        return None
    return row * k // 2 + 512 * iteration + 16 * lane, 8 * iteration + lane // 4


def in_float32(row, k, lane, iteration):
    found = lane_load(row, k, lane, iteration)
    return found and (int(np.float32(found[0])), found[1])


def half_of(row, k, lane, iteration):
    found = lane_load(row, k, lane, iteration)
    return found and found[::-1]


ALL = names(LANE_LOAD)
FIRST_IDLE = {f"the first idle lane of a row of {k}" for k in (128, 384, 3584, 18944)}
TOO_MANY = {"an iteration too many", "an iteration too many for a row of 2048"}
IDLE = FIRST_IDLE | TOO_MANY
WORKING = ALL - IDLE
LAST = {f"the last lane of a row of {k}" for k in (128, 384, 3584, 18944)}
ROW_0, K_128 = {"lane 0 of row 0"}, {"the last lane of a row of 128"}
EXAMPLE = "lane 9 in iteration 2"
WRONG = {
    "contiguous chunk a lane": (contiguous_chunk, "Neighbouring lanes must read neighbouring bytes", None),
    "a byte a weight": (
        load_with(row_bytes=lambda k: k, guard=lambda k, here: here < k, group=lambda here: here // 128),
        "Half a byte a weight",
        (WORKING - ROW_0) | IDLE,
    ),
    "a byte a weight, in the row's start alone": (load_with(row_bytes=lambda k: k), "Half a byte", WORKING - ROW_0),
    "no tail guard": (load_with(guard=lambda *_: True), "This lane reads the next row", IDLE),
    "compared with k": (load_with(guard=lambda k, here: here < k), "This lane reads the next row", FIRST_IDLE | IDLE),
    "<= at the end": (
        load_with(guard=lambda k, here: here <= k // 2),
        "This lane reads the next row",
        FIRST_IDLE | {"an iteration too many for a row of 2048"},
    ),
    "whole iterations only": (whole_iterations_only, "Half a warp has work left", LAST),
    "group from bytes / 128": (
        load_with(group=lambda here: here // 128),
        "Two weights a byte",
        WORKING - ROW_0 - K_128,
    ),
    "row forgotten": (load_with(use_row=False), "Start of the row", WORKING - ROW_0),
    "4-byte lanes": (load_with(lane_bytes=4), "16 bytes a lane, not 4", (WORKING - ROW_0) | IDLE),
    "iteration forgotten": (load_with(in_row=lambda _k, lane, _i: 16 * lane), "An iteration is 512 bytes", None),
    "lane forgotten": (load_with(in_row=lambda _k, _l, i: 16 * i), "An iteration is 512 bytes", None),
    "iterations of 128 bytes": (
        load_with(in_row=lambda _k, lane, i: 128 * i + 16 * lane),
        "an iteration is 512 bytes",
        None,
    ),
    "the group of the matrix": (group_in_the_matrix, "counts from the beginning of the row", WORKING - ROW_0),
    "the piece for the group": (load_with(group=lambda here: here // 16), "four lanes share a group", None),
    "group before offset": (half_of, "In this order", WORKING - ROW_0),
    "a tail by the remainder": (
        tail_by_remainder,
        "whole iterations: all lanes have work",
        {"the last lane of a row of 2048"},
    ),
    "a float32 for the offset": (in_float32, "", {"row 152063 of lm_head"}),
    "an idle lane is −1": (lambda *a: lane_load(*a) or (-1, -1), "nothing left to read is None", IDLE),
    "the example's answer": (lambda *_: (10128, 18), "", ALL - {EXAMPLE}),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_load_fails_with_its_own_hint_on_the_cases_that_show_it(name, failing_cases):
    wrong, hint, only = WRONG[name]
    verdict = LANE_LOAD.check(wrong)
    assert verdict.status == "failed"
    assert hint in verdict.hint, verdict
    assert verdict.hint
    if only is not None:
        assert failing_cases(LANE_LOAD, wrong) == only


def test_lane_0_of_row_0_lets_almost_every_mistake_pass(failing_cases):
    caught = {name for name in WRONG if ROW_0 & failing_cases(LANE_LOAD, WRONG[name][0])}
    assert caught == {"the example's answer"}


def in_weights(row, k, lane, iteration):
    weight = 32 * (32 * iteration + lane)
    return ((row * k + weight) // 2, weight // 128) if weight < k else None


def with_numpy(row, k, lane, iteration):
    piece = np.int64(32 * iteration + lane)
    return (row * (k // 2) + 16 * piece, piece // 4) if piece < k // 32 else None


def by_walking(row, k, lane, iteration):
    byte = (row * k) // 2
    pieces = list(range(byte, byte + k // 2, 16))[32 * iteration :][:32]
    return (pieces[lane], (pieces[lane] - byte) // 64) if lane < len(pieces) else None


@pytest.mark.parametrize("right", [lane_load, in_weights, with_numpy, by_walking])
def test_a_right_load_passes_with_numpy_integers_too(right):
    verdict = LANE_LOAD.check(right)
    assert verdict.status == "passed", verdict


def test_the_known_loads():
    assert lane_load(5, 3584, 9, 2) == (10128, 18)
    assert lane_load(0, 3584, 15, 3) == (1776, 27)
    assert [lane_load(0, 384, lane, 0) is None for lane in (11, 12)] == [False, True]


@pytest.mark.parametrize("k", [128, 384, 896, 3584, 18944])
def test_all_lanes_together_read_every_byte_of_a_row_once(k):
    loads = [lane_load(2, k, lane, i) for i in range(k // 1024 + 1) for lane in range(32)]
    assert sorted(load[0] for load in loads if load) == list(range(k, k + k // 2, 16))
    assert sorted({load[1] for load in loads if load}) == list(range(k // 128))


@pytest.mark.parametrize("case", LANE_LOAD.cases, ids=lambda case: case.name)
def test_a_lane_reads_what_the_kernels_own_index_text_says(case):
    row, k, lane, iteration = case.args
    index = functions()
    found = lane_load(*case.args)
    assert bool(index["coalesced_active"](k, lane, iteration)) == (found is not None)
    assert index["coalesced_width"]() == 16
    if found is not None:
        assert found[0] == index["coalesced_byte"](row, k, lane, iteration)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda *a: list(lane_load(*a)), "returned a list; expected (byte offset, group)"),
        (lambda *a: (lane_load(*a)[0] / 1, 18), "returned a tuple whose byte offset is a float; expected an int"),
        (lambda *_: (float("nan"), 18), "returned a tuple whose byte offset is a float; expected an int"),
        (lambda *_: ("10128", 18), "returned a tuple whose byte offset is a str; expected an int"),
        (lambda *a: lane_load(*a)[0], "returned an int; expected (byte offset, group)"),
        (lambda *a: lane_load(*a) or "idle", "returned a str; expected None"),
        (lambda *a: lane_load(*a)[0:1][1], "raised IndexError: tuple index out of range"),
    ],
)
def test_another_form_is_refused_in_words(wrong, message):
    assert LANE_LOAD.check(wrong).message.startswith(message)


def test_a_loop_without_end_is_stopped(monkeypatch):
    monkeypatch.setattr("lab_engine.checks.runner.LIMIT_S", 0.2)

    def endless(row, k, lane, iteration):
        while k:
            k += 1

    assert LANE_LOAD.check(endless).message.startswith("did not return within")


def test_none_for_a_lane_with_work_is_no_answer():
    verdict = LANE_LOAD.check(lambda *a: lane_load(*a) if a[2] else None)
    assert (verdict.case, verdict.message[:13]) == ("lane 0 of row 0", "returned None")
