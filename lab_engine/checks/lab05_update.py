"""Lab 05, online_softmax_update: one more page for the running softmax."""

import math
from typing import Any

import torch
from torch import Tensor

from lab_engine.checks.case import Args, Case, Mismatch
from lab_engine.checks.exercise import Exercise
from lab_engine.checks.lab05_state import State, different_states, hint_of_same, softmax_state, state_rows, wrong_state
from lab_engine.checks.values import first_true, numbers_row
from lab_engine.checks.verdict import Row


def online_softmax_update(
    m: float,
    l: float,
    acc: Tensor,
    scores: Tensor,
    v: Tensor,
) -> tuple[float, float, Tensor]:
    """Bring the running softmax up to date with one more page; returns the new m, l, acc.

    m: the largest score so far. l: the sum of e^(score - m). acc: float32 (d,), the sum of
    e^(score - m) · v. They start as -inf, 0 and zeros. scores: float32 (n,), -inf where a
    slot is masked; v: float32 (n, d), finite. A page of only -inf leaves the state as it is.
    The arguments stay as they are.

    >>> state = -math.inf, 0.0, torch.zeros(1)
    >>> scores, v = torch.tensor([1.0, 3.0]), torch.tensor([[10.0], [20.0]])
    >>> m, l, acc = online_softmax_update(*state, scores, v)
    >>> print(f"{m:.0f}  {l:.4f}  {acc.item():.4f}")
    3  1.1353  21.3534
    """
    new_m = max(m, scores.max().item())
    if new_m == -math.inf:
        return m, l, acc
    factor = math.exp(m - new_m)
    p = torch.exp(scores - new_m)
    return new_m, l * factor + p.sum().item(), acc * factor + p @ v


def _judge(args: Args, expected: State, yours: Any) -> Mismatch | None:
    return wrong_state(yours, expected) or different_states(_show(args), expected, yours, _hint(args, expected, yours))


def _hint(args: Args, expected: State, yours: Any) -> str:
    """What the numbers themselves say, then the wrong answers that people give, computed."""
    m, _, _, scores, _ = args
    new_m, page_m = float(yours[0]), float(scores.max())
    return first_true(
        (expected[0] == -math.inf, _NOTHING_SEEN),
        (new_m == page_m < m, _NEVER_FALLS),
        (new_m == 0 > expected[0], _START),
    ) or hint_of_same(yours, _wrong_states(*args))


def _wrong_states(m: float, l: float, acc: Tensor, scores: Tensor, v: Tensor) -> tuple[tuple[State, str], ...]:
    new_m = max(m, float(scores.max()))
    factor, upside_down = (float(torch.tensor(power, dtype=torch.float64).exp()) for power in (m - new_m, new_m - m))

    def state(taken_out: float, of_l: float, of_acc: float) -> State:
        p = torch.exp(scores.double() - taken_out)
        return new_m, of_l * l + float(p.sum()), of_acc * acc + p @ v.double()

    _, right_l, right_acc = state(new_m, factor, factor)
    return (
        (state(new_m, 1, factor), _RESCALE + " `l` too: it is a sum of such terms."),
        (state(new_m, factor, 1), _RESCALE + " `acc` too: it is a sum of such terms."),
        (state(new_m, 1, 1), _RESCALE),
        (state(new_m, upside_down, upside_down), _RESCALE + " The factor e^(old m − new m) is at most 1."),
        (state(m, factor, factor), _RESCALE + " The scores of this page too take the new m."),
        (state(m, 1, 1), _RESCALE),
        (state(new_m, 0, 0), "The page is added to what came before it: factor · l + …, factor · acc + …"),
        ((new_m, right_l, right_acc / right_l), _DIVIDE),
    )


def _hint_without_value(_case: Case, error: BaseException | None) -> str:
    return _LARGE if isinstance(error, OverflowError) else ""


def _show(args: Args) -> tuple[Row, ...]:
    m, l, acc, scores, v = args
    slots = slice(0, 8)
    rows = [numbers_row(f"v[:, {i}]", v[slots, i].tolist()) for i in range(min(2, v.shape[1]))]
    return (
        numbers_row("scores", scores[slots].tolist(), f"slot 0–7 of {len(scores)}" if len(scores) > 8 else ""),
        *rows,
        *state_rows((m, l, acc)),
    )


_RESCALE = "What was e^(s − old m) must become e^(s − new m)."
_NEVER_FALLS = "m never falls: it is the maximum of all pages so far, not of this one."
_NOTHING_SEEN = "Nothing seen yet: −inf − (−inf) is NaN. Leave the state as it is."
_START = "m starts at −inf, not at 0: in float32 every e^(−200) is 0."
_ALL_SCORES = "All scores of the page count, each with its sign: m is the largest of them."
_DIVIDE = "Divide once, at the end: acc stays a sum."
_LARGE = "Take the new maximum out before e^…: e^800 is more than a float holds."
_MASKED = "A masked slot has the score −inf: e^(−inf) = 0, so it adds nothing."


def _case(name: str, hint: str, *pages: tuple[Tensor, Tensor]) -> Case:
    """The state after all pages but the last, and the last."""
    *before, (scores, v) = pages
    nothing = (torch.tensor([-math.inf]), torch.zeros(1, v.shape[1]))
    seen_scores, seen_v = (torch.cat(parts) for parts in zip(nothing, *before, strict=True))
    return Case(name, (*softmax_state(seen_scores, seen_v), scores, v), hint)


def _page(*rows: tuple[float, ...]) -> tuple[Tensor, Tensor]:
    """One slot a row: its score, then its v."""
    table = torch.tensor(rows, dtype=torch.float32)
    return table[:, 0].clone(), table[:, 1:].clone()


def _random(generator: torch.Generator, middle: float) -> tuple[Tensor, Tensor]:
    scores = middle + torch.randn(16, generator=generator)
    return scores, 1 + torch.rand(16, 5, generator=generator)


_DICE = torch.Generator().manual_seed(5)
_FIRST, _SECOND, _THIRD = _page((1, 10), (3, 20)), _page((2, 30), (5, 40)), _page((4, 50))
_NORMAL = _page((4.5, 10, 3), (2.5, 20, 7))
_BLIND = _page((-math.inf, 30, 5), (-math.inf, 40, 2))

CASES = (
    _case("the example's first page", "e^(s − m) of each score, summed, and summed with v.", _FIRST),
    _case("the example's second page (the maximum rises)", _RESCALE, _FIRST, _SECOND),
    _case("the example's third page (the maximum stays)", _NEVER_FALLS, _FIRST, _SECOND, _THIRD),
    _case("a falling maximum", _NEVER_FALLS, _NORMAL, _page((1.5, 30, 5), (0.5, 40, 2))),
    _case("equal scores", "e^0 = 1 for each of them.", _page((2, 10, 3), (2, 20, 7)), _page((2, 30, 5), (2, 40, 2))),
    _case("a first page of scores about −200", _ALL_SCORES, _page((-203, 10, 3), (-200, 20, 7), (-201, 30, 5))),
    _case("scores about 800", _LARGE, _page((800, 10, 3), (803, 20, 7)), _page((805, 30, 5), (802, 40, 2))),
    _case("a page with masked slots", _MASKED, _NORMAL, _page((-math.inf, 30, 5), (5.5, 40, 2), (-math.inf, 50, 4))),
    _case("a later page all masked", _MASKED, _NORMAL, _BLIND),
    _case("a first page all masked", _NOTHING_SEEN, _BLIND),
    _case("three pages of 16 slots", _ALL_SCORES, *(_random(_DICE, middle) for middle in (1.0, 2.0, 4.0))),
)


EXERCISE = Exercise(
    lab="05_paged_attention",
    solution=online_softmax_update,
    cases=CASES,
    judge=_judge,
    show=_show,
    first_hints=(
        "The new m comes first: the old one or the largest score of the page.",
        "One factor, e^(old m − new m), for both l and acc. Then the page is added with e^(score − new m).",
    ),
    hint_without_value=_hint_without_value,
)
