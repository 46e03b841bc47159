"""A trace of requests: the pages are those of the real allocator, and the bytes those that one counts by hand."""

from itertools import pairwise
from statistics import mean

import pytest

from lab_engine.errors import NanoqwenError
from lab_engine.kv_pages import pages_for
from lab_engine.kv_workload import Request, StepUse, arrivals, final_waste, serve, served_at_once

TOKEN = 57_344
"""Bytes of a token of the 7B: 28 layers, K and V, 4 heads of 128, 2 bytes."""


@pytest.fixture(scope="module")
def workload():
    return serve(arrivals())


# By hand


def test_two_requests_step_by_step():
    """A: 15 prompt tokens and 3 new ones, from step 0. B: 1 and 1, from step 1. C: 40 and 2 at step 1, has to wait."""
    requests = (Request(0, 15, 3), Request(1, 1, 1), Request(1, 40, 2))
    found = serve(requests, max_running=2)
    assert found.steps == (
        StepUse(running=1, waiting=0, tokens=15, page_ids=1),
        StepUse(running=2, waiting=1, tokens=16 + 1, page_ids=1 + 1),
        StepUse(running=2, waiting=0, tokens=17 + 40, page_ids=2 + 3),
        StepUse(running=1, waiting=0, tokens=41, page_ids=3),
    )
    assert found.bytes_per_token == TOKEN
    assert [step.slots() for step in found.steps] == [16, 32, 80, 48]
    assert [step.slots(64) for step in found.steps] == [64, 128, 128, 64]
    assert found.wasted_bytes(found.steps[:2]) == (1 + 15) / 2 * TOKEN
    assert found.wasted_bytes(found.steps, 64) == (384 - 15 - 17 - 57 - 41) / 4 * TOKEN
    assert found.waste() == pytest.approx(1 - 130 / 176)
    assert found.waste(64) == pytest.approx(1 - 130 / 384)


def test_steps_before_the_first_arrival_and_between_two_take_nothing():
    found = serve((Request(2, 5, 1), Request(5, 5, 1)))
    assert [step.running for step in found.steps] == [0, 0, 1, 0, 0, 1]
    assert found.steps[3] == StepUse(0, 0, 0, 0)
    assert serve(()).steps == ()
    assert serve(()).waste() == 0


def test_waste_at_the_end_by_hand():
    """17 and 16 tokens: 3 pages, 48 slots for 33 tokens; contiguous 64: 128 slots."""
    requests = (Request(0, 17, 1), Request(0, 10, 7))
    assert final_waste(requests) == pytest.approx(15 / 48)
    assert final_waste(requests, 64) == pytest.approx(95 / 128)


def test_requests_that_76_gb_hold_at_once():
    """82,833 ids of 917,504 bytes, 32 of them for 512 tokens; 1.75 GiB for a contiguous cache of 32,768."""
    assert 32_768 * TOKEN == 1.75 * 2**30
    assert served_at_once(512) == 82_833 // 32 == 2588
    assert served_at_once(512, 32_768) == 40
    assert served_at_once(512, 2048) == 647
    assert served_at_once(2048) == served_at_once(2048, 2048) == 647
    assert served_at_once(1) == 82_833


@pytest.mark.parametrize("request_", [Request(0, 0, 1), Request(0, 1, 0)])
def test_a_request_of_nothing_is_refused(request_):
    with pytest.raises(NanoqwenError, match="at least 1 prompt token"):
        serve([request_])


def test_numbers_that_make_no_sense_are_refused():
    with pytest.raises(NanoqwenError, match="max_running: found 0"):
        serve(arrivals(), max_running=0)
    with pytest.raises(NanoqwenError, match="tokens: found 0"):
        served_at_once(0)
    with pytest.raises(NanoqwenError, match="expected at most 2048"):
        served_at_once(2049, 2048)


# The trace of the lab


def test_arrivals_are_as_their_description_says():
    """Of 5000: uniform lengths and prompts, exponential gaps of 10 steps on average."""
    requests = arrivals(seed=1, count=5000)
    lengths = [request.cached_tokens for request in requests]
    assert 1 <= min(lengths) < 10
    assert 2039 < max(lengths) <= 2048
    assert mean(lengths) == pytest.approx(1024.5, rel=0.03)
    assert mean(request.prompt_tokens / request.cached_tokens for request in requests) == pytest.approx(0.5, abs=0.02)
    gaps = [later.arrival - earlier.arrival for earlier, later in pairwise(requests)]
    assert min(gaps) >= 0
    assert mean(gaps) == pytest.approx(10, rel=0.05)
    assert sum(gap > 20 for gap in gaps) / len(gaps) == pytest.approx(0.135, abs=0.02)  # e ** -2
    assert arrivals(seed=1, count=5) == requests[:5] != arrivals(seed=2, count=5)


def test_every_token_of_every_request_is_served_and_pages_are_never_more_than_a_tail_too_many(workload):
    """A request holds a page for every 16 tokens it has now: no step wastes more than 15 slots a request."""
    assert len(workload.requests) == 500
    assert sum(step.running for step in workload.steps) == sum(request.new_tokens for request in workload.requests)
    for step in workload.steps:
        assert 0 <= step.slots() - step.tokens <= 15 * step.running
        assert step.running <= 64
        assert step.waiting == 0 or step.running == 64
    assert max(step.waiting for step in workload.steps) > 0


def test_pages_and_tokens_equal_an_account_without_an_allocator(workload):
    """Begin and end of every request from the trace alone, then pages_for of every length in some steps."""
    begun, free_at = [], [0] * 64
    for request in workload.requests:
        place = min(range(64), key=free_at.__getitem__)
        begun.append(max(request.arrival, free_at[place]))
        free_at[place] = begun[-1] + request.new_tokens
    for at in range(0, len(workload.steps), 97):
        lengths = [
            request.prompt_tokens + at - start
            for request, start in zip(workload.requests, begun, strict=True)
            if start <= at < start + request.new_tokens
        ]
        step = workload.steps[at]
        assert (step.running, step.tokens, step.page_ids) == (len(lengths), sum(lengths), sum(map(pages_for, lengths)))
    assert len(workload.steps) == max(free_at)


def test_what_the_lab_says_about_waste(workload):
    """Long answers stay longer and are half written, so the waste over time is a little above that at the end."""
    assert f"{workload.waste():.2%} {workload.waste(2048):.1%} {workload.waste(32_768):.1%}" == "0.85% 57.2% 97.3%"
    at_end = [final_waste(workload.requests, contiguous) for contiguous in (None, 2048, 32_768)]
    assert [f"{waste:.1%}" for waste in at_end] == ["0.7%", "51.0%", "96.9%"]


def test_of_endlessly_many_requests_the_waste_at_the_end_is_known(workload):
    """Uniform 1 to 2048: 7.5 slots of 1032 in pages; half of 2048, 1023.5 / 2048; 31,743.5 / 32,768."""
    many = arrivals(seed=3, count=20_000)
    assert final_waste(many) == pytest.approx(7.5 / 1032, rel=0.03)
    assert final_waste(many, 2048) == pytest.approx(1023.5 / 2048, rel=0.02)
    assert final_waste(many, 32_768) == pytest.approx(31_743.5 / 32_768, rel=0.002)


def test_windows_hold_every_step_once(workload):
    windows = list(workload.windows(50))
    assert [start for start, _ in windows] == list(range(0, len(workload.steps), 50))
    assert tuple(step for _, steps in windows for step in steps) == workload.steps
