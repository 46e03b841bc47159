"""Every symptom is what its cause really does, fits no other of the six, and is the same on every machine."""

import math
from collections import Counter

import pytest

from lab_engine.attention_clinic import (
    CAUSES,
    NUMBERS,
    ROUNDING,
    Curve,
    Row,
    cause_of,
    symptoms,
    trace_symptom,
)
from lab_engine.attention_layer import MOST_TOKENS
from lab_engine.errors import NanoqwenError
from lab_engine.paged_attention import BUGS

SAFE = 0.05
BY_CAUSE = {cause: [number for number in NUMBERS if cause_of(number) == cause] for cause in CAUSES}


@pytest.fixture(scope="module")
def shown():
    return {symptom.number: symptom for symptom in symptoms()}


def of(shown, cause, kind):
    return next(shown[number].shown for number in BY_CAUSE[cause] if shown[number].kind == kind)


def words(curve):
    """Right, wrong or NaN at every head and length."""
    return [["N" if math.isnan(error) else "#" if error else "." for error in head] for head in curve.errors]


def visible(observation):
    """What one can see of an observation: words for a curve, percents for a row, tokens for texts."""
    if isinstance(observation, Curve):
        return words(observation)
    if isinstance(observation, Row):
        return [round(100 * weight) for weight in observation.wrong]
    return [text.wrong for text in observation]


def test_ten_symptoms_of_six_causes_in_three_forms(shown):
    assert list(shown) == list(range(1, 11))
    assert set(CAUSES) <= set(BUGS)
    assert Counter(len(numbers) for numbers in BY_CAUSE.values()) == {2: 4, 1: 2}
    assert Counter(symptom.kind for symptom in shown.values()) == {"curve": 4, "text": 4, "row": 2}


@pytest.mark.parametrize("number", NUMBERS)
def test_no_other_cause_gives_the_same_symptom(shown, number):
    for cause in set(CAUSES) - {cause_of(number)}:
        assert visible(trace_symptom(number, cause)) != visible(shown[number].shown), cause


@pytest.mark.parametrize("number", NUMBERS)
def test_a_symptom_does_not_name_its_cause(shown, number):
    assert not any(cause in repr(shown[number]) for cause in CAUSES)


def test_curves_are_wrong_exactly_where_the_cause_says(shown):
    lengths = range(1, MOST_TOKENS + 1)
    stale, rescale, modulo, minus_one = (
        words(of(shown, cause, "curve")) for cause in ("stale_page", "no_rescale", "head_modulo", "length_minus_one")
    )
    assert all(head == ["#" if length % 16 == 1 else "." for length in lengths] for head in stale)
    assert all(set(head[:16]) == {"."} and "#" in head[16:] for head in rescale)
    assert [set(head) for head in modulo] == [{"."}, {"#"}, {"#"}, {"."}]
    assert all(set(head) == {"#"} for head in minus_one)
    tail, nan = (words(trace_symptom(_a_curve(shown), cause)) for cause in ("no_tail_mask", "nan_in_v"))
    assert all((head[length - 1] == ".") >= (length % 16 == 0) for head in tail for length in lengths)
    assert all(head == ["." if length % 16 == 0 else "N" for length in lengths] for head in nan)


def _a_curve(shown):
    return next(number for number in NUMBERS if shown[number].kind == "curve")


def test_no_error_of_a_curve_is_near_what_rounding_explains(shown):
    for symptom in shown.values():
        if isinstance(symptom.shown, Curve):
            errors = [error for head in symptom.shown.errors for error in head if error]
            assert min(errors) > 3 * ROUNDING


def test_rows_are_weights_that_sum_to_1_and_show_the_cause(shown):
    tail, minus_one = (of(shown, cause, "row") for cause in ("no_tail_mask", "length_minus_one"))
    for row in (tail, minus_one):
        assert sum(row.right) == pytest.approx(1, abs=1e-5)
        assert sum(row.wrong) == pytest.approx(1, abs=1e-5)
        assert not any(row.right[row.length :])
    assert sum(tail.wrong[tail.length :]) > 0.25
    assert minus_one.right[-1] > 0.1
    assert minus_one.wrong[-1] == 0


def test_every_row_with_any_of_the_six_causes_sums_to_1(shown):
    for number in [symptom.number for symptom in shown.values() if symptom.kind == "row"]:
        for cause in CAUSES:
            assert sum(trace_symptom(number, cause).wrong) == pytest.approx(1, abs=1e-5)


def test_no_choice_of_a_text_is_close_enough_to_fall_otherwise_elsewhere(shown):
    texts = [text for symptom in shown.values() if symptom.kind == "text" for text in symptom.shown]
    assert len(texts) == 8
    assert min(text.margin for text in texts) > SAFE


def test_texts_show_their_causes_by_where_they_are_right(shown):
    def places(cause):
        return [
            None if text.departs is None else text.prompt_tokens + text.departs for text in of(shown, cause, "text")
        ]

    assert places("nan_in_v") == [12, 17]  # the prompt of 16 has no empty slot
    assert places("stale_page") == [17, None]  # 20 to 24 tokens take no page
    assert places("no_rescale") == [18, 32]
    assert places("no_tail_mask") == [6, None]  # 32 tokens have no tail
    assert set("".join(of(shown, "nan_in_v", "text")[0].wrong)) == {"!"}
    assert "".join(of(shown, "no_tail_mask", "text")[0].wrong).startswith(" with open(path")  # the former request's


@pytest.mark.parametrize(
    ("number", "cause", "said"),
    [
        (0, "stale_page", "symptom 0: expected 1 to 10"),
        (11, "stale_page", "symptom 11: expected 1 to 10"),
        (1, "empty_split", "cause 'empty_split': expected one of no_tail_mask"),
    ],
)
def test_what_the_clinic_does_not_have_is_refused_in_one_line(number, cause, said):
    with pytest.raises(NanoqwenError, match=said):
        trace_symptom(number, cause)
