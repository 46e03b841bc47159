"""Recorded parts at any cost of a launch: by hand, summed over a token, and where two variants are even."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab_engine.errors import RecordingError
from lab_engine.gemv_int8 import EAGER_US, LAUNCHES, RUNGS, TOKEN, VARIANTS, StageTimes, Work, errors, trace_int8
from lab_engine.recordings import load_recording
from tests.lab_engine.int8_recording import EDGE, PARTS_US, int8_recording

us = st.floats(0, 100)


def test_only_the_separate_kernel_is_launched_twice():
    assert LAUNCHES == {"fp16": 1, "dp4a_separate": 2, "dp4a_fused": 1, "dp4a_limbs": 1}


def test_at_the_recorded_cost_of_a_launch_the_recorded_parts_come_back():
    trace = trace_int8(int8_recording())
    for stage, parts in PARTS_US.items():
        for name, own in zip(VARIANTS, parts, strict=True):
            assert trace.stages[stage].work[name].time(EDGE) == pytest.approx(LAUNCHES[name] * EDGE + sum(own))


def test_a_token_is_28_layers_and_a_head():
    trace = trace_int8(int8_recording())
    token = trace.stages[TOKEN]
    assert token.products == 113
    assert token.work["dp4a_separate"].launches == 226
    layer = sum(trace.stages[stage].work["dp4a_fused"].time(1.0) for stage in ("qkv", "o", "gate_up", "down"))
    head = trace.stages["lm_head"].work["dp4a_fused"].time(1.0)
    assert token.work["dp4a_fused"].time(1.0) == pytest.approx(28 * layer + head)


def test_the_named_costs_are_recorded_but_for_the_eager_one():
    assert trace_int8(int8_recording()).launches == {"dependent": 0.75, "graph node": EDGE, "eager": EAGER_US}


@given(us, us, us)
def test_at_the_crossover_both_take_the_same_time(fp16, separate, quantize):
    work = {"fp16": Work(1, 0.0, fp16, 0.0), "dp4a_separate": Work(2, quantize, separate, 0.0)}
    even = StageTimes(1, work, {}).crossover
    assert work["fp16"].time(even) == pytest.approx(work["dp4a_separate"].time(even), abs=1e-9)


def test_the_spike_s_numbers_give_its_crossover():
    # All products: FP16 1438 µs, INT8 1309 µs, 113 launches more.
    work = {"fp16": Work(113, 0.0, 1438.0, 0.0), "dp4a_separate": Work(226, 0.0, 1309.0, 0.0)}
    assert StageTimes(113, work, {}).crossover == pytest.approx(1.14, abs=0.005)


def test_errors_of_a_small_and_a_large_product():
    for k in (3584, 18944):
        found = errors(k)
        assert 1e-4 < found["fp16"] < 1e-3
        assert 2e-3 < found["dp4a_fused"] == found["dp4a_separate"] < 2e-2
        assert found["dp4a_limbs"] < 1e-4


def test_in_a_graph_every_variant_takes_what_its_rung_was_recorded_to_take():
    recording = load_recording("gemv")
    trace = trace_int8(recording)
    for stage in recording.data["shapes"]:
        for name, work in trace.stages[stage].work.items():
            recorded = recording.data["rungs"][RUNGS[name]]["us"][stage]["us"]
            assert work.time(trace.launches["graph node"]) == pytest.approx(recorded, rel=2e-3)


def test_another_recording_is_refused_in_a_line():
    with pytest.raises(RecordingError, match="recording gemv_token: no 'shapes' in it"):
        trace_int8(load_recording("gemv_token"))
    with pytest.raises(RecordingError, match="recording: found str, expected load_recording"):
        trace_int8("gemv")


def test_quantizing_takes_no_less_than_nothing():
    recording = int8_recording()
    recording.data["rungs"]["dp4a_fused"]["us"]["o"]["us"] = 2.0
    assert trace_int8(recording).stages["o"].work["dp4a_fused"].quantize == 0
