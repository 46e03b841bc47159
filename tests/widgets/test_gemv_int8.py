"""FP16 against INT8: presets, sentence, refusals, text and PNG, with fixed numbers from a made-up recording."""

import json
import re

import pytest
import traitlets

from lab_engine.errors import RecordingError
from lab_engine.recordings import load_recording
from tests.lab_engine.int8_recording import EDGE, int8_recording
from tests.widgets.int8_data import DATA_FILE, javascript_data
from widgets.figures import png_size
from widgets.gemv_int8 import Int8Times

PRESETS = ("every launch eager", "in a CUDA graph", "where they are even", "a small product", "what it costs in error")


@pytest.fixture
def playground():
    return Int8Times(int8_recording())


def test_javascript_tests_read_the_data_of_today():
    """tests/widgets/js/gemv_int8.json is written by `python -m tests.widgets.int8_data`."""
    found, expected = json.loads(DATA_FILE.read_text()), json.loads(json.dumps(javascript_data()))
    errors, own = ([stage.pop("errors") for stage in data["trace"]["stages"].values()] for data in (found, expected))
    for one, other in zip(errors, own, strict=True):
        assert one == pytest.approx(other, rel=1e-3)  # sums of floats may round otherwise on another machine
    assert found == expected


def test_the_first_preset_is_a_token_with_eager_launches(playground):
    assert playground.presets == PRESETS
    assert playground.sentence == (
        "token · launch 5.25 µs · FP16 1813 µs, separate 2328, fused 1779, limbs 1815 · fastest: fused · "
        "separate wins below 0.693 µs"
    )
    assert playground.code == 'Int8Times(recording, preset="every launch eager")'


def test_without_arguments_the_project_s_recording_is_shown_and_its_presets_hold_their_surprises():
    playground, rungs = Int8Times(), load_recording("gemv").data["rungs"]
    assert playground.code == 'Int8Times(preset="every launch eager")'
    node = playground.times.launches["graph node"]

    def order(preset):
        playground.preset = preset
        stage = playground.times.stages[playground.stage]
        return sorted(stage.work, key=lambda name: stage.work[name].time(playground.launch))

    assert order("every launch eager") == ["dp4a_fused", "dp4a_limbs", "fp16", "dp4a_separate"]
    assert order("in a CUDA graph") == ["dp4a_fused", "dp4a_separate", "dp4a_limbs", "fp16"]
    order("where they are even")
    assert node < playground.launch < 5.25
    assert "separate 20.2, " in playground.sentence
    assert " even " in playground.text_picture()
    playground.launch = node
    assert "fastest: separate" in playground.sentence
    assert playground.times.stages["down"].work["fp16"].time(node) == pytest.approx(rungs["rows"]["us"]["down"]["us"])
    assert order("a small product") == ["dp4a_fused", "dp4a_limbs", "fp16", "dp4a_separate"]
    assert order("what it costs in error")[:2] == ["dp4a_fused", "dp4a_limbs"]


def test_a_product_by_hand(playground):
    playground.stage, playground.launch = "down", EDGE
    # fp16 1.1 + 8.4 + 3.0; separate 2.2 + 0.9 + 8.4 + 1.6; even where one launch costs 3.0 - 0.9 - 1.6
    assert playground.sentence == (
        "down · launch 1.10 µs · FP16 12.5 µs, separate 13.1, fused 13.5, limbs 13.7 · fastest: FP16 · "
        "separate wins below 0.500 µs"
    )


def test_the_even_preset_stands_on_the_crossover_and_a_side_of_it_has_a_winner(playground):
    playground.preset = "where they are even"
    stage = playground.times.stages[playground.stage]
    assert playground.launch == round(stage.crossover, 2)
    fp16, separate = stage.work["fp16"], stage.work["dp4a_separate"]
    assert separate.time(playground.launch - 0.1) < fp16.time(playground.launch - 0.1)
    assert separate.time(playground.launch + 0.1) > fp16.time(playground.launch + 0.1)


def test_a_crossover_off_the_axis_leaves_the_preset_at_a_graph_node():
    recording = int8_recording()
    recording.data["rungs"]["dp4a_separate"]["us"]["down"]["us"] += 9.0
    playground = Int8Times(recording, preset="where they are even")
    assert playground.launch == EDGE
    assert playground.sentence.endswith("separate never wins")


def test_two_limbs_err_less_than_fp16_and_one_limb_more(playground):
    for stage in playground.times.stages.values():
        errors = stage.errors
        assert errors["dp4a_limbs"] < errors["fp16"] / 5 < errors["dp4a_fused"] / 50
        assert errors["dp4a_fused"] == errors["dp4a_separate"]


def test_every_preset_asks(playground):
    for preset in playground._spec["presets"]:
        assert preset["ask"].endswith("?")
        assert len(preset["ask"]) < 115


def test_the_badge_says_what_is_recorded_computed_and_quoted(playground):
    badge = playground._spec["badge"]
    assert badge["kind"] == "recorded"
    for word in ("made up", "computed", "quoted", "5.25 µs"):
        assert word in badge["source"]


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"stage": "head"}, 'stage is "head", expected one of: qkv, o, gate_up, down, lm_head, token'),
        ({"launch": 6.5}, "launch is 6.5, expected 0 to 6 µs"),
        ({"launch": -0.1}, "launch is -0.1"),
    ],
)
def test_a_setting_that_is_not_there_is_refused(state, words):
    with pytest.raises(traitlets.TraitError, match=re.escape(words)):
        Int8Times(int8_recording(), **state)


def test_a_recording_without_a_part_is_refused_by_name():
    recording = int8_recording()
    del recording.data["parts"]["o"]["dp4a_limbs"]["unpack"]
    with pytest.raises(RecordingError, match="no 'unpack' in it"):
        Int8Times(recording)


def test_the_text_shows_bars_times_and_errors(playground):
    playground.stage, playground.launch = "down", EDGE
    text = playground.text_picture()
    assert re.search(r"^FP16 +\* +12\.5 +0\.00030  L+r+u+$", text, re.MULTILINE)
    assert re.search(r"^separate +13\.1 +\+4\.8 % +0\.0054  L+q+L+r+u+$", text, re.MULTILINE)
    assert "separate wins below 0.500 µs" in text


def test_the_png_has_one_size_for_every_setting():
    sizes = {png_size(Int8Times(int8_recording(), preset=name).png()) for name in PRESETS}
    assert len(sizes) == 1
