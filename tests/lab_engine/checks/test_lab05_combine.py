import math

import pytest
import torch

from lab_engine import paged_attention
from lab_engine.checks.lab05_combine import EXERCISE as COMBINE
from lab_engine.checks.lab05_combine import combine
from tests.lab_engine.checks.answers import names

INF = math.inf


def plain(o1, lse1, o2, lse2):
    """Without any guard."""
    m = max(lse1, lse2)
    w1, w2 = math.exp(lse1 - m), math.exp(lse2 - m)
    return (w1 * o1 + w2 * o2) / (w1 + w2), m + math.log(w1 + w2)


def with_out(out):
    """A combine whose output alone is wrong, on parts that have seen something."""

    def run(o1, lse1, o2, lse2):
        o, lse = combine(o1, lse1, o2, lse2)
        return (o if -INF in (lse1, lse2) else out(o1, lse1, o2, lse2)), lse

    return run


def with_lse(total):
    """A combine whose lse alone is wrong, on parts that have seen something."""

    def run(o1, lse1, o2, lse2):
        o, lse = combine(o1, lse1, o2, lse2)
        return o, (lse if -INF in (lse1, lse2) else total(lse1, lse2))

    return run


def no_maximum(o1, lse1, o2, lse2):
    if lse1 == lse2 == -INF:
        return combine(o1, lse1, o2, lse2)
    o1, o2 = (torch.zeros_like(o) if lse == -INF else o for o, lse in ((o1, lse1), (o2, lse2)))
    w1, w2 = torch.tensor(lse1).exp(), torch.tensor(lse2).exp()
    return (w1 * o1 + w2 * o2) / (w1 + w2), (w1 + w2).log()


def no_maximum_in_python(o1, lse1, o2, lse2):
    w1, w2 = math.exp(lse1), math.exp(lse2)
    return (w1 * o1 + w2 * o2) / (w1 + w2), math.log(w1 + w2)


def guards_both_empty(o1, lse1, o2, lse2):
    if max(lse1, lse2) == -INF:
        return torch.zeros_like(o1), -INF
    return plain(o1, lse1, o2, lse2)


def no_guard(o1, lse1, o2, lse2):
    o1, o2 = o1.nan_to_num(posinf=0, neginf=0), o2.nan_to_num(posinf=0, neginf=0)
    return plain(o1, lse1, o2, lse2)


def clears_nan_alone(o1, lse1, o2, lse2):
    return guards_both_empty(o1.where(~o1.isnan(), 0.0), lse1, o2.where(~o2.isnan(), 0.0), lse2)


def clears_what_is_not_finite(o1, lse1, o2, lse2):
    return guards_both_empty(torch.where(o1.isfinite(), o1, 0.0), lse1, torch.where(o2.isfinite(), o2, 0.0), lse2)


def nan_to_num(o1, lse1, o2, lse2):
    return guards_both_empty(o1.nan_to_num(0, 0, 0), lse1, o2.nan_to_num(0, 0, 0), lse2)


def clears_the_result(o1, lse1, o2, lse2):
    o, lse = combine(o1, lse1, o2, lse2)
    return o.nan_to_num(), lse


def lse_of_empty(total):
    """A combine whose lse alone is wrong, and only where one part is empty."""

    def run(o1, lse1, o2, lse2):
        o, lse = combine(o1, lse1, o2, lse2)
        return o, (total(lse1, lse2) if (lse1 == -INF) != (lse2 == -INF) else lse)

    return run


def skips_the_first_alone(o1, lse1, o2, lse2):
    if lse1 == -INF:
        return (o2, lse2) if lse2 > -INF else (torch.zeros_like(o1), -INF)
    return plain(o1, lse1, o2, lse2)


def returns_the_buffer(o1, lse1, o2, lse2):
    if lse1 == -INF:
        return o2, lse2
    return (o1, lse1) if lse2 == -INF else plain(o1, lse1, o2, lse2)


def the_larger_one(o1, lse1, o2, lse2):
    return (o1, lse1) if lse1 > lse2 else (o2, lse2)


EXAMPLE, EQUAL, BELOW_0 = "the example", "equal lse", "lse −1 and −2.5"
HIGH, LOW, FAR = "lse 800 and 801", "lse −800 and −801", "lse 800 and −800"
FIRST, SECOND, INFS, BOTH, REAL_NAN = (
    "first part empty with a NaN buffer",
    "second part empty with a NaN buffer",
    "inf in an empty buffer",
    "both parts empty",
    "NaN in a part that is not empty",
)
ALL = names(COMBINE)
SEEN = {EXAMPLE, EQUAL, BELOW_0, HIGH, LOW, FAR, REAL_NAN}
NEAR = SEEN - {FAR}
WRONG = {
    "plain average": (with_out(lambda o1, _1, o2, _2: (o1 + o2) / 2), "By mass", SEEN - {EQUAL}),
    "weights = lse": (
        with_out(lambda o1, lse1, o2, lse2: (lse1 * o1 + lse2 * o2) / (lse1 + lse2)),
        "e^lse is the mass of a part",
        SEEN - {EQUAL},
    ),
    "no maximum taken out": (no_maximum, "take the larger lse out first", {HIGH, LOW, FAR}),
    "no maximum, in Python": (no_maximum_in_python, "take the larger lse out first", None),
    "0 × garbage": (guards_both_empty, "do not touch what is empty", {FIRST, SECOND, INFS}),
    "no guard": (no_guard, "−inf − (−inf) is NaN", {BOTH, REAL_NAN}),
    "NaN cleared, inf not": (clears_nan_alone, "do not touch what is empty", {INFS, REAL_NAN}),
    "what is not finite cleared": (clears_what_is_not_finite, "This NaN stays: its part saw tokens", {REAL_NAN}),
    "nan_to_num": (nan_to_num, "This NaN stays: its part saw tokens", {REAL_NAN}),
    "nan_to_num of the result": (clears_the_result, "This NaN stays: its part saw tokens", {REAL_NAN}),
    "lse of an empty part = min": (lse_of_empty(min), "the lse is that of the other part", {FIRST, SECOND, INFS}),
    "lse of an empty part = 0": (lse_of_empty(lambda *_: 0.0), "the lse is that of the other", {FIRST, SECOND, INFS}),
    "lse of an empty part is NaN": (
        lse_of_empty(lambda lse1, lse2: lse1 - lse1 + lse2 - lse2),
        "the lse is that of the other part",
        {FIRST, SECOND, INFS},
    ),
    "one empty part alone": (skips_the_first_alone, "do not touch what is empty", {SECOND, INFS}),
    "the buffer of an empty part": (returns_the_buffer, "two empty parts give zeros", {BOTH}),
    "lse = max": (with_lse(max), "log of the sum", NEAR),
    "lse added": (with_lse(lambda lse1, lse2: lse1 + lse2), "log of the sum", SEEN),
    "lse averaged": (with_lse(lambda lse1, lse2: (lse1 + lse2) / 2), "log of the sum", SEEN),
    "maximum not put back": (
        with_lse(lambda lse1, lse2: math.log1p(math.exp(-abs(lse1 - lse2)))),
        "Put the maximum back",
        SEEN,
    ),
    "not divided": (
        with_out(
            lambda o1, lse1, o2, lse2: math.exp(lse1 - max(lse1, lse2)) * o1 + math.exp(lse2 - max(lse1, lse2)) * o2
        ),
        "The two weights sum to 1",
        NEAR,
    ),
    "outputs added": (with_out(lambda o1, _1, o2, _2: o1 + o2), "The two weights sum to 1", SEEN),
    "weights exchanged": (
        with_out(lambda o1, lse1, o2, lse2: plain(o2, lse1, o1, lse2)[0]),
        "Each output has its own weight",
        SEEN - {EQUAL},
    ),
    "the larger one": (the_larger_one, "The smaller part has its share too", {*NEAR, BOTH}),
    "the example's answer": (
        lambda *_: (torch.tensor([4.5231884, -1.5231884]), 5.126928),
        "Equal mass",
        ALL - {EXAMPLE},
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_combine_fails_with_its_own_hint_on_the_cases_that_show_it(name, failing_cases):
    wrong, hint, only = WRONG[name]
    verdict = COMBINE.check(wrong)
    assert verdict.status == "failed"
    assert hint in verdict.hint, verdict
    if only is not None:
        assert failing_cases(COMBINE, wrong) == only


def with_logaddexp(o1, lse1, o2, lse2):
    lse = torch.logaddexp(torch.tensor(lse1), torch.tensor(lse2))
    if lse == -INF:
        return o1.new_zeros(o1.shape), lse
    parts = [(o, torch.exp(part - lse)) for o, part in ((o1, lse1), (o2, lse2)) if part > -INF]
    return sum(weight * o for o, weight in parts), lse


def by_a_sigmoid(o1, lse1, o2, lse2):
    if lse1 == -INF and lse2 == -INF:
        return torch.zeros(len(o1)), -INF
    if lse1 == -INF or lse2 == -INF:
        return (o2.clone(), lse2) if lse1 == -INF else (o1.clone(), lse1)
    share = torch.sigmoid(torch.tensor(lse1 - lse2, dtype=torch.float64)).item()
    return o1 * share + o2 * (1 - share), max(lse1, lse2) + math.log1p(math.exp(-abs(lse1 - lse2)))


def with_where(o1, lse1, o2, lse2):
    lse = torch.tensor([lse1, lse2])
    o = torch.where((lse == -INF)[:, None], 0.0, torch.stack([o1, o2]))
    m = torch.where(lse.max() == -INF, 0.0, lse.max())
    mass = torch.exp(lse - m)
    return mass @ o / torch.where(mass.sum() == 0, 1.0, mass.sum()), m + mass.sum().log()


def hands_out_the_only_part(o1, lse1, o2, lse2):
    if lse1 == -INF and lse2 > -INF:
        return o2, lse2
    if lse2 == -INF and lse1 > -INF:
        return o1, lse1
    return combine(o1, lse1, o2, lse2)


RIGHT = [combine, with_logaddexp, by_a_sigmoid, with_where, hands_out_the_only_part]


@pytest.mark.parametrize("right", RIGHT)
def test_a_right_combine_passes(right):
    verdict = COMBINE.check(right)
    assert verdict.status == "passed", verdict


def test_equal_parts_would_let_a_plain_average_and_weights_of_lse_pass(failing_cases):
    for name in ("plain average", "weights = lse"):
        assert EQUAL not in failing_cases(COMBINE, WRONG[name][0])


def test_a_zeroed_buffer_would_let_0_times_garbage_pass():
    empty = torch.zeros(2), -INF, torch.tensor([2.5, -1.5]), 2.0
    assert [part.tolist() for part in guards_both_empty(*empty)[:1]] == [part.tolist() for part in combine(*empty)[:1]]
    assert all(o.isnan().any() or o.isinf().any() for o in (case.args[0] + case.args[2] for case in COMBINE.cases[6:]))


def test_a_sum_written_into_an_argument_is_named():
    def in_place(o1, lse1, o2, lse2):
        o, lse = combine(o1, lse1, o2, lse2)
        return o1.copy_(o), lse

    verdict = COMBINE.check(in_place)
    assert verdict.case == EXAMPLE
    assert verdict.message == "the result is right, but your function changed one of its arguments"


def test_the_published_example():
    o, lse = combine(torch.tensor([1.0, 2.0]), 3.0, torch.tensor([5.0, -2.0]), 5.0)
    assert o.tolist() == pytest.approx([4.5232, -1.5232], abs=1e-4)
    assert lse == pytest.approx(5.12693, abs=1e-5)
    assert (5 - o[0].item()) / 4 == pytest.approx(0.1192, abs=1e-4)


@pytest.mark.parametrize("cut", [0, 1, 16, 39, 40])
def test_two_parts_of_one_row_combine_to_the_whole(cut):
    dice = torch.Generator().manual_seed(cut)
    scores, v = 5 * torch.randn(40, generator=dice, dtype=torch.float64), torch.randn(40, 3, generator=dice).double()

    def part(rows):
        if not len(scores[rows]):
            return torch.full((3,), math.nan), -INF
        return (torch.softmax(scores[rows], 0) @ v[rows]).float(), float(torch.logsumexp(scores[rows], 0))

    o, lse = combine(*part(slice(cut)), *part(slice(cut, None)))
    whole, whole_lse = part(slice(None))
    assert o.tolist() == pytest.approx(whole.tolist(), rel=1e-5, abs=1e-6)
    assert lse == pytest.approx(whole_lse, rel=1e-12)


@pytest.mark.parametrize("case", COMBINE.cases, ids=lambda case: case.name)
def test_the_solution_does_what_the_engine_does(case):
    o1, lse1, o2, lse2 = case.args
    o, lse = paged_attention.combine(torch.stack([o1, o2]), torch.tensor([lse1, lse2]))
    found, found_lse = combine(*case.args)
    assert torch.allclose(found, o, rtol=1e-4, equal_nan=True)
    assert found_lse == pytest.approx(lse.item(), rel=1e-6)


def of(change):
    return lambda *args: change(*combine(*args))


@pytest.mark.parametrize(
    ("wrong", "message", "hint"),
    [
        (of(lambda o, lse: [o, lse]), "returned a list; expected (o, lse)", "A tuple: `return o, lse`."),
        (of(lambda o, _: o), "returned a float32 tensor of shape (2,); expected (o, lse)", ""),
        (of(lambda o, lse: (lse, o)), "returned a tuple whose o is a float; expected a float32 tensor", ""),
        (of(lambda o, lse: (o.double(), lse)), "returned a tuple whose o is a float64 tensor of shape (2,); ", ""),
        (of(lambda o, lse: (o[None], lse)), "returned a tuple whose o is a float32 tensor of shape (1, 2); ", ""),
        (of(lambda o, lse: (o.tolist(), lse)), "returned a tuple whose o is a list; expected a float32 tensor", ""),
        (of(lambda o, lse: (o, str(lse))), "returned a tuple whose lse is a str; expected a float", ""),
    ],
)
def test_another_form_is_refused_in_words(wrong, message, hint):
    verdict = COMBINE.check(wrong)
    assert verdict.message.startswith(message)
    assert verdict.hint == hint


def test_the_log_of_0_is_explained(failing_cases):
    def in_python(o1, lse1, o2, lse2):
        w1, w2 = math.exp(min(lse1, 0)), math.exp(min(lse2, 0))
        lse = math.log(w1 + w2)
        return combine(o1, lse1, o2, lse2) if lse <= INF else None

    verdict = COMBINE.check(in_python)
    assert (verdict.case, verdict.hint) == (LOW, COMBINE.cases[4].hint)
    assert failing_cases(COMBINE, in_python) == {LOW, BOTH}


def test_the_verdict_shows_both_parts_and_both_results_below_one_heading():
    verdict = COMBINE.check(WRONG["plain average"][0])
    assert [(row.label, row.values) for row in verdict.rows] == [
        ("part", ("o[0]", "o[1]", "lse")),
        ("1", ("1", "2", "3")),
        ("2", ("5", "−2", "5")),
        ("expected", ("4.52319", "−1.52319", "5.12693")),
        ("yours", ("3", "0", "5.12693")),
    ]
    assert verdict.differ == (0, 1)
