"""What a GEMV costs: the course's checked values, bytes counted from tensors, and the model beside a recording."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lab_engine import data_path
from lab_engine.config import QWEN2_5_CODER
from lab_engine.errors import NanoqwenError
from lab_engine.gemv import (
    DATA_SHEETS,
    GPUS,
    H200,
    HOLDS,
    TOLERANCE,
    UNPACK_OPS,
    gemv_bytes,
    gemv_seconds,
    gemv_shapes,
    gemv_time,
    in_turn,
    intensity,
    lane_slots,
    model_errors,
    predict,
    recorded_edge,
    recorded_gpu,
    ridge_batch,
    this_cpu,
)
from lab_engine.recordings import load_recording
from tests.lab_engine.gemv_recording import PER_WEIGHT, gemv_recording

SHAPES = gemv_shapes(QWEN2_5_CODER["7B"])
EDGE = 2.4e-6


def test_the_7b_has_the_five_shapes_of_the_course():
    assert SHAPES == {
        "qkv": (4608, 3584),
        "o": (3584, 3584),
        "gate_up": (37888, 3584),
        "down": (3584, 18944),
        "lm_head": (152064, 3584),
    }


@pytest.mark.parametrize(
    ("stage", "megabytes", "at_the_limit", "with_edge"),
    [("qkv", 8.52, 1.82, 4.22), ("o", 6.62, 1.42, 3.82), ("gate_up", 70.0, 14.96, 17.36), ("down", 35.0, 7.48, 9.88),
     ("lm_head", 281, 60.05, 62.45)],
)  # fmt: skip
def test_a_memory_bound_product_takes_its_bytes_over_the_bandwidth_and_one_edge(
    stage, megabytes, at_the_limit, with_edge
):
    n, k = SHAPES[stage]
    assert gemv_bytes(n, k).weights + gemv_bytes(n, k).scales == pytest.approx(megabytes * 1e6, rel=2e-3)
    assert round(gemv_seconds(n, k, H200, 0.63, 0) * 1e6, 2) == pytest.approx(at_the_limit, abs=0.011)
    assert gemv_seconds(n, k, H200, 0.63, EDGE) * 1e6 == pytest.approx(with_edge, abs=0.011)


def test_down_converted_value_by_value_takes_22_3_microseconds():
    """67.9 M weights * 4.5 instructions / (132 SMs * 64 lanes * 1.82 GHz) = 19.9 µs."""
    assert gemv_seconds(*SHAPES["down"], H200, 4.5, EDGE) * 1e6 == pytest.approx(22.3, abs=0.05)


def test_all_113_products_of_a_token_take_1050_microseconds():
    layer = [gemv_seconds(*SHAPES[name], H200, 0.63, EDGE) for name in ("qkv", "o", "gate_up", "down")]
    assert sum(layer) * 1e6 == pytest.approx(35.28, abs=0.01)
    assert (28 * sum(layer) + gemv_seconds(*SHAPES["lm_head"], H200, 0.63, EDGE)) * 1e6 == pytest.approx(1050, abs=0.5)


def test_the_longer_of_reading_and_unpacking_counts_and_the_edge_comes_on_top():
    gpu = replace(H200, bandwidth=1e12, sms=1, clock_hz=1e9)
    assert gemv_seconds(64, 128, gpu, 2, 1e-6) == pytest.approx(64 * 128 * 2 / 64e9 + 1e-6)
    assert gemv_seconds(64, 128, gpu, 0, 1e-6) == pytest.approx(64 * 128 * 0.515625 / 1e12 + 1e-6)


def test_int8_activations_save_0_054_percent_of_down_s_bytes():
    whole, halved = (gemv_bytes(*SHAPES["down"], activation=name) for name in ("fp16", "int8"))
    assert whole.total - halved.total == 18_944
    assert round(100 * 18_944 / (whole.weights + whole.scales), 3) == 0.054


@given(st.integers(1, 40), st.integers(1, 8), st.sampled_from([32, 64, 128, 256]), st.integers(1, 5))
def test_bytes_are_those_of_tensors_in_these_shapes(n, groups, group, batch):
    k = 256 * groups
    tensors = {
        4: torch.empty(n, k // 8, dtype=torch.int32),
        8: torch.empty(n, k, dtype=torch.int8),
        16: torch.empty(n, k, dtype=torch.half),
    }
    scales, x, y = torch.empty(n, k // group).half(), torch.empty(batch, k).half(), torch.empty(batch, n)
    for bits, weights in tensors.items():
        found = gemv_bytes(n, k, bits, group, batch=batch)
        expected = (weights.nbytes, 0 if bits == 16 else scales.nbytes, x.nbytes, y.nbytes)
        assert (found.weights, found.scales, found.activation, found.output) == expected
        assert found.total == sum(expected)


def test_a_row_that_is_not_whole_groups_and_odd_bits_are_refused():
    with pytest.raises(NanoqwenError, match="k: found 384, expected a multiple of the group 256"):
        gemv_bytes(384, 384, group=256)
    with pytest.raises(NanoqwenError, match="bits: found 5, expected one of 4, 8, 16"):
        gemv_bytes(384, 384, bits=5)


def test_a_column_brings_3_88_flop_a_byte_of_int4_1_97_of_int8_and_1_of_fp16():
    assert [round(intensity(bits), 2) for bits in (4, 8, 16)] == [3.88, 1.97, 1.0]


def test_the_ridge_by_data_sheets_lies_at_53_76_39_and_42_columns():
    ridges = {name: math.floor(ridge_batch(gpu)) for name, gpu in DATA_SHEETS.items()}
    assert ridges == {"H200": 53, "H100": 76, "A100": 39, "RTX 4090": 42}
    assert round(ridge_batch(GPUS["H200"])) == 55  # at the measured bandwidth, 2.5 % below the data sheet's


def test_from_the_ridge_on_arithmetic_is_the_limit():
    """x and y move too, so the crossing lies a little further out than the weights alone say."""
    times = {batch: gemv_time(SHAPES["gate_up"], H200, 0.63, EDGE, batch=batch) for batch in (1, 40, 80, 256)}
    assert [time.limit for time in times.values()] == ["bandwidth", "bandwidth", "arithmetic", "arithmetic"]
    assert times[40].seconds < 1.1 * times[1].seconds
    assert times[256].seconds > 3 * times[1].seconds


def test_the_full_model_is_the_short_one_and_a_third_of_a_percent_for_x_and_y():
    for stage, shape in SHAPES.items():
        full, short = gemv_time(shape, H200, 0.63, EDGE).memory, gemv_seconds(*shape, H200, 0.63, 0)
        assert short < full < 1.0034 * short, stage


def test_the_limit_is_named():
    o, down = SHAPES["o"], SHAPES["down"]
    assert gemv_time(o, H200, 0.63, EDGE).limit == "edge"
    assert gemv_time(o, H200, 0.63, 0).limit == "bandwidth"
    assert gemv_time(down, H200, 4.5, EDGE).limit == "instructions"
    assert gemv_time(down, GPUS["RTX 4090"], 4.5, EDGE).limit == "bandwidth"
    assert gemv_time(down, H200, 4.5, EDGE, bits=16).instructions == 0


def test_an_h200_can_afford_1_7_integer_instructions_a_weight_and_an_rtx_4090_10():
    affordable = {name: 0.515625 * gpu.int_rate / gpu.bandwidth for name, gpu in GPUS.items()}
    assert affordable["H200"] == pytest.approx(1.69, abs=0.01)
    assert affordable["RTX 4090"] == pytest.approx(10.6, abs=0.1)


def test_products_in_turn_add_up_and_each_has_its_own_longest_part():
    bound, unpacking = gemv_time(SHAPES["o"], H200, 0.3, EDGE), gemv_time(SHAPES["o"], H200, 4.5, EDGE)
    both = in_turn([bound, unpacking])
    assert both.seconds == pytest.approx(bound.memory + unpacking.instructions + 2 * EDGE)
    assert (both.bytes.total, both.edge) == (2 * bound.bytes.total, 2 * EDGE)


def test_the_ways_to_unpack_are_counted_in_recorded_machine_code():
    integer = ("LOP3", "PRMT", "SHF", "LEA", "VIADD")
    data = load_recording("unpack").data
    for name in ("shift_mask", "lop3", "prmt"):
        counts = data["methods"][name]["sass_instructions_per_word"]
        slots = sum(count for opcode, count in counts.items() if opcode.startswith(integer)) / 8
        assert UNPACK_OPS[name] == max(slots, 64 / 16 * counts.get("I2F.F16", 0) / 8)
    clocks = data["timing"]["methods"]["shift_mask"]["clocks_per_word_per_sm"]
    assert clocks * 64 / 8 == pytest.approx(UNPACK_OPS["shift_mask"], rel=0.06)


def test_this_cpu_has_a_measured_bandwidth_and_no_invented_ceiling():
    cpu = this_cpu()
    assert (cpu.kind, cpu.int_rate) == ("measured", math.inf)
    assert 1e8 < cpu.bandwidth < 1e13
    assert gemv_time(SHAPES["o"], cpu, 4.5, 0).limit == "bandwidth"


# beside a recording ---------------------------------------------------------------------------------------------------


def test_a_prediction_takes_instructions_bandwidth_clock_and_edge_from_the_recording():
    recording = gemv_recording()
    assert recorded_gpu(recording).int_rate == 132 * 64 * 1980e6
    assert recorded_edge(recording) * 1e6 == pytest.approx(1.1 + 2.74 - 6.623232 / 4.65)
    slots = lane_slots({"integer": PER_WEIGHT["coalesced"][0], "total": PER_WEIGHT["coalesced"][1]})
    expected = 3584 * 18944 * slots / (132 * 64 * 1980e6) + recorded_edge(recording)
    assert predict(recording, "coalesced", "down") == pytest.approx(expected)


def test_issue_slots_count_where_they_are_more_than_twice_the_integer_ones():
    assert lane_slots({"integer": 0.5, "total": 0.9}) == 0.5
    assert lane_slots({"integer": 0.5, "total": 3.0}) == 1.5


def test_the_error_is_a_share_of_the_recorded_time():
    recording = gemv_recording()
    found = model_errors(recording)["rows"]["gate_up"]
    assert found.recorded == 20.7e-6
    assert found.error == pytest.approx((found.predicted - 20.7e-6) / 20.7e-6)
    recording.data["rungs"]["naive"]["sass"] = None
    assert "naive" not in model_errors(recording)


def recordings():
    yield "made up", gemv_recording
    if (data_path("h200").exists()) and (data_path("h200") / "gemv.json").exists():
        yield "recorded", lambda: load_recording("gemv")


@pytest.mark.parametrize("make", [pytest.param(make, id=name) for name, make in recordings()])
def test_where_the_model_is_said_to_hold_it_is_within_its_tolerance_and_nowhere_is_a_kernel_faster(make):
    errors = model_errors(make())
    for rung, stages in HOLDS.items():
        for stage in stages:
            assert abs(errors[rung][stage].error) <= TOLERANCE, (rung, stage, errors[rung][stage])
    for rung, stages in errors.items():
        for stage, found in stages.items():
            assert found.error < 0.05, (rung, stage, found)
