"""One group under 101 clips of its scale: by hand, against float64, and against what many normal groups lose."""

import dataclasses
import math
import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lab_engine.errors import NanoqwenError
from lab_engine.group_trace import CLIPS, running_group, trace_group
from lab_engine.int4 import plain_scale, quantize_groups, round_to_scales
from tools.bootstrap import ROOT

TOY = (-0.43, -0.07, 0.02, 0.19, 0.31, -0.25, 0.13, 0.4375)


def error_of(weights, clip):
    """The mean squared error in float64 from what a reader has: codes and the fp16 scale, rebuilt from its bits."""
    scale = np.array([clip.bits], np.uint16).view(np.float16).astype(np.float64)[0]
    return np.mean((np.array(clip.codes, np.float64) * scale - np.array(weights, np.float64)) ** 2)


def test_the_toy_group_is_what_one_finds_by_hand():
    """0.4375 / 7 = 0.0625 exactly; the file's bits of 0.0625 are 0x2C00."""
    trace = trace_group(TOY)
    last = trace.clips[-1]
    assert (last.clip, last.scale, last.bits) == (1.0, 0.0625, 0x2C00)
    assert last.codes == (-7, -1, 0, 3, 5, -4, 2, 7)
    assert last.worst == 2  # 0.02 is stored as 0; 0.02 is more than 7 * 0.0625 - 0.43 = 0.0075
    by_hand = [0.0075, 0.0075, 0.02, 0.0025, 0.0025, 0.0, 0.005, 0.0]
    assert last.mse == pytest.approx(sum(error**2 for error in by_hand) / 8, rel=1e-5)
    assert last.relative_rms == pytest.approx(math.sqrt(sum(e**2 for e in by_hand) / sum(w**2 for w in TOY)), rel=1e-5)


def test_half_the_clip_cuts_what_is_beyond_its_levels():
    """Scale 0.03125: 7 levels up end at 0.21875, 8 down at -0.25."""
    half = trace_group(TOY).clips[50]
    assert half.scale == 0.03125
    assert half.codes == (-8, -2, 1, 6, 7, -8, 4, 7)
    assert half.worst == 7
    assert half.mse == pytest.approx(np.mean((np.array(half.codes) * 0.03125 - np.array(TOY)) ** 2))


def test_there_is_a_clip_for_each_percent_and_clip_0_keeps_nothing():
    trace = trace_group(TOY)
    assert [clip.clip for clip in trace.clips] == [at / 100 for at in range(CLIPS)]
    assert (trace.clips[0].scale, set(trace.clips[0].codes), trace.clips[0].relative_rms) == (0.0, {0}, 1.0)


@given(st.lists(st.floats(-1000, 1000, width=32), min_size=1, max_size=40), st.sampled_from(["absmax7", "absmax8"]))
def test_errors_are_those_of_a_reader_in_float64(weights, rule):
    trace = trace_group(weights, rule)
    power = np.mean(np.square(np.array(weights, np.float64)))
    for at in range(0, CLIPS, 9):
        clip = trace.clips[at]
        mse = error_of(weights, clip)
        assert clip.mse == pytest.approx(mse, rel=1e-9, abs=1e-300)
        assert clip.relative_rms == pytest.approx(math.sqrt(mse / power) if power else 0.0)
        assert min(clip.codes) >= -8
        assert max(clip.codes) <= 7


@given(st.lists(st.floats(-4, 4, width=32), min_size=8, max_size=8), st.integers(0, CLIPS - 1))
def test_no_other_codes_are_nearer_under_the_same_scale(weights, at):
    clip = trace_group(weights).clips[at]
    levels = np.arange(-8, 8) * clip.scale
    nearest = [np.abs(levels - np.float32(weight)).min() for weight in weights]
    found = np.abs(np.array(clip.codes) * clip.scale - np.array(weights, np.float32))
    assert found == pytest.approx(nearest, rel=1e-6, abs=1e-9)


def test_clip_1_is_what_quantize_rows_writes():
    group = running_group()
    for rule in ("absmax7", "absmax8"):
        codes, scale = quantize_groups(group, rule)
        last = trace_group(group, rule).clips[-1]
        assert (list(last.codes), last.scale) == (codes.tolist(), float(scale))


def test_the_shipped_scale_is_one_of_the_clips():
    """The search tries clips 1, 0.94 and 0.88 of both rules, so the file's codes can be dragged to."""
    group = running_group()
    codes, scale = quantize_groups(group)
    clips = [trace_group(group, rule).clips[at] for rule in ("absmax7", "absmax8") for at in (88, 94, 100)]
    assert (tuple(codes.tolist()), float(scale)) in [(clip.codes, clip.scale) for clip in clips]


def test_absmax8_makes_the_largest_weight_code_minus_8_whatever_its_sign():
    for sign in (1, -1):
        trace = trace_group([sign * weight for weight in TOY], "absmax8")
        last = trace.clips[-1]
        assert trace.extreme == sign * 0.4375
        assert (last.codes[7], last.scale) == (-8, -sign * 0.0546875)


def normal_errors(clips, lowest=-8, rule="absmax7", rows=30_000):
    """Relative rms error over many groups of normal weights, rounded as a trace rounds one, clip by clip."""
    groups = torch.randn(rows, 128, generator=torch.Generator().manual_seed(1))
    full = plain_scale(groups) if rule == "absmax7" else groups.gather(1, groups.abs().argmax(1)[:, None])[:, 0] / -8
    power = groups.double().square().sum()
    found = {}
    for clip in clips:
        codes, scales = round_to_scales(groups, full * clip)
        stored = codes.clamp(lowest) * scales.unsqueeze(1).float()
        found[clip] = float(((stored - groups).double().square().sum() / power).sqrt())
    return found


@pytest.mark.parametrize(
    ("lowest", "clip", "error"),
    [(-7, 0.87, "10.8 %"), (-8, 0.83, "10.4 %")],
    ids=["codes from -7", "codes from -8"],
)
def test_normal_weights_lose_least_at_the_clip_that_the_documents_quote(lowest, clip, error):
    """The engine's codes reach to -8: the negative weights have a level more, so the clip may go further."""
    errors = normal_errors([at / 100 for at in range(78, 92)], lowest)
    assert min(errors, key=errors.get) == clip
    assert f"{100 * errors[clip]:.1f} %" == error
    document = (ROOT / "docs" / "int4_scales.md").read_text()
    assert re.search(rf"\b{clip} × max\|w\|[^.]*\b{re.escape(error)}", document)


def test_normal_weights_lose_11_7_percent_unclipped_and_10_3_with_the_largest_at_code_minus_8():
    assert normal_errors([1.0])[1.0] == normal_errors([1.0], lowest=-7)[1.0] == pytest.approx(0.117, abs=5e-4)
    assert normal_errors([1.0], rule="absmax8")[1.0] == pytest.approx(0.103, abs=5e-4)


def test_one_normal_group_s_curve_has_its_least_error_below_clip_1():
    trace = trace_group(torch.randn(128, generator=torch.Generator().manual_seed(3)))
    assert trace.clips[trace.best].relative_rms == min(clip.relative_rms for clip in trace.clips)
    assert 0.6 < trace.clips[trace.best].clip < 1
    assert 0.09 < trace.clips[-1].relative_rms < 0.15


def test_zeros_have_scale_0_code_0_and_no_error_at_any_clip():
    trace = trace_group([0.0] * 128)
    assert {(clip.scale, clip.bits, clip.codes, clip.mse, clip.relative_rms) for clip in trace.clips} == {
        (0.0, 0, (0,) * 128, 0.0, 0.0)
    }
    assert trace.best == CLIPS - 1


def test_a_scale_that_fp16_rounds_to_0_loses_every_weight():
    last = trace_group([1e-7, -1e-7] * 64).clips[-1]
    assert (last.scale, last.bits, set(last.codes), last.relative_rms) == (0.0, 0, {0}, 1.0)


def test_a_scale_that_fp16_rounds_up_makes_the_largest_code_5():
    """3e-7 / 7 = 4.3e-8 becomes fp16's smallest number, 2^-24 = 5.96e-8; 3e-7 / 5.96e-8 = 5.03."""
    last = trace_group([3e-7, -1e-7] * 64).clips[-1]
    assert (last.scale, last.bits, last.codes[:2]) == (2**-24, 1, (5, -2))


def test_a_scale_that_fp16_cannot_hold_is_refused_with_the_engine_s_words_and_one_step_down_fits():
    trace = trace_group([4.6e5, -1e5] * 64)
    refused, held = trace.clips[-1], trace.clips[-2]
    assert refused.refusal == "largest weight 460000: its scale is over 65504, the largest fp16 number"
    assert (refused.bits, refused.codes, refused.relative_rms) == (0x7C00, (), math.inf)
    assert (held.refusal, held.codes[:2]) == ("", (7, -2))
    assert trace.best < CLIPS - 1


@pytest.mark.parametrize("rule", ["search", "", "absmax"])
def test_a_rule_that_is_no_plain_scale_is_refused(rule):
    with pytest.raises(NanoqwenError, match=f"^rule '{rule}': expected absmax7 or absmax8$"):
        trace_group(TOY, rule)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([], r"weights of shape \(0,\): expected one group, a list of numbers"),
        ([[0.5] * 128], r"weights of shape \(1, 128\): expected one group, a list of numbers"),
        ("0.5", r"weights: expected a list of numbers, found str"),
        ([0.5, "x"], r"weights: expected a list of numbers, found list"),
        (None, r"weights: expected a list of numbers, found NoneType"),
        ([0.5, math.nan], r"weight 1 is nan: expected finite float32 numbers"),
        ([1e39, 0.5], r"weight 0 is inf: expected finite float32 numbers"),
    ],
)
def test_what_is_no_group_is_refused_in_one_line(weights, message):
    with pytest.raises(NanoqwenError, match=message) as caught:
        trace_group(weights)
    assert "\n" not in str(caught.value)


def test_a_trace_is_plain_numbers_and_frozen():
    trace = trace_group(running_group())
    clip = trace.clips[40]
    assert {type(value) for value in (*trace.weights, trace.extreme, clip.scale, clip.mse)} == {float}
    assert {type(value) for value in (*clip.codes, clip.bits, clip.worst)} == {int}
    with pytest.raises(dataclasses.FrozenInstanceError):
        clip.scale = 1.0


def test_the_running_group_is_row_5_of_layer_0_s_gate_proj():
    group = running_group()
    assert group.shape == (128,)
    assert group.dtype == torch.float32
    assert torch.equal(group, group.bfloat16().float())
