"""The clinic passes with ten of ten only, and meets each wrong answer with the observation that rules it out."""

import numpy as np
import pytest
import torch

from lab_engine.attention_clinic import CAUSES, NUMBERS, cause_of
from lab_engine.checks import exercises
from lab_engine.checks.lab05_clinic import RULES, bug_clinic, ruled_out_by
from tests.lab_engine.checks.answers import Hostile

CLINIC = exercises("05_paged_attention")["bug_clinic"]
RIGHT = bug_clinic()


def check(answers):
    return CLINIC.check(lambda: answers)


def stub():
    raise NotImplementedError


def test_the_stub_has_not_started_and_names_the_causes():
    assert CLINIC.check(stub).status == "not started"
    assert all(cause in CLINIC.stub for cause in CAUSES)
    assert not any(f'"{cause_of(number)}"' in CLINIC.stub.split("Example")[0] for number in NUMBERS)


def test_the_solution_names_the_cause_that_each_symptom_was_made_with():
    assert {number: cause_of(number) for number in NUMBERS} == RIGHT
    assert check(RIGHT).status == "passed"


@pytest.mark.parametrize("number", NUMBERS)
def test_nine_of_ten_do_not_pass(number):
    other = next(cause for cause in CAUSES if cause != RIGHT[number])
    verdict = check(RIGHT | {number: other})
    assert verdict.status == "failed"
    assert verdict.message == f"9 of 10 are right; symptom {number} is not `{other}`"
    assert verdict.hint == ruled_out_by(number, other)


def test_the_first_wrong_symptom_is_named_and_all_right_ones_are_counted():
    assert check(dict.fromkeys(NUMBERS, "stale_page")).message == "2 of 10 are right; symptom 1 is not `stale_page`"
    assert check({1: RIGHT[1]}).message == "1 of 10 are right; symptom 2 has no answer yet"
    assert check({10: RIGHT[10]}).message == "1 of 10 are right; symptom 1 has no answer yet"


@pytest.mark.parametrize(
    ("number", "guess", "observed"),
    [
        (5, "no_rescale", "With `no_rescale` head 0 would be wrong at 48 tokens; here it is right."),
        (6, "no_tail_mask", "With `no_tail_mask` head 0 would be right at 48 tokens; here it is wrong."),
        (7, "length_minus_one", "With `length_minus_one` head 0 would be wrong at 16 tokens; here it is right."),
        (10, "length_minus_one", "With `length_minus_one` head 0 would be wrong at 48 tokens; here it is right."),
        (9, "stale_page", "With `stale_page` token 15 would get 15 %; here it gets 0 %."),
        (1, "nan_in_v", "slot 8 of the last page, which holds no token, would get 0 %; here it gets 36 %."),
        (2, "stale_page", "the text after 12 tokens would stay right; here it departs with 18 tokens in the cache."),
        (3, "no_rescale", "the text after 20 tokens would depart with 20 tokens in the cache; here it stays right."),
        (
            8,
            "head_modulo",
            "the text after 16 tokens would depart with 16 tokens in the cache; here it departs with 17",
        ),
    ],
)
def test_a_hint_says_what_the_answer_would_have_shown_instead(number, guess, observed):
    hint = check(RIGHT | {number: guess}).hint
    assert hint.startswith(RULES[guess])
    assert observed in hint


@pytest.mark.parametrize("number", NUMBERS)
def test_no_hint_gives_the_answer_away(number):
    for guess in set(CAUSES) - {RIGHT[number]}:
        verdict = check(RIGHT | {number: guess})
        assert RIGHT[number] not in repr(verdict)


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({}, "no answers yet: return {1: "),
        (["no_tail_mask"], 'returned a list; expected a dict such as {1: "no_tail_mask"}'),
        ({"1": "nan_in_v"}, "found the key '1'; expected the symptom's number, a whole number from 1 to 10"),
        ({0: "nan_in_v"}, "found the key 0; expected the symptom's number"),
        ({True: "nan_in_v"}, "found the key True; expected the symptom's number"),
        (RIGHT | {11: "nan_in_v"}, "found the key 11; expected the symptom's number"),
        ({1: "mask_to_zero"}, "symptom 1: found 'mask_to_zero'; expected one of no_tail_mask, nan_in_v"),
        ({1: 3}, "symptom 1: found an int; expected one of no_tail_mask"),
        ({1: ["nan_in_v"]}, "symptom 1: found a list; expected one of no_tail_mask"),
        (RIGHT | {4: np.array(["nan_in_v", "x"])}, "symptom 4: found a <U8 ndarray of shape (2,); expected one of"),
        (RIGHT | {5: torch.ones(2)}, "symptom 5: found a float32 tensor of shape (2,); expected one of"),
        (RIGHT | {6: Hostile()}, "symptom 6: found a Hostile; expected one of"),
    ],
)
def test_answers_of_another_form_are_told_in_one_line(answers, said):
    verdict = check(answers)
    assert verdict.status == "failed"
    assert verdict.message.startswith(said)
    assert "\n" not in verdict.message


def test_wrong_keys_beside_ten_right_answers_do_not_pass():
    assert check(RIGHT | {11: "nan_in_v"}).status == "failed"
