"""Lab 05, combine: two partial results of attention become one, though a part may have seen nothing."""

import math
from typing import Any

import torch
from torch import Tensor

from lab_engine.checks.case import Args, Case, Mismatch
from lab_engine.checks.exercise import Exercise
from lab_engine.checks.lab05_state import DIGITS, close, wrong_parts
from lab_engine.checks.values import error_text, first_true, numbers_row
from lab_engine.checks.verdict import Row


def combine(
    o1: Tensor,
    lse1: float,
    o2: Tensor,
    lse2: float,
) -> tuple[Tensor, float]:
    """Join what two workers computed over different pages: the output and the lse of both.

    o1, o2: float32 (d,), outputs that each worker has divided by its own l. lse1, lse2: the log
    of the sum of e^score over its pages. A worker that saw no token has lse -inf, and what its
    output holds is undefined. Both saw none: zeros and -inf. A NaN in a part that saw tokens
    stays. The arguments stay as they are.

    >>> o, lse = combine(torch.tensor([1.0, 2]), 3.0, torch.tensor([5.0, -2]), 5.0)
    >>> print(o, f"{lse:.5f}")
    tensor([ 4.5232, -1.5232]) 5.12693
    """
    m = max(lse1, lse2)
    o = torch.zeros_like(o1)
    if m == -math.inf:
        return o, m
    weights = math.exp(lse1 - m), math.exp(lse2 - m)
    for part, weight in zip((o1, o2), weights, strict=True):
        if weight > 0:
            o += weight / sum(weights) * part
    return o, m + math.log(sum(weights))


Combined = tuple[Tensor, float]


def _judge(args: Args, expected: Combined, yours: Any) -> Mismatch | None:
    wrong_form = wrong_parts(yours, {"o": expected[0], "lse": expected[1]}, "o, lse")
    if wrong_form is not None:
        return wrong_form
    wanted, found = _numbers(expected), _numbers(yours)
    differ = tuple(i for i in range(len(wanted)) if not close(found[i], wanted[i]))
    if not differ:
        return None
    return Mismatch(
        expected=numbers_row("expected", wanted, digits=DIGITS),
        yours=numbers_row("yours", found, digits=DIGITS),
        differ=differ,
        hint=_hint(args, found[:-1]) if differ[0] < len(wanted) - 1 else _hint_for_lse(args, found[-1]),
    )


def _numbers(combined: Any) -> list[float]:
    o, lse = combined
    return [*o.detach().double().tolist(), float(lse)]


def _hint(args: Args, found: list[float]) -> str:
    """Whose output is this? Of the wrong answers that people give, computed without any guard."""
    o1, lse1, o2, lse2 = args
    o, lse = torch.stack([o1, o2]).double(), torch.tensor([lse1, lse2], dtype=torch.float64)
    mass = torch.exp(lse - lse.max())
    answers = (
        (o.mean(0), _MASS),
        (lse / lse.sum() @ o, "e^lse is the mass of a part, not lse itself."),
        (o.sum(0), _SUM_TO_1),
        (mass @ o, _SUM_TO_1),
        (torch.exp(lse) @ o, _SUM_TO_1),
        (mass.flip(0) @ o / mass.sum(), "Each output has its own weight: yours are exchanged."),
        (o[int(lse.argmax())], "The smaller part has its share too: e^(lse − m) of it."),
    )
    if lse.isinf().any():
        return ""
    return first_true(*((all(map(close, found, answer.tolist())), hint) for answer, hint in answers))


def _hint_for_lse(args: Args, found: float) -> str:
    lse = torch.tensor([args[1], args[3]], dtype=torch.float64)
    without_maximum = float(torch.exp(lse - lse.max()).sum().log())
    return first_true(
        (math.isinf(lse.max()), ""),
        (math.isinf(lse.min()), _OTHERS_LSE),
        (close(found, without_maximum), "Put the maximum back: lse = m + log of the sum."),
        (True, _LOG),
    )


def _hint_without_value(case: Case, error: BaseException | None) -> str:
    outside = isinstance(error, OverflowError | ZeroDivisionError) or "math domain" in error_text(error or ValueError())
    return case.hint if outside else ""


def _show(args: Args) -> tuple[Row, ...]:
    o1, lse1, o2, lse2 = args
    return (
        Row("part", (*(f"o[{i}]" for i in range(len(o1))), "lse")),
        numbers_row("1", [*o1.tolist(), lse1]),
        numbers_row("2", [*o2.tolist(), lse2]),
    )


_MASS = "By mass: a part that saw larger scores weighs more."
_SUM_TO_1 = "The two weights sum to 1: divide by the sum of e^(lse − m)."
_LOG = "lse is the log of the sum, m + ln(e^(lse1 − m) + e^(lse2 − m)): more than the larger of the two."
_LARGE = "e^800 is more than a float holds, and e^(−800) is 0: take the larger lse out first."
_GARBAGE = "0 × NaN is NaN: do not touch what is empty."
_OTHERS_LSE = "An empty part adds no mass: the lse is that of the other part."
_STAYS = "This NaN stays: its part saw tokens. Whether a part is empty is seen in its lse, not in its output."
_EMPTY = "−inf − (−inf) is NaN: two empty parts give zeros and −inf."


def _case(name: str, hint: str, o1: tuple[float, ...], lse1: float, o2: tuple[float, ...], lse2: float) -> Case:
    return Case(name, (torch.tensor(o1), lse1, torch.tensor(o2), lse2), hint)


_NAN = (math.nan, math.nan)
_OUT = (2.5, -1.5)

CASES = (
    _case("the example", _MASS, (1.0, 2.0), 3.0, (5.0, -2.0), 5.0),
    _case("equal lse", "Equal mass: half of each output, and lse + ln 2.", (4.0, 1.0), 1.5, (2.0, -3.0), 1.5),
    _case("lse −1 and −2.5", _MASS, (3.0, 1.0, -2.0), -1.0, (0.5, 4.0, 2.0), -2.5),
    _case("lse 800 and 801", _LARGE, (1.0, 2.0), 800.0, (5.0, -2.0), 801.0),
    _case("lse −800 and −801", _LARGE, (1.0, 2.0), -800.0, (5.0, -2.0), -801.0),
    _case("lse 800 and −800", _LARGE, (1.0, 2.0), 800.0, (5.0, -2.0), -800.0),
    _case("first part empty with a NaN buffer", _GARBAGE, _NAN, -math.inf, _OUT, 2.0),
    _case("second part empty with a NaN buffer", _GARBAGE, _OUT, 2.0, _NAN, -math.inf),
    _case("inf in an empty buffer", _GARBAGE, _OUT, -3.0, (math.inf, -math.inf), -math.inf),
    _case("both parts empty", _EMPTY, _NAN, -math.inf, (7.0, 7.0), -math.inf),
    _case("NaN in a part that is not empty", _STAYS, (math.nan, 1.0), 2.0, (5.0, -2.0), 3.0),
)


EXERCISE = Exercise(
    lab="05_paged_attention",
    solution=combine,
    cases=CASES,
    judge=_judge,
    show=_show,
    first_hints=(
        "m = max(lse1, lse2). What is the mass of each part, as a multiple of e^m?",
        "Two weights, e^(lse1 − m) and e^(lse2 − m), and one sum. It divides the outputs; its log, plus m, is the lse.",
    ),
    hint_without_value=_hint_without_value,
)
