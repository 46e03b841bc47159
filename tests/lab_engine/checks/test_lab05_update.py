import math

import pytest
import torch

from lab_engine import paged_attention
from lab_engine.checks.lab05_update import EXERCISE as UPDATE
from lab_engine.checks.lab05_update import online_softmax_update
from tests.lab_engine.checks.answers import names

INF = math.inf


def update_with(
    *,
    new_m=max,
    of_l=lambda old, new: math.exp(old - new),
    of_acc=lambda old, new: math.exp(old - new),
    taken_out=lambda _, new: new,
    divided=False,
    guard=True,
):
    """An online_softmax_update that does one thing differently; m, l may be tensors of one number."""

    def update(m, l, acc, scores, v):
        new = new_m(m, scores.max().item())
        if guard and new == -INF:
            return m, l, acc
        p = torch.exp(scores - taken_out(m, new))
        l = l * of_l(m, new) + p.sum().item()
        acc = acc * of_acc(m, new) + p @ v
        return new, l, acc / l if divided else acc

    return update


def one(_old, _new):
    return 1.0


def upside_down(old, new):
    return math.exp(new - old) if old > -INF else 0.0


def starts_at_0(m, l, acc, scores, v):
    return online_softmax_update(0.0 if m == -INF < scores.max() else m, l, acc, scores, v)


def old_if_any(old, new):
    return old if old > -INF else new


def no_maximum(m, l, acc, scores, v):
    p = torch.exp(scores)
    return max(m, scores.max().item()), l + p.sum().item(), acc + p @ v


def no_maximum_in_python(m, l, acc, scores, v):
    p = [math.exp(s) for s in scores.tolist()]
    return max(m, scores.max().item()), l + sum(p), acc + torch.tensor(p) @ v


def forgets_the_past(m, l, acc, scores, v):
    return online_softmax_update(m, 0.0, torch.zeros_like(acc), scores, v) if scores.max() > -INF else (m, l, acc)


def remembers_m_itself():
    seen = -INF

    def update(m, l, acc, scores, v):
        nonlocal seen
        seen = max(seen, scores.max().item())
        factor = math.exp(m - seen) if m > -INF else 0.0
        p = torch.exp(scores - seen) if seen > -INF else torch.zeros(len(scores))
        return seen, l * factor + p.sum().item(), acc * factor + p @ v

    return update


def counts_masked_slots(m, l, acc, scores, v):
    return online_softmax_update(m, l, acc, scores.clamp(min=-1e4), v)


def zero_for_masked(m, l, acc, scores, v):
    return online_softmax_update(m, l, acc, torch.where(scores == -INF, 0.0, scores), v)


def largest_size(m, l, acc, scores, v):
    new = max(m, scores.abs().max().item())
    p = torch.exp(scores - new)
    factor = math.exp(m - new)
    return new, l * factor + p.sum().item(), acc * factor + p @ v


def first_two_slots(m, l, acc, scores, v):
    return online_softmax_update(m, l, acc, scores[:2], v[:2])


def maximum_of_four_slots(m, l, acc, scores, v):
    return update_with(new_m=lambda old, _: max(old, scores[:4].max().item()))(m, l, acc, scores, v)


def the_first_state(_m, _l, acc, _scores, _v):
    return 3.0, 1.1353353, torch.full_like(acc, 21.353353)


FIRST, SECOND, THIRD = (
    "the example's first page",
    "the example's second page (the maximum rises)",
    "the example's third page (the maximum stays)",
)
LOW, HIGH, MASKED = "a first page of scores about −200", "scores about 800", "a page with masked slots"
LATE, BLIND, RANDOM = "a later page all masked", "a first page all masked", "three pages of 16 slots"
RISING = {SECOND, HIGH, MASKED, RANDOM}
FALLING = {THIRD, "a falling maximum"}
ALL = names(UPDATE)
RESCALE = "What was e^(s − old m) must become e^(s − new m)"
WRONG = {
    "l not rescaled": (update_with(of_l=one), RESCALE + ". `l` too", RISING),
    "acc not rescaled": (update_with(of_acc=one), RESCALE + ". `acc` too", RISING),
    "neither rescaled": (update_with(of_l=one, of_acc=one), RESCALE, RISING),
    "factor upside down": (update_with(of_l=upside_down, of_acc=upside_down), RESCALE + ". The factor", RISING),
    "factor upside down, no guard": (
        update_with(of_l=lambda a, b: math.exp(b - a), of_acc=lambda a, b: math.exp(b - a)),
        RESCALE,
        {FIRST, LOW, *RISING},
    ),
    "old maximum in exp": (update_with(taken_out=old_if_any), RESCALE + ". The scores of this page", RISING),
    "old maximum in exp, no guard": (update_with(taken_out=lambda old, _: old), RESCALE, {FIRST, LOW, *RISING}),
    "old maximum, nothing rescaled": (
        update_with(taken_out=old_if_any, of_l=one, of_acc=one),
        RESCALE,
        RISING,
    ),
    "m of this page only": (
        update_with(new_m=lambda _, page_m: page_m, of_l=lambda a, b: math.exp(a - b) if b > -INF else 1.0),
        "m never falls",
        FALLING,
    ),
    "divides each page": (update_with(divided=True), "Divide once, at the end", ALL - {BLIND}),
    "no guard": (update_with(guard=False), "Nothing seen yet", {BLIND}),
    "m starts at 0": (starts_at_0, "m starts at −inf", {LOW}),
    "m at least 0": (update_with(new_m=lambda m, page_m: max(m, page_m, 0.0)), "m starts at −inf", {LOW, BLIND}),
    "the largest |score|": (largest_size, "each with its sign", {LOW, MASKED, LATE, BLIND}),
    "the first two slots": (first_two_slots, "All scores of the page count", {LOW, RANDOM}),
    "the maximum of four slots": (maximum_of_four_slots, "m is the largest of them", {RANDOM}),
    "no maximum": (no_maximum, "e^(s − m) of each score", ALL - {LATE, BLIND}),
    "no maximum, in Python": (no_maximum_in_python, "e^(s − m) of each score", ALL - {LATE, BLIND}),
    "the page instead of the sum": (forgets_the_past, "The page is added to what came before", None),
    "masked slots at −1e4": (counts_masked_slots, "Nothing seen yet", {BLIND}),
    "masked slots at 0": (zero_for_masked, "A masked slot has the score −inf", {MASKED, LATE, BLIND}),
    "m kept in a global": (remembers_m_itself(), "", None),
    "the example's answer": (the_first_state, "", ALL - {FIRST}),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_update_fails_with_its_own_hint_on_the_cases_that_show_it(name, failing_cases):
    wrong, hint, only = WRONG[name]
    verdict = UPDATE.check(wrong)
    assert verdict.status == "failed"
    assert hint in verdict.hint, verdict
    if only is not None:
        assert failing_cases(UPDATE, wrong) == only


def with_tensors(m, l, acc, scores, v):
    new_m = torch.maximum(torch.as_tensor(m), scores.max())
    safe = torch.where(new_m == -INF, 0.0, new_m)
    p = torch.exp(scores - safe)
    factor = torch.exp(torch.as_tensor(m) - safe)
    return new_m, l * factor + p.sum(), acc * factor + (p[:, None] * v).sum(0)


def as_one_softmax(m, l, acc, scores, v):
    """The past as one more slot, whose mass is l e^m."""
    if max(m, scores.max()) == -INF:
        return m, l, acc.clone()
    new_m = float(torch.cat([torch.tensor([m]), scores]).max())
    past = math.exp(m - new_m)
    p = torch.exp(scores.double() - new_m)
    return new_m, past * l + float(p.sum()), (past * acc.double() + p @ v.double()).float()


def slot_by_slot(m, l, acc, scores, v):
    acc = acc.clone()
    for score, row in zip(scores.tolist(), v, strict=True):
        if score == -INF:
            continue
        if score > m:
            shrunk = math.exp(m - score)
            m, l = score, l * shrunk
            acc *= shrunk
        l += math.exp(score - m)
        acc += math.exp(score - m) * row
    return m, l, acc


@pytest.mark.parametrize("right", [online_softmax_update, update_with(), with_tensors, as_one_softmax, slot_by_slot])
def test_a_right_update_passes(right):
    verdict = UPDATE.check(right)
    assert verdict.status == "passed", verdict


def in_place(m, l, acc, scores, v):
    new_m, new_l, new_acc = online_softmax_update(m, l, acc, scores, v)
    acc.copy_(new_acc)
    return new_m, new_l, acc


def clears_the_masked(m, l, acc, scores, v):
    result = online_softmax_update(m, l, acc, scores, v)
    v[scores == -INF] = 0
    return result


@pytest.mark.parametrize("wrong", [in_place, clears_the_masked])
def test_a_right_state_in_a_changed_argument_is_named(wrong):
    verdict = UPDATE.check(wrong)
    assert verdict.message == "the result is right, but your function changed one of its arguments"
    assert verdict.hint == "Work on a copy."


def of(change):
    return lambda *args: change(*online_softmax_update(*args))


@pytest.mark.parametrize(
    ("wrong", "message", "hint"),
    [
        (of(lambda m, l, acc: [m, l, acc]), "returned a list; expected (m, l, acc)", "A tuple: `return m, l, acc`."),
        (of(lambda m, l, _: (m, l)), "returned a tuple of 2; expected (m, l, acc)", ""),
        (of(lambda *state: state[2]), "returned a float32 tensor of shape (1,); expected (m, l, acc)", ""),
        (
            of(lambda m, l, acc: (m, l, acc.double())),
            "returned a tuple whose acc is a float64 tensor of shape (1,); expected a float32 tensor of shape (1,)",
            "",
        ),
        (
            of(lambda m, l, acc: (m, l, acc[None])),
            "returned a tuple whose acc is a float32 tensor of shape (1, 1); expected a float32 tensor of shape (1,)",
            "",
        ),
        (
            of(lambda m, l, acc: (torch.tensor([m]), l, acc)),
            "returned a tuple whose m is a float32 tensor of shape (1,); expected a float",
            "",
        ),
        (of(lambda m, _, acc: (m, None, acc)), "returned a tuple whose l is None; expected a float", ""),
        (of(lambda m, l, acc: (acc, l, m)), "returned a tuple whose m is a float32 tensor of shape (1,); ", ""),
    ],
)
def test_another_form_is_refused_in_words(wrong, message, hint):
    verdict = UPDATE.check(wrong)
    assert verdict.message.startswith(message)
    assert verdict.hint == hint


def test_an_overflow_of_pythons_exp_is_explained():
    def no_maximum_but_right(m, l, acc, scores, v):
        return [math.exp(s) for s in scores.tolist()] and online_softmax_update(m, l, acc, scores, v)

    verdict = UPDATE.check(no_maximum_but_right)
    assert verdict.case == HIGH
    assert verdict.message.startswith("raised OverflowError: math range error")
    assert "Take the new maximum out" in verdict.hint


def test_the_worked_example_of_the_lab():
    state = (-INF, 0.0, torch.zeros(1))
    pages = [([1.0, 3.0], [[10.0], [20.0]]), ([2.0, 5.0], [[30.0], [40.0]]), ([4.0], [[50.0]])]
    found = []
    for scores, v in pages:
        state = online_softmax_update(*state, torch.tensor(scores), torch.tensor(v))
        found.append((state[0], round(state[1], 5), round(state[2].item(), 4)))
    assert found == [(3.0, 1.13534, 21.3534), (5.0, 1.20344, 44.3835), (5.0, 1.57132, 62.7774)]
    assert state[2].item() / state[1] == pytest.approx(39.9521, abs=1e-4)
    assert state[0] + math.log(state[1]) == pytest.approx(5.45191, abs=1e-5)


@pytest.mark.parametrize("case", UPDATE.cases, ids=lambda case: case.name)
def test_the_solution_does_what_the_engine_does(case):
    m, l, acc, scores, v = case.args
    engine = paged_attention.online_softmax_update(torch.tensor(m), torch.tensor(l), acc, scores, v)
    found = online_softmax_update(*case.args)
    assert torch.allclose(torch.tensor(found[:2]), torch.stack(engine[:2]), rtol=1e-5)
    assert torch.allclose(found[2], engine[2], rtol=1e-5)


def test_the_verdict_shows_the_page_and_three_states_below_one_heading():
    verdict = UPDATE.check(WRONG["l not rescaled"][0])
    assert str(verdict).splitlines()[1:] == [
        "  case: the example's second page (the maximum rises)",
        "    scores     2        5",
        "    v[:, 0]   30       40",
        "    state      m        l   acc[0]",
        "    before     3  1.13534  21.3534",
        "    expected   5  1.20344  44.3835",
        "    yours      5  2.18512  44.3835",
        "                  ^^^^^^^",
        "  Hint: What was e^(s − old m) must become e^(s − new m). l too: it is a sum of such terms.",
    ]
