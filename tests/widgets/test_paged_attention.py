import json

import pytest
import traitlets

from lab_engine.attention_trace import LENGTHS
from tests.widgets.lens_trace import DATA_FILE, javascript_data, made_up_lens, states
from widgets.figures import png_size
from widgets.paged_attention import TailLens
from widgets.paged_attention_data import flat_text, leak, off_words, shares, token_cell, view_of

PRESETS = ("no mask", "mask to 0", "NaN in V", "not rescaled", "empty split")


@pytest.fixture(scope="module")
def shipped():
    return TailLens()


def lens(**state):
    return TailLens(made_up_lens(), **state)


def ask(widget, preset):
    return next(one["ask"] for one in widget._spec["presets"] if one["name"] == preset)


def test_it_starts_at_the_tail_of_56_tokens_without_a_mask(shipped):
    assert shipped.presets == PRESETS
    assert (shipped.preset, shipped.bug, shipped.length, shipped.step) == ("no mask", "no_tail_mask", 56, 3)


def test_the_sentence_names_bug_row_page_state_leak_and_error(shipped):
    assert shipped.sentence == (
        "no tail mask · 56 tokens, head 1 · page 3 → id 12, 8 valid · m 8.18, l 2.80 · leak 57 % · output off 121 %"
    )


def test_what_the_presets_say_is_what_their_rows_show(shipped):
    assert "take 57 %." in ask(shipped, "no mask")
    assert "a 0 takes only 0.2 %" in ask(shipped, "mask to 0")
    assert ask(shipped, "mask to 0").endswith("0 takes 99.7 %.")
    assert "(3.48 → 9.77), and it is off 86 %" in ask(shipped, "not rescaled")
    assert TailLens(preset="not rescaled").sentence.endswith("output right")
    assert TailLens(preset="empty split").sentence.endswith("leak NaN · output NaN")
    assert TailLens(preset="NaN in V").sentence.endswith("leak 0 % · output NaN")


@pytest.mark.parametrize("bug", ["no_tail_mask", "mask_to_zero", "mask_to_zero_low", "nan_in_v", "stale_page"])
def test_48_tokens_hide_the_bugs_of_the_tail(shipped, bug):
    assert TailLens(bug=bug, length=48, head=1).sentence.endswith("leak 0 % · output right")


def test_all_numbers_are_json_and_the_message_stays_small(shipped):
    assert len(json.dumps(shipped._trace, allow_nan=False)) < 600_000


def test_a_new_length_starts_at_its_last_page():
    widget = lens(bug="no_tail_mask", length=56, head=2, step=1)
    assert widget.step == 1
    widget.length = 17
    assert widget.step == 1
    widget.length = 49
    assert widget.step == 3
    assert lens(length=33).step == 2


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"bug": "floor_pages"}, "bug is floor_pages, expected one of: right, no_tail_mask"),
        ({"length": 50}, "length is 50, expected one of: 16, 17, 33, 48, 49, 56"),
        ({"head": 4}, "head is 4, expected one of: 0, 1, 2, 3"),
        ({"length": 16, "step": 1}, "step is 1, expected 0 to 0"),
    ],
)
def test_a_state_that_is_not_there_is_refused_with_what_is(state, message):
    with pytest.raises(traitlets.TraitError, match=f"^{message}"):
        lens(**state)


def test_the_code_recreates_the_state():
    widget = lens(preset="no mask", head=3)
    assert widget.code == 'TailLens(preset="no mask", head=3)'
    other = lens(bug="stale_page", length=17, head=0)
    assert other.code == 'TailLens(bug="stale_page", length=17, head=0, step=1)'
    again = eval(other.code.replace("TailLens(", "TailLens(made_up_lens(), "))
    assert again.sentence == other.sentence


def test_a_stale_page_leaks_the_whole_weight_of_its_slots():
    view = view_of(lens()._trace, "stale_page", 17, 0, 1)
    assert leak(view, view.wrong) == pytest.approx(sum(shares(view, view.wrong)[16:]))
    assert leak(view, view.right) == 0


def test_workers_have_shares_of_their_own_until_the_last_page_is_read():
    view = view_of(lens()._trace, "empty_split", 48, 0, 1)
    assert shares(view, view.wrong)[16:] == list(view.wrong[1].weights[16:])
    assert len(shares(view, view.wrong)) == 32


def test_a_biased_k_has_the_text_of_the_model_without_it_and_says_so():
    runs = lens()._trace["runs"]
    assert runs["mask_to_zero_low"]["text"] == runs["mask_to_zero"]["text"]
    assert [run["modelHas"] for run in runs.values()].count(False) == 1


def test_the_text_picture_groups_slots_by_pages_and_shows_both_texts(shipped):
    rows = TailLens().text_picture().splitlines()
    assert rows[0] == f"tokens  {'#' * 16}|{'#' * 16}|{'#' * 16}|{'#' * 8}{'_' * 8}"
    assert rows[1].startswith("right ")
    assert rows[5].split()[:2] == ["0", "5"]
    assert any(row.startswith("wrong   with open(") for row in rows)
    assert all(len(row) <= 100 for row in rows)


@pytest.mark.parametrize("state", states(made_up_lens())[::5])
def test_every_state_draws_in_one_size_and_says_something_else(state):
    widget = lens(**state)
    assert png_size(widget.png()) == png_size(lens().png())
    assert widget.text_picture()


def test_the_png_is_the_same_twice_and_follows_the_state():
    assert lens(step=2).png() == lens(step=2).png()
    pictures = {lens(bug=bug, length=56, head=1).png() for bug in ("right", "no_tail_mask", "empty_split")}
    assert len(pictures) == 3


def test_words_for_errors_and_tokens():
    assert [off_words(off) for off in (0, 4e-6, 0.0021, 0.5, 1.2, "NaN")] == [
        "right", "right", "off 0.2 %", "off 50 %", "off 120 %", "NaN",
    ]  # fmt: skip
    assert [token_cell(text) for text in (" open", "):\n", "   ", " ")] == ["open", "):↵", "␣␣␣", "␣"]
    assert flat_text(["   ", " def", "\n        ", "x"]) == ["", "def", "↵ ", "x"]


def test_every_length_of_the_engine_is_shown(shipped):
    assert tuple(shipped._trace["lengths"]) == LENGTHS


def test_javascript_tests_read_the_data_of_today():
    """tests/widgets/js/lens.json is written by `python -m tests.widgets.lens_trace`."""
    assert json.loads(DATA_FILE.read_text(encoding="utf-8")) == json.loads(json.dumps(javascript_data()))
