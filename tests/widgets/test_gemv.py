"""The roofline: its presets hold the surprises that they ask about; state, text and picture are the engine's."""

import json
from dataclasses import replace

import pytest
import traitlets

from lab_engine.errors import RecordingError
from lab_engine.gemv import GPUS, H200, gemv_seconds, ridge_batch
from lab_engine.recordings import load_recording
from tests.lab_engine.gemv_recording import gemv_recording
from tests.widgets.gemv_data import DATA_FILE, javascript_data
from widgets.figures import png_size
from widgets.gemv import Roofline
from widgets.gemv_text import limit_words
from widgets.gemv_view import STAGES

PRESETS = ("o alone", "INT8 activations", "unpack budget: I2F", "batch", "all of a token")


def seconds(**state):
    return Roofline(**state).scene.now.seconds


def test_javascript_tests_read_the_data_of_today():
    """tests/widgets/js/gemv.json is written by `python -m tests.widgets.gemv_data`."""
    assert json.loads(DATA_FILE.read_text()) == json.loads(json.dumps(javascript_data()))


def test_without_arguments_o_is_shown_with_its_edge():
    playground = Roofline()
    assert playground.presets == PRESETS
    assert playground.sentence == (
        "o on H200 · INT4 g128 × fp16, batch 1 · 0.63 instr. · limit edge: 3.82 µs = 1.42 + 2.40 edge · "
        "37 % of 4.68 TB/s"
    )


def test_the_model_is_the_engine_s_with_x_and_y_on_top():
    for stage in ("qkv", "o", "gate_up", "down", "lm_head"):
        [(_, n, k)] = STAGES[stage]
        assert seconds(stage=stage) == pytest.approx(gemv_seconds(n, k, H200, 0.625, 2.4e-6), rel=4e-3)


def test_o_alone_gains_nothing_from_fewer_instructions_and_63_percent_without_its_edge():
    scene = Roofline(preset="o alone").scene
    assert scene.time(0.25).seconds == scene.time(1.6).seconds
    assert 1 - seconds(preset="o alone", edge=0.0) / scene.now.seconds == pytest.approx(0.63, abs=0.005)


def test_int8_activations_save_0_05_percent_of_the_bytes():
    fp16, int8 = (
        Roofline(preset="INT8 activations", activation=name).scene.now.bytes.total for name in ("fp16", "int8")
    )
    assert fp16 - int8 == 18_944
    assert round(100 * (fp16 - int8) / fp16, 3) == 0.054


def test_i2f_is_over_the_budget_of_an_h200_and_free_on_an_rtx_4090():
    limits = {gpu: limit_words(Roofline(preset="unpack budget: I2F", gpu=gpu).scene.now) for gpu in GPUS}
    assert limits == {"H200": "unpacking", "H100": "unpacking", "A100": "unpacking", "RTX 4090": "reading"}
    scene = Roofline(preset="unpack budget: I2F").scene
    assert scene.time(1.69).seconds == scene.time(0.25).seconds  # what is free
    assert scene.time(1.71).seconds > scene.time(0.25).seconds


def test_columns_are_nearly_free_up_to_the_ridge_and_fp16_weights_have_four_times_as_many():
    preset, scene = "batch", Roofline(preset="batch").scene
    ridge = next(batch for batch in range(1, 257) if limit_words(replace(scene, batch=batch).now) == "multiplying")
    assert ridge_batch(H200) < ridge < ridge_batch(H200) + 6  # x and y move as well
    assert seconds(preset=preset, batch=ridge) < 1.08 * seconds(preset=preset)
    assert seconds(preset=preset, batch=256) > 3 * seconds(preset=preset)
    assert limit_words(Roofline(preset=preset, batch=200, bits=16).scene.now) == "reading"


def test_edges_are_a_quarter_of_a_token_of_113_products():
    assert sum(count for count, _, _ in STAGES["token"]) == 113
    time = Roofline(preset="all of a token").scene.now
    assert time.seconds == pytest.approx(1.05e-3, rel=5e-3)
    assert time.edge / time.seconds == pytest.approx(0.258, abs=0.002)
    assert seconds(preset="all of a token", edge=1.1) < 0.91e-3


def test_every_preset_asks():
    for preset in Roofline()._spec["presets"]:
        assert "?" in preset["ask"]
        assert len(preset["ask"]) < 115


def test_a_recorded_kernel_stands_at_its_time_and_elsewhere_at_the_model_s():
    playground = Roofline(gemv_recording(), stage="gate_up", rung="ring")
    assert playground.sentence == (
        "6 ring: gate_up on H200 · 0.79 integer of 2.5 instr. · recorded 20.1 µs · model 17.5 µs (−13 %) · "
        "75 % of 4.65 TB/s"
    )
    assert playground.code.startswith("Roofline(recording, ")
    playground.gpu = "A100"
    assert playground.sentence.startswith("6 ring: gate_up on A100 · 0.79 integer of 2.5 instr. · model 36.")
    playground.bits = 8
    assert playground.sentence.startswith("gate_up on A100 · INT8 g128")


def test_a_token_of_a_kernel_is_28_layers_and_a_head():
    scene = Roofline(gemv_recording(), stage="token", rung="mma").scene
    assert scene.recorded(scene.chosen) == pytest.approx((28 * (5.84 + 5.12 + 19.0 + 11.9) + 68.6) * 1e-6)


def test_the_h200_is_the_recorded_one_and_the_badge_says_so():
    playground = Roofline(gemv_recording())
    assert playground.scene.chip.bandwidth == 4.65e12
    assert "made up" in playground._spec["badge"]["source"]
    assert "made up" not in Roofline()._spec["badge"]["source"]


def test_a_rung_whose_machine_code_was_not_counted_is_left_out():
    recording = gemv_recording()
    recording.data["rungs"]["ring"]["sass"] = None
    assert [rung.name for rung in Roofline(recording).scene.rungs][:6] == [
        "naive", "coalesced", "lop3", "prmt", "rows", "mma",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"batch": 0}, "batch is 0, expected 1 to 256"),
        ({"ops": 9.0}, "ops is 9.0, expected 0.25 to 8.0"),
        ({"rung": "mma"}, 'rung is "mma", expected "": without a recording there are none'),
        ({"gpu": "V100"}, "V100"),
    ],
)
def test_a_setting_that_is_not_there_is_refused(state, words):
    with pytest.raises(traitlets.TraitError, match=words):
        Roofline(**state)


def test_the_text_shows_roof_point_times_and_bytes():
    text = Roofline().text_picture()
    assert text.count("O") >= 1
    assert "reading          1.42 µs  #############" in text
    assert "weights 6.42 MB (96.66 %)" in text
    assert " 7 mma" in Roofline(gemv_recording()).text_picture()
    assert "mma" not in Roofline(gemv_recording(), batch=2).text_picture()


def test_the_png_has_one_size_for_every_setting_and_a_ladder_below_it():
    bare = {png_size(Roofline(preset=name).png()) for name in PRESETS}
    bare.add(png_size(Roofline(gpu="RTX 4090", batch=256, bits=16, edge=0.0).png()))
    assert len(bare) == 1
    recording = gemv_recording()
    ladder = {png_size(Roofline(recording, stage=stage, rung="naive").png()) for stage in STAGES}
    assert len(ladder) == 1
    assert ladder.pop()[1] > bare.pop()[1]


@pytest.mark.parametrize(
    ("recording", "message"),
    [
        (load_recording("gemv_token"), "recording gemv_token: no 'rungs' in it, expected load_rec"),
        ("gemv", r"recording: found str, expected load_recording\('gemv'\)"),
    ],
)
def test_another_recording_is_refused_in_a_line(recording, message):
    with pytest.raises(RecordingError, match=message):
        Roofline(recording)
