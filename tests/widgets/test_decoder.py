import json

import pytest
import traitlets

from tests.widgets.desk_trace import DATA_FILE, RIGHT, javascript_data, made_up_desk
from widgets.decoder import BugDesk


@pytest.fixture(scope="module")
def trace():
    return made_up_desk()


def test_the_cases_are_letters_in_the_order_of_the_trace(trace):
    desk = BugDesk(trace)
    assert desk.presets == ("case A", "case B", "case C")
    assert (desk.preset, desk.step) == ("case A", 0)
    assert [BugDesk(trace, preset=name).case["cause"][-5:] for name in desk.presets] == ["noise", " late", " slow"]


def test_a_step_stays_inside_its_case_and_a_new_case_starts_covered(trace):
    desk = BugDesk(trace, preset="case B")
    desk.step = 2
    assert desk.preset == "case B"
    desk.preset = "case C"
    assert desk.step == 0


def test_there_are_three_steps(trace):
    with pytest.raises(traitlets.TraitError, match="step is 3, expected 0 to 2"):
        BugDesk(trace).step = 3


def test_the_sentence_says_where_the_text_departs_and_where_logits_are_wrong(trace):
    desk = BugDesk(trace, preset="case B")
    assert desk.sentence == "case B · departs at new token 6 · 17 token passes, right 17"
    desk.step = 1
    assert desk.sentence == "case B · logits wrong at 7 of 13 lengths, first at 10"
    desk.step = 2
    assert desk.sentence == "case B · logits wrong at 7 of 13 lengths, first at 10 · late, lab 05"


def test_a_bug_of_time_has_the_right_text_and_more_token_passes(trace):
    desk = BugDesk(trace, preset="case C")
    assert desk.sentence == "case C · the right text · 143 token passes, right 17"
    desk.step = 1
    assert desk.sentence == "case C · logits wrong at 0 of 13 lengths"


def test_the_cause_is_named_in_no_picture_before_the_last_step(trace):
    for name in BugDesk(trace).presets:
        for step, uncovered in ((0, False), (1, False), (2, True)):
            desk = BugDesk(trace, preset=name, step=step)
            assert (desk.case["cause"] in repr(desk)) is uncovered, (name, step)


def test_the_text_picture_shows_both_texts_and_the_error_by_length(trace):
    rows = BugDesk(trace, preset="case B", step=1).text_picture().splitlines()
    assert rows[:3] == ["right   def fibonacci(n):", "            if n < 2:", "                return n"]
    assert "broken  def fibonacci(n):" in rows
    assert rows[-3] == "error   [     .=##% %@]"
    assert len(rows[-3]) == len("error   []") + len(RIGHT)
    assert rows[-2].index("|") == len("error   [") + 16 - 5


def test_the_png_is_the_same_twice_and_grows_with_the_step_but_not_in_size(trace):
    pictures = [BugDesk(trace, preset="case B", step=step).png() for step in (0, 1, 2)]
    assert pictures[0] == BugDesk(trace, preset="case B").png()
    assert len(set(pictures)) == 3
    assert len({picture[16:24] for picture in pictures}) == 1  # width and height of a PNG


def test_javascript_tests_read_the_data_of_today():
    """tests/widgets/js/desk.json is written by `python -m tests.widgets.desk_trace`."""
    assert json.loads(DATA_FILE.read_text(encoding="utf-8")) == json.loads(json.dumps(javascript_data()))
