import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lab_engine.bench.models import QWEN_7B
from lab_engine.decoder import STAGES
from lab_engine.decoder_trace import bytes_per_stage
from lab_engine.running_example import RUNNING_EXAMPLE
from tests.widgets.traces import CONFIG, NEW, PROMPT, made_up_trace
from widgets import Tour
from widgets.bundle import STATIC
from widgets.token_text import text_pieces
from widgets.tour import running_trace
from widgets.tour_data import SEVEN_B_CONTEXT, shares, step_bytes, tour_data
from widgets.words import byte_count, percent, token_label

ROOT = Path(__file__).resolve().parents[2]
LAST = 56 - len(PROMPT)


@pytest.fixture(scope="module")
def trace():
    return made_up_trace()


@pytest.fixture(scope="module")
def data(trace):
    return tour_data(trace)


def test_the_state_sentence_names_pass_token_page_slot_bytes_and_next_token(trace):
    """Token 55 of the running example: id 12 × 4096 + slot 7 × 256 = 50944."""
    tour = Tour(trace, step=LAST)
    assert tour.sentence == f"step {LAST} · token 55 · page 3 → id 12 · slot 7 · bytes 50944–51199 · " + 'next " b"'


def test_the_prompt_is_one_pass_over_all_its_tokens(trace):
    assert Tour(trace).sentence == (
        'prefill · tokens 0–6 · page 0 → id 5 · slots 0–6 · bytes 20480–22271 · next "\\n" + 4 spaces'
    )


def test_a_prompt_over_a_page_boundary_names_the_slots_of_its_last_page():
    long = made_up_trace(40, prompt=tuple(f"t{i}" for i in range(18)))
    assert Tour(long).sentence.startswith("prefill · tokens 0–17 · page 1 → id 9 · slots 0–1 · bytes 36864–37375 · ")


def test_presets_stand_where_their_surprise_is(trace):
    tour = Tour(trace)
    assert tour.presets == ("first token", "token 55", "48 → 49", "close call", "where bytes go")
    steps = {name: Tour(trace, preset=name).step for name in tour.presets}
    closest = min(range(len(trace.steps)), key=lambda at: trace.steps[at].margin)
    assert steps == {
        "first token": 0,
        "token 55": LAST,
        "48 → 49": LAST - 7,
        "close call": closest,
        "where bytes go": LAST,
    }
    assert trace.steps[steps["48 → 49"]].pages_taken == (12,)


def test_a_text_within_one_page_has_no_page_preset():
    assert Tour(made_up_trace(14)).presets == ("first token", "token 13", "close call", "where bytes go")


def test_the_sentences_of_the_presets_hold_the_computed_numbers(trace, data):
    asks = {preset["name"]: preset["ask"] for preset in Tour(trace)._spec["presets"]}
    read = sum(one.bytes_read for one in trace.steps[-1].stages)
    assert f"{byte_count(read)} to write 4.1 kB" in asks["token 55"]
    assert f"{read / 4096:,.0f} to 1" in asks["token 55"]
    assert "64,000 to 1" in asks["token 55"]
    assert "16 planes × 4 KiB = 64 KiB" in asks["48 → 49"]
    assert "80 % of the bytes, lm_head 8 %" in asks["where bytes go"]
    assert f"{min(step.margin for step in trace.steps):.3f} logits" in asks["close call"]


def test_bytes_of_a_pass_add_up_to_the_engine_s_count(trace, data):
    for step, seen in zip(data["steps"], trace.steps, strict=True):
        assert step_bytes(step) == {s: sum(o.bytes_read for o in seen.stages if o.stage == s) for s in STAGES}


def test_the_7b_s_shares_are_those_of_the_course():
    """80.0 % MLP, 11.5 % q, k, v, o, 7.6 % lm_head, 0.8 % K and V at context 512."""
    seven = shares(bytes_per_stage(QWEN_7B, SEVEN_B_CONTEXT))
    assert round(100 * (seven["gate_up"] + seven["down"]), 1) == 80.0
    assert round(100 * (seven["qkv"] + seven["o"]), 1) == 11.5
    assert round(100 * seven["lm_head"], 1) == 7.6
    assert round(100 * seven["attention"], 1) == 0.8


def test_attention_is_the_mean_over_layers_and_still_sums_to_one(trace, data):
    for step, seen in zip(data["steps"], trace.steps, strict=True):
        assert step["attention"][0] == pytest.approx(
            sum(row[0] for row in seen.attention) / CONFIG.num_layers, abs=1e-4
        )
        assert sum(step["attention"]) == pytest.approx(1, abs=0.01)
        assert step["attention"][step["strongest"]] == max(step["attention"])


def test_tokens_are_the_prompt_the_text_and_the_last_new_token(data):
    assert [token["text"] for token in data["tokens"]] == [*PROMPT, *NEW[: 57 - len(PROMPT)]]


def test_data_is_json_of_a_small_size(data):
    assert len(json.dumps(data)) < 100_000


def test_javascript_knows_the_stages_in_the_engine_s_order():
    line = re.search(r"const stageNames = (\[.*\]);", (STATIC / "tour.js").read_text())
    assert line is not None
    assert tuple(json.loads(line[1])) == STAGES


def test_text_picture_shows_text_pages_bytes_and_next_token(trace):
    picture = Tour(trace, step=LAST - 7).text_picture().splitlines()
    assert picture[0] == "text   def fibonacci(n):"
    assert "       3 → id 12  [^...............]  taken now" in picture
    assert "pages  0 → id  5  [################]" in picture
    assert any(row.startswith("       gate_up") for row in picture)
    assert all(len(row) <= 80 for row in picture)
    assert max(map(len, picture)) > 30


def test_text_picture_follows_the_step(trace):
    pictures = {Tour(trace, step=step).text_picture() for step in range(0, LAST, 5)}
    assert len(pictures) == len(range(0, LAST, 5))


def test_png_is_the_same_twice_and_another_at_another_step(trace):
    assert Tour(trace, step=3).png() == Tour(trace, step=3).png()
    assert Tour(trace, step=3).png() != Tour(trace, step=4).png()
    assert len(Tour(trace, step=LAST).png()) < 80_000


ALL_TEXTS = "from widgets import Tour; print([repr(Tour(step=at)) for at in range(Tour().step_count())])"


def test_the_shipped_model_s_texts_are_the_same_at_another_cpu_capability():
    """Matrix products differ in their last bits between capability levels; the text pictures must not."""
    lowest = os.environ | {"ATEN_CPU_CAPABILITY": "default", "PYTHONPATH": str(ROOT)}
    other = subprocess.run([sys.executable, "-c", ALL_TEXTS], env=lowest, capture_output=True, text=True, check=True)
    here = [repr(Tour(step=at)) for at in range(Tour().step_count())]
    assert other.stdout.strip() == str(here)


def test_without_arguments_the_running_example_is_shown_and_traced_once():
    tour = Tour()
    assert tour.presets[1:3] == ("token 55", "48 → 49")
    assert Tour(preset="token 55").sentence.split(" · ")[1:5] == [
        "token 55", "page 3 → id 12", "slot 7", "bytes 50944–51199",
    ]  # fmt: skip
    assert running_trace() is running_trace()
    text = "".join(token["text"] for token in tour._trace["tokens"])
    assert text.startswith(RUNNING_EXAMPLE.prompt)


def test_the_code_of_a_tour_recreates_it(trace):
    assert Tour(trace, step=40).code == "Tour(step=40)"
    assert Tour(trace, preset="close call").code == 'Tour(preset="close call")'


@pytest.mark.parametrize(
    ("text", "label"),
    [
        (" return", '" return"'),
        ("\n        ", '"\\n" + 8 spaces'),
        ("    x", '4 spaces + "x"'),
        ("  ", "2 spaces"),
        ('"""', '"\\"\\"\\""'),
        ("é", '"é"'),
        ("", '""'),
    ],
)
def test_a_token_s_label_can_be_read_aloud(text, label):
    assert token_label(text) == label


@pytest.mark.parametrize(
    ("share", "words"), [(0, "0 %"), (0.0001, "< 1 %"), (0.005, "1 %"), (0.125, "13 %"), (0.999, "100 %")]
)
def test_percents_round_half_up_and_say_when_something_is_very_little(share, words):
    assert percent(share) == words


def test_a_token_that_fits_into_a_row_stays_whole():
    assert text_pieces(["ab", "c\n  d", "efg", "hijklmn"], 4) == [
        (0, 0, 0, "ab"),
        (1, 0, 2, "c↵"),
        (1, 1, 0, "  d"),
        (2, 2, 0, "efg"),
        (3, 2, 3, "h"),
        (3, 3, 0, "ijkl"),
        (3, 4, 0, "mn"),
    ]


def test_a_newline_after_a_full_row_leaves_no_empty_row():
    assert text_pieces(["abcd", "\n", "e"], 4) == [(0, 0, 0, "abcd"), (1, 0, 4, "↵"), (2, 1, 0, "e")]
