import math

import pytest
import torch

from lab_engine.checks.lab05_page import EXERCISE as PAGE
from lab_engine.checks.lab05_page import attend_page
from lab_engine.checks.lab05_update import online_softmax_update
from tests.lab_engine.checks.answers import names

INF = math.inf
SLOT = torch.arange(16)


def in_page(length, page):
    return 16 * page + SLOT < length


def state_of(scores, v):
    m = scores.max()
    p = torch.exp(scores - m)
    return m.item(), p.sum().item(), p @ v


def page_with(*, valid=in_page, mask=lambda scores, valid: torch.where(valid, scores, -INF), values=None):
    """An attend_page with another idea of the valid slots, of the mask, or of V."""

    def attend(scores, v, length, page):
        kept = valid(length, page)
        v = torch.where(kept[:, None], v, 0.0) if values is None else values(v, kept)
        return state_of(mask(scores, kept), v)

    return attend


def v_as_it_is(v, _kept):
    return v


def number_for_inf(low):
    return lambda scores, valid: torch.where(valid, scores, low)


def mask_to_0(scores, valid):
    return torch.where(valid, scores, 0.0)


def times_mask(scores, valid):
    return scores * valid


def added_mask(scores, valid):
    return scores + torch.where(valid, 0.0, -INF)


def probabilities_masked(scores, v, length, page):
    """The maximum of all slots; the empty ones leave afterwards."""
    valid = in_page(length, page)
    m = scores.max()
    p = torch.where(valid, torch.exp(scores - m), 0.0)
    return m.item(), p.sum().item(), p @ torch.where(valid[:, None], v, 0.0)


def divided(scores, v, length, page):
    m, l, acc = attend_page(scores, v, length, page)
    return m, l, acc / l


def sums_of(power):
    """Masked right; `power` of (scores, m) is in both sums."""

    def attend(scores, v, length, page):
        held = min(16, length - 16 * page)
        m = scores[:held].max()
        p = power(scores[:held], m)
        return m.item(), p.sum().item(), p @ v[:held]

    return attend


def log_of_l(*args):
    m, l, acc = attend_page(*args)
    return m, math.log(l), acc


def softmaxed(*args):
    m, l, acc = attend_page(*args)
    return m, 1.0, acc / l


def m_at_least_0(scores, v, length, page):
    held = min(16, length - 16 * page)
    m = scores[:held].max().clamp(min=0)
    p = torch.exp(scores[:held] - m)
    return m.item(), p.sum().item(), p @ v[:held]


def counts_slots_from_the_end(length, page):
    return 16 - (length - 16 * page) <= SLOT


def nan_to_num(scores, v, length, page):
    valid = in_page(length, page)
    return state_of(torch.where(valid, scores, -INF), v.nan_to_num(posinf=0.0, neginf=0.0) * valid[:, None] + 0 * v)


TAIL, FULL_OF_56, FULL_OF_48, FIRST_SLOT = (
    "56 tokens on page 3",
    "56 tokens on page 2",
    "48 tokens on page 2",
    "17 tokens on page 1",
)
MINUS_5, MINUS_20000, MINUS_4E9 = "scores about −5", "scores about −20,000", "scores about −4,000,000,000"
ZEROS, NANS, INFS = (f"{what} in the empty slots" for what in ("0", "NaN", "inf"))
ALL = names(PAGE)
FULL = {FULL_OF_56, FULL_OF_48}
TAILS = ALL - FULL
UNDEFINED = {NANS, INFS}
SUMS = "m is the largest score; l sums e^(s − m), acc the same times v."
WRONG = {
    "no mask": (
        lambda scores, v, *_: state_of(scores, v),
        "Which slots hold tokens?",
        TAILS,
    ),
    "no mask of the scores": (page_with(mask=lambda scores, _: scores), "Which slots hold tokens?", TAILS),
    "mask to 0": (page_with(mask=mask_to_0), "−inf, not 0", TAILS),
    "mask to 0 of scores alone": (page_with(mask=mask_to_0, values=v_as_it_is), "−inf, not 0", TAILS),
    "scores × mask": (page_with(mask=times_mask), "−inf, not 0", TAILS),
    "−1e4 for −inf": (page_with(mask=number_for_inf(-1e4)), "A number can be beaten", {MINUS_20000, MINUS_4E9}),
    "−1e3 for −inf": (page_with(mask=number_for_inf(-1e3)), "A number can be beaten", {MINUS_20000, MINUS_4E9}),
    "−1e5 for −inf": (page_with(mask=number_for_inf(-1e5)), "A number can be beaten", {MINUS_4E9}),
    "−1e6 for −inf": (page_with(mask=number_for_inf(-1e6)), "A number can be beaten", {MINUS_4E9}),
    "−1e9 for −inf": (page_with(mask=number_for_inf(-1e9)), "A number can be beaten", {MINUS_4E9}),
    "−1e4 for −inf in scores alone": (
        page_with(mask=number_for_inf(-1e4), values=v_as_it_is),
        "A number can be beaten",
        {MINUS_20000, MINUS_4E9, *UNDEFINED},
    ),
    "<=": (page_with(valid=lambda length, page: 16 * page + SLOT <= length), "It is `<`", TAILS),
    "length − 1": (
        page_with(valid=lambda length, page: 16 * page + SLOT < length - 1),
        "The current token",
        ALL - {FULL_OF_56},
    ),
    "slot < length % 16": (
        page_with(valid=lambda length, _: length % 16 > SLOT),
        "Only the last page has a tail",
        FULL,
    ),
    "slot < length": (page_with(valid=lambda length, _: length > SLOT), "Which slots hold tokens?", TAILS),
    "the empty slots": (page_with(valid=lambda length, page: ~in_page(length, page)), "The other way round", ALL),
    "slots from the end": (page_with(valid=counts_slots_from_the_end), "", ALL - FULL),
    "V as it is": (page_with(values=v_as_it_is), "0 × NaN is NaN", UNDEFINED),
    "V × mask": (page_with(values=lambda v, kept: v * kept[:, None]), "0 × NaN is NaN", UNDEFINED),
    "mask added": (page_with(mask=added_mask), "select the scores with `where`", UNDEFINED),
    "maximum of all slots": (probabilities_masked, "Mask before you take the maximum", TAILS - {ZEROS}),
    "divided": (divided, "acc stays a sum", ALL - {FIRST_SLOT}),
    "e^s": (sums_of(lambda scores, _: torch.exp(scores)), "take m out before `exp`", ALL),
    "2^(s − m)": (sums_of(lambda scores, m: torch.exp2(scores - m)), SUMS, None),
    "log l": (log_of_l, SUMS, ALL),
    "the softmax": (softmaxed, "l and acc stay sums", ALL - {FIRST_SLOT}),
    "m at least 0": (m_at_least_0, SUMS, {MINUS_5, MINUS_20000, MINUS_4E9}),
    "the page alone": (lambda scores, v, *_: attend_page(scores, v, 56, 3), "", None),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_page_fails_with_its_own_hint_on_the_cases_that_show_it(name, failing_cases):
    wrong, hint, only = WRONG[name]
    verdict = PAGE.check(wrong)
    assert verdict.status == "failed"
    assert hint in verdict.hint, verdict
    if only is not None:
        assert failing_cases(PAGE, wrong) == only


def by_the_tail(scores, v, length, page):
    """Only the slots that hold tokens are read at all."""
    held = min(16, length - 16 * page)
    return state_of(scores[:held], v[:held])


def by_the_update(scores, v, length, page):
    valid = in_page(length, page)
    masked, selected = scores.masked_fill(~valid, -INF), v.masked_fill(~valid[:, None], 0.0)
    return online_softmax_update(-INF, 0.0, torch.zeros(v.shape[1]), masked, selected)


def slot_by_slot(scores, v, length, page):
    slots = [slot for slot in range(16) if 16 * page + slot < length]
    m = max(scores[slot].item() for slot in slots)
    p = {slot: math.exp(scores[slot].item() - m) for slot in slots}
    return m, sum(p.values()), sum(p[slot] * v[slot] for slot in slots)


def with_tensors_on_copies(scores, v, length, page):
    scores, v = scores.clone(), v.clone()
    scores[max(0, length - 16 * page) :] = -INF
    v[max(0, length - 16 * page) :] = 0
    m = torch.max(scores)
    p = (scores - m).exp()
    return m, p.sum(), torch.einsum("s,sd->d", p, v)


@pytest.mark.parametrize(
    "right",
    [
        attend_page,
        page_with(),
        page_with(mask=number_for_inf(torch.finfo(torch.float32).min)),
        by_the_tail,
        by_the_update,
        slot_by_slot,
        with_tensors_on_copies,
    ],
)
def test_a_right_page_passes(right):
    verdict = PAGE.check(right)
    assert verdict.status == "passed", verdict


def test_a_mask_written_into_the_arguments_is_named():
    def in_place(scores, v, length, page):
        scores[~in_page(length, page)] = -INF
        v[~in_page(length, page)] = 0
        return state_of(scores, v)

    verdict = PAGE.check(in_place)
    assert verdict.case == TAIL
    assert verdict.message == "the result is right, but your function changed one of its arguments"


@pytest.mark.parametrize("name", [FULL_OF_56, FULL_OF_48])
def test_a_full_page_would_let_a_missing_mask_pass(name, failing_cases):
    assert name not in failing_cases(PAGE, WRONG["no mask"][0])


def test_a_score_of_0_takes_99_percent_of_the_mass_at_minus_5_and_little_at_plus_6():
    def share(level):
        scores, v = torch.full((16,), level), torch.ones(16, 1)
        _, right, _ = attend_page(scores, v, 56, 3)
        m, wrong, _ = page_with(mask=mask_to_0)(scores, v, 56, 3)
        return 1 - right * math.exp(level - m) / wrong

    assert share(-5.0) == pytest.approx(0.9933, abs=1e-4)
    assert share(6.0) == pytest.approx(0.0025, abs=1e-4)


@pytest.mark.parametrize("case", PAGE.cases, ids=lambda case: case.name)
def test_the_solution_equals_float64_over_the_tokens_alone(case):
    scores, v, length, page = case.args
    held = min(16, length - 16 * page)
    m, l, acc = attend_page(*case.args)
    exact = scores[:held].double()
    assert m + math.log(l) == pytest.approx(float(torch.logsumexp(exact, 0)), rel=1e-6)
    assert (acc / l).tolist() == pytest.approx((torch.softmax(exact, 0) @ v[:held].double()).tolist(), rel=1e-5)


def of(change):
    return lambda *args: change(*attend_page(*args))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (of(lambda m, l, acc: [m, l, acc]), "returned a list; expected (m, l, acc)"),
        (of(lambda _, l, acc: acc / l), "returned a float32 tensor of shape (2,); expected (m, l, acc)"),
        (of(lambda m, l, acc: (m, l, acc.tolist())), "returned a tuple whose acc is a list; expected a float32 tensor"),
        (of(lambda m, l, acc: (m, l, acc.half())), "returned a tuple whose acc is a float16 tensor of shape (2,)"),
        (of(lambda m, l, acc: (m, acc, l)), "returned a tuple whose l is a float32 tensor of shape (2,)"),
        (lambda scores, v, *_: scores @ v[:, :5, None], "raised "),
    ],
)
def test_another_form_is_refused_in_words(wrong, message):
    assert PAGE.check(wrong).message.startswith(message)


def test_nan_stands_in_the_verdict_as_a_word():
    verdict = PAGE.check(page_with(values=v_as_it_is))
    assert verdict.case == NANS
    assert verdict.yours.values[2:] == ("NaN", "NaN")
    assert verdict.differ == (2, 3)
    assert verdict.given[3].values[4:] == ("NaN",) * 4
    assert verdict.given[2].values == (*(f"token {token}" for token in range(52, 56)), *["none"] * 4)
