import json
import math

import numpy as np
import pytest
import torch
import traitlets

from lab_engine.errors import NanoqwenError
from lab_engine.group_trace import running_group, trace_group
from lab_engine.int4 import quantize_groups
from tests.widgets.group_data import DATA_FILE, javascript_data, own_weights
from widgets import OneGroup
from widgets.int4_group import group_data
from widgets.int4_group_text import clip_at, rounded
from widgets.words import percent

PRESETS = ("running group", "signed extreme", "outlier", "all zero", "tiny", "huge")


def toy_data(step=100):
    weights = (-0.43, -0.07, 0.02, 0.19, 0.31, -0.25, 0.13, 0.4375)
    data = group_data(trace_group(weights))
    return data, clip_at(data, step)


def ask(preset):
    return next(one["ask"] for one in OneGroup()._spec["presets"] if one["name"] == preset)


def test_without_arguments_the_running_group_is_shown_at_clip_1_with_its_largest_weight():
    group = OneGroup()
    assert group.presets == PRESETS
    assert (group.preset, group.step) == ("running group", 100)
    weights = running_group()
    assert group.weight == int(weights.abs().argmax())
    assert group._trace["groups"]["running group"]["weights"] == weights.tolist()


def test_the_sentence_names_clip_scale_error_worst_and_chosen_weight():
    group = OneGroup(preset="running group", step=87, weight=17)
    codes = torch.tensor(clip_at(group.group, 87).codes)
    weights = running_group()
    scale = np.float16(np.float32(0.87) * np.float32(0.28125) / np.float32(7))
    errors = (codes.double() * float(scale) - weights).abs()
    worst = int(errors.argmax())
    relative = float((errors.square().sum() / weights.double().square().sum()).sqrt())
    assert group.sentence == (
        f"clip 0.87 × max · scale {float(scale):.4f} (0x{scale.view(np.uint16):04X}) · error {100 * relative:.1f} % · "
        f"worst weight {worst}: {weights[worst]:.3f} → {float(codes[worst] * float(scale)):.3f} · weight 17: code 0"
    )


def test_weights_codes_and_words_of_the_data_are_the_engine_s():
    data, clip = toy_data()
    assert (clip.bits, clip.scale, clip.codes) == ("2C00", 0.0625, (-7, -1, 0, 3, 5, -4, 2, 7))
    one = rounded(data, clip, 2)
    assert (one.code, one.level, one.cut) == (0, 0.0, False)
    assert one.error == pytest.approx(-0.02)


def test_a_weight_beyond_the_levels_is_off_by_more_than_half_a_step():
    data, clip = toy_data(step=50)
    assert [rounded(data, clip, index).cut for index in range(8)] == [
        True,
        False,
        False,
        False,
        True,
        False,
        False,
        True,
    ]


def test_float32_weights_survive_the_data_and_scales_their_bits():
    trace = trace_group(own_weights())
    data = json.loads(json.dumps(group_data(trace)))
    assert np.array_equal(np.float32(data["weights"]), np.float32(trace.weights))
    for row, clip in zip(data["clips"], trace.clips, strict=True):
        assert (int(row[0], 16), row[1]) == (clip.bits, clip.scale)


def test_the_message_stays_small():
    assert len(json.dumps(OneGroup()._trace)) < 100_000


def test_a_step_and_a_weight_keep_the_scene_and_a_new_scene_sets_both():
    group = OneGroup(preset="signed extreme")
    group.step, group.weight = 88, 3
    assert group.preset == "signed extreme"
    assert group.code == 'OneGroup(preset="signed extreme", step=88, weight=3)'
    group.preset = "all zero"
    assert (group.step, group.weight) == (100, 0)
    assert group.code == 'OneGroup(preset="all zero")'


def test_the_code_recreates_the_state():
    group = OneGroup(preset="outlier", step=12, weight=99)
    assert eval(group.code).sentence == group.sentence


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [("weight", 128, "weight is 128, expected 0 to 127"), ("step", 101, "step is 101, expected 0 to 100")],
)
def test_a_state_outside_is_refused_with_the_range(name, value, message):
    with pytest.raises(traitlets.TraitError, match=f"^{message}$"):
        OneGroup(**{name: value})


def test_the_shipped_scale_lies_on_the_signed_extreme_s_line():
    scale = float(quantize_groups(running_group())[1])
    clips = OneGroup()._trace["groups"]["signed extreme"]["clips"]
    found = [at for at, clip in enumerate(clips) if clip[1] == scale]
    assert len(found) == 1
    said = f"The engine's search keeps {found[0] / 100:.2f}, the best of the six scales that it tries."
    assert said in ask("signed extreme")


def test_the_search_keeps_the_best_of_six_scales_though_a_clip_between_them_is_better():
    weights = running_group()
    largest = float(weights[weights.abs().argmax()])
    six = [scale * part for scale in (abs(largest) / 7, largest / -8) for part in (1, 0.94, 0.88)]
    scales = torch.tensor(six).to(torch.float16)
    codes = (weights / scales[:, None].float()).round().clamp(-8, 7)
    errors = (codes * scales[:, None].float() - weights).double().square().sum(dim=1)
    assert scales[errors.argmin()] == quantize_groups(weights)[1]
    trace = trace_group(weights, "absmax8")
    assert trace.clips[trace.best].mse * len(weights) < float(errors.min())


def test_an_outlier_of_8_times_the_largest_other_leaves_most_others_0():
    weights = running_group().double()
    at = int(weights.abs().argmax())
    others = torch.cat([weights[:at], weights[at + 1 :]])
    scale = float((8 * others.abs().max() / 7).to(torch.float16))
    codes = (others / scale).round()
    zeros = int((codes == 0).sum())
    lost = float(((codes * scale - others).square().sum() / others.square().sum()).sqrt())
    assert zeros > 0.85 * 127
    assert f"{zeros} of the other 127 become 0. Their error is {percent(lost)};" in ask("outlier")


def test_all_zero_is_stored_as_eights():
    assert "every word is 0x88888888" in ask("all zero")
    assert set(OneGroup()._trace["groups"]["all zero"]["codes"]) == {"8" * 128}


def test_tiny_has_scale_0_and_says_what_3e_minus_7_would_have():
    group = OneGroup(preset="tiny")
    assert group.sentence.startswith(
        "clip 1.00 × max · scale 0 (0x0000) · error 100.0 % · worst weight 24: 1.00e−7 → 0"
    )
    assert "1.43e−8" in ask("tiny")
    assert "its scale is 5.96e−8 and the largest code 5, not 7" in ask("tiny")


def test_huge_is_refused_in_the_engine_s_words_and_fits_one_step_down():
    group = OneGroup(preset="huge")
    refusal = "refused: largest weight 460000: its scale is over 65504, the largest fp16 number"
    assert group.sentence == "clip 1.00 × max · scale inf (0x7C00) · refused: fp16 ends at 65504 · weight 24: no code"
    assert group.text_picture().splitlines()[0] == refusal
    with pytest.raises(NanoqwenError) as caught:
        quantize_groups(torch.tensor(group.group["weights"]), "absmax7")
    assert f"refused: {caught.value}" == refusal
    group.step = 99
    assert "scale 65056 (0x7BF1)" in group.sentence


@pytest.mark.parametrize(
    "weights", [own_weights(), np.array(own_weights()), torch.tensor(own_weights(), dtype=torch.float64)]
)
def test_a_learner_s_group_is_shown_under_both_scales(weights):
    group = OneGroup(weights)
    assert group.presets == ("own group", "signed extreme")
    assert group.weight == 127
    assert group.code == 'OneGroup(weights, preset="own group")'
    group.preset = "signed extreme"
    assert f"scale {0.004 / 8:.6f} " in group.sentence
    assert group.sentence.endswith("weight 127: code −8")


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([0.5] * 127, "OneGroup: found 127 weights, expected 128"),
        ([0.5] * 127 + [math.inf], "weight 127 is inf: expected finite float32 numbers"),
        ("running group", "weights: expected a list of numbers, found str"),
        ([[0.5] * 128] * 2, r"weights of shape \(2, 128\): expected one group, a list of numbers"),
    ],
)
def test_what_is_no_group_of_128_is_refused_in_one_line(weights, message):
    with pytest.raises(NanoqwenError, match=message) as caught:
        OneGroup(weights)
    assert "\n" not in str(caught.value)


def test_an_own_group_that_is_too_large_asks_from_where_on_it_fits():
    group = OneGroup([1e6] * 128)
    plain, signed = (preset["ask"] for preset in group._spec["presets"])
    assert "refused at clip 1" in plain
    assert "fp16 cannot hold" in signed
    group.step = 45
    assert "refused" not in group.sentence


def test_a_group_that_only_max_over_8_can_hold_is_shown():
    """5e5 / 7 is over 65504, 5e5 / 8 is not."""
    group = OneGroup([5e5, *[1e3] * 127], preset="signed extreme")
    assert group.sentence.startswith("clip 1.00 × max · scale −62496 ")


def test_the_text_picture_counts_the_codes_and_follows_a_weight():
    rows = OneGroup(step=100, weight=24).text_picture().splitlines()
    counts = [int(row.split()[2]) for row in rows[1:17]]
    assert sum(counts) == 128
    assert rows[1].split()[:3] == ["7", "0.281", "1"]
    assert rows[17] == "off by over ½ step: 0 of 128"
    assert rows[19:21] == ["weight 24 = 0.2813 ÷ 0.04019 = 7.00 → code 7", "code × scale = 0.2813, error 9.16e−5"]
    assert rows[-1].startswith("error")
    assert all(len(row) <= 80 for row in rows)


def test_where_the_error_is_least_is_said_only_once_the_line_has_moved():
    for preset in PRESETS:
        group = OneGroup(preset=preset)
        assert "least" not in repr(group)
        at_start = group.png()
        group.step = 99
        assert "least" in repr(group)
        group.step = 100
        assert (group.png(), "least" in repr(group)) == (at_start, False)


def test_the_text_picture_is_drawn_at_every_scene_and_step():
    for preset in PRESETS:
        texts = {OneGroup(preset=preset, step=step, weight=step).text_picture() for step in (0, 1, 33, 99, 100)}
        assert len(texts) == 5
        assert all(len(row) <= 80 for text in texts for row in text.splitlines())


def test_the_png_is_the_same_twice():
    assert OneGroup(step=60).png() == OneGroup(step=60).png()


def test_the_pngs_of_all_scenes_and_steps_differ_and_have_one_size():
    states = [*((preset, 100) for preset in PRESETS), ("huge", 99), ("running group", 0)]
    pictures = [OneGroup(preset=preset, step=step, weight=20).png() for preset, step in states]
    assert len(set(pictures)) == len(states)
    assert len({picture[16:24] for picture in pictures}) == 1  # width and height of a PNG
    assert max(map(len, pictures)) < 80_000


def test_javascript_tests_read_the_data_of_today():
    """tests/widgets/js/group.json is written by `python -m tests.widgets.group_data`."""
    assert json.loads(DATA_FILE.read_text(encoding="utf-8")) == json.loads(json.dumps(javascript_data()))
