"""The roofline: its presets hold the surprises that they ask about; state, text and picture are the engine's."""

import json
from dataclasses import replace

import pytest
import traitlets

from lab_engine.errors import RecordingError
from lab_engine.gemv import GPUS, gemv_seconds, recorded_gpu, ridge_batch
from lab_engine.recordings import load_recording
from tests.lab_engine.gemv_recording import gemv_recording
from tests.widgets.gemv_data import DATA_FILE, javascript_data
from widgets.figures import png_size
from widgets.gemv import Roofline
from widgets.gemv_text import limit_words
from widgets.gemv_view import STAGES

PRESETS = ("o alone", "INT8 activations", "unpack budget: I2F", "batch", "all of a token")


def made_up(**state):
    return Roofline(gemv_recording(), **state)


def seconds(**state):
    return made_up(**state).scene.now.seconds


def test_javascript_tests_read_the_data_of_today():
    """tests/widgets/js/gemv.json is written by `python -m tests.widgets.gemv_data`."""
    assert json.loads(DATA_FILE.read_text()) == json.loads(json.dumps(javascript_data()))


def test_without_arguments_o_is_shown_with_its_edge_and_the_project_s_recording():
    playground, recording = Roofline(), load_recording("gemv")
    assert playground.presets == PRESETS
    assert playground.sentence.startswith("o on H200 · INT4 g128 × fp16, batch 1 · 0.63 instr. · limit edge: ")
    assert playground.code == 'Roofline(preset="o alone")'
    assert [rung.name for rung in playground.scene.rungs] == list(recording.data["rungs"])
    playground.rung = "mma"
    assert playground.scene.recorded(playground.scene.chosen) == recording.data["rungs"]["mma"]["us"]["o"]["us"] * 1e-6
    assert Roofline(recording, rung="mma").sentence == playground.sentence


def test_no_recorded_kernel_is_faster_than_the_model_which_is_a_floor():
    """Beyond the spread of the replays: what the roofline calls a limit holds for every kernel and product."""
    scene, rungs = Roofline().scene, load_recording("gemv").data["rungs"]
    for stage in ("qkv", "o", "gate_up", "down", "lm_head"):
        here = replace(scene, stage=stage, edge=0.0)
        for rung in here.rungs:
            spread = rungs[rung.name]["us"][stage]["us_spread"] * 1e-6
            assert here.recorded(rung) + spread > here.time(rung.slots).seconds, (stage, rung.name)


def test_o_with_its_edge():
    assert made_up().sentence == (
        "o on H200 · INT4 g128 × fp16, batch 1 · 0.63 instr. · limit edge: 3.83 µs = 1.43 + 2.40 edge · "
        "37 % of 4.65 TB/s"
    )


def test_the_model_is_the_engine_s_with_x_and_y_on_top():
    for stage in ("qkv", "o", "gate_up", "down", "lm_head"):
        [(_, n, k)] = STAGES[stage]
        assert seconds(stage=stage) == pytest.approx(
            gemv_seconds(n, k, recorded_gpu(gemv_recording()), 0.625, 2.4e-6), rel=4e-3
        )


def test_o_alone_gains_nothing_from_fewer_instructions_and_63_percent_without_its_edge():
    scene = made_up(preset="o alone").scene
    assert scene.time(0.25).seconds == scene.time(1.6).seconds
    assert 1 - seconds(preset="o alone", edge=0.0) / scene.now.seconds == pytest.approx(0.63, abs=0.005)


def test_int8_activations_save_0_05_percent_of_the_bytes():
    fp16, int8 = (
        made_up(preset="INT8 activations", activation=name).scene.now.bytes.total for name in ("fp16", "int8")
    )
    assert fp16 - int8 == 18_944
    assert round(100 * (fp16 - int8) / fp16, 3) == 0.054


def test_i2f_is_over_the_budget_of_an_h200_and_free_on_an_rtx_4090():
    limits = {gpu: limit_words(made_up(preset="unpack budget: I2F", gpu=gpu).scene.now) for gpu in GPUS}
    assert limits == {"H200": "unpacking", "H100": "unpacking", "A100": "unpacking", "RTX 4090": "reading"}
    scene = made_up(preset="unpack budget: I2F").scene
    assert scene.time(1.85).seconds == scene.time(0.25).seconds  # what is free
    assert scene.time(1.87).seconds > scene.time(0.25).seconds


def test_columns_are_nearly_free_up_to_the_ridge_and_fp16_weights_have_four_times_as_many():
    preset, scene = "batch", made_up(preset="batch").scene
    ridge = next(batch for batch in range(1, 257) if limit_words(replace(scene, batch=batch).now) == "multiplying")
    at_least = ridge_batch(scene.chip)
    assert at_least < ridge < at_least + 6  # x and y move as well
    assert seconds(preset=preset, batch=ridge) < 1.08 * seconds(preset=preset)
    assert seconds(preset=preset, batch=256) > 3 * seconds(preset=preset)
    assert limit_words(made_up(preset=preset, batch=200, bits=16).scene.now) == "reading"


def test_edges_are_a_quarter_of_a_token_of_113_products():
    assert sum(count for count, _, _ in STAGES["token"]) == 113
    time = made_up(preset="all of a token").scene.now
    assert time.seconds == pytest.approx(1.057e-3, rel=2e-3)
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
    assert load_recording("gemv").badge_source in Roofline()._spec["badge"]["source"]


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
        ({"rung": "last"}, 'rung is "last", expected "" or one of: naive, coalesced, '),
        ({"gpu": "V100"}, "V100"),
    ],
)
def test_a_setting_that_is_not_there_is_refused(state, words):
    with pytest.raises(traitlets.TraitError, match=words):
        Roofline(**state)


def test_the_text_shows_roof_point_times_and_bytes():
    text = made_up().text_picture()
    assert text.count("O") >= 1
    assert "reading          1.43 µs  #############" in text
    assert "weights 6.42 MB (96.66 %)" in text
    assert " 7 mma" in text
    assert "mma" not in made_up(batch=2).text_picture()


def test_the_text_of_a_chosen_kernel_ends_with_its_counters_if_there_are_any():
    recording = gemv_recording()
    recording.data["rungs"]["lop3"]["ncu"] = {"dram_percent": 34.0, "issue_percent": 43.2, "stall": "long_scoreboard"}
    counters = "memory busy 34 %, clocks with an instruction 43 %, a warp waits most for a load from memory"
    assert Roofline(recording, rung="lop3").text_picture().endswith(f"\n\nlop3 on gate_up: {counters}")
    assert Roofline(recording, rung="rows").text_picture().endswith("\n\nrows on gate_up: not profiled")
    assert "gate_up:" not in Roofline(recording).text_picture()


def test_the_png_has_one_size_for_every_setting():
    sizes = {png_size(made_up(preset=name).png()) for name in PRESETS}
    sizes.add(png_size(made_up(gpu="RTX 4090", batch=256, bits=16, edge=0.0).png()))
    sizes |= {png_size(made_up(stage=stage, rung="naive").png()) for stage in STAGES}
    assert len(sizes) == 1


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
