"""Lab 05, attend_page: the softmax state of one page whose last slots may hold no token."""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from lab_engine.checks.case import Args, Case, Mismatch
from lab_engine.checks.exercise import Exercise
from lab_engine.checks.lab05_state import (
    DIGITS,
    State,
    close,
    different_states,
    hint_of_same,
    state_numbers,
    wrong_state,
)
from lab_engine.checks.values import numbers_row, window, window_note
from lab_engine.checks.verdict import Row


def attend_page(
    scores: Tensor,
    v: Tensor,
    length: int,
    page: int,
) -> tuple[float, float, Tensor]:
    """The softmax state of one page alone: m, l and acc over the slots that hold a token.

    scores: float32 (16,), v: float32 (16, d): the slots of logical page `page`. length counts
    the tokens of the sequence, the current one included: slot s of the page holds token
    16 · page + s if that is below length, and at least slot 0 does. Other slots are undefined
    memory, in scores and in v: old numbers, infinities, NaN.
    m: the largest score. l: the sum of e^(score - m). acc: float32 (d,), the sum of
    e^(score - m) · v. The arguments stay as they are.

    >>> scores, v = torch.full((16,), torch.nan), torch.full((16, 1), torch.nan)
    >>> scores[:2], v[:2, 0] = torch.tensor([1.0, 3]), torch.tensor([10.0, 20])
    >>> m, l, acc = attend_page(scores, v, length=34, page=2)
    >>> print(f"{m:.0f}  {l:.4f}  {acc.item():.4f}")
    3  1.1353  21.3534
    """
    valid = 16 * page + torch.arange(16) < length
    scores = torch.where(valid, scores, -math.inf)
    v = torch.where(valid[:, None], v, 0.0)
    m = scores.max()
    p = torch.exp(scores - m)
    return m.item(), p.sum().item(), p @ v


def _judge(args: Args, expected: State, yours: Any) -> Mismatch | None:
    return wrong_state(yours, expected) or different_states(_show(args), expected, yours, _hint(args, expected, yours))


def _hint(args: Args, expected: State, yours: Any) -> str:
    _, v, length, page = args
    valid = 16 * page + torch.arange(16) < length
    if not v[~valid].isfinite().all():
        m_and_l_are_right = all(map(close, state_numbers(yours)[:2], expected[:2]))
        return _SELECT_V if m_and_l_are_right else _SELECT_SCORES
    return hint_of_same(yours, _wrong_states(args, valid, expected))


def _wrong_states(args: Args, valid: Tensor, expected: State) -> Iterator[tuple[State, str]]:
    """The wrong answers that people give, computed: other slots, other masks, each with V zeroed or as it is."""
    scores, v, length, page = args
    token = 16 * page + torch.arange(16)
    for kept, hint in (
        (token >= 0, _NO_MASK),
        (token <= length, _ONE_MORE),
        (token < length - 1, _CURRENT),
        (torch.arange(16) < length % 16, _LAST_PAGE),
        (~valid, _OTHERS),
    ):
        selected = torch.where(kept, scores, -math.inf)
        yield _state(selected, torch.where(kept[:, None], v, 0.0)), hint
    zeroed = torch.where(valid[:, None], v, 0.0)
    for masked, hint in (
        (scores, _NO_MASK),
        (torch.where(valid, scores, 0.0), _NOT_0),
        (torch.where(valid, scores, -1e4), _BEATEN),
        (torch.where(valid, scores, -1e9), _BEATEN),
    ):
        for values in (zeroed, v):
            yield _state(masked, values), hint
    m, l, acc = expected
    yield (m, l, acc / l), "acc stays a sum: it is divided once, after the last page."
    yield (m, 1.0, acc / l), "l and acc stay sums: acc is divided by l once, after the last page."
    yield _without_maximum(scores[valid], v[valid]), "The exponent is s − m, not s: take m out before `exp`."
    yield _state(torch.where(valid, scores, -math.inf), zeroed, float(scores.max())), _MASK_FIRST


def _state(scores: Tensor, v: Tensor, m: float | None = None) -> State:
    """As a learner's code computes it: no guard."""
    m = float(scores.max()) if m is None else m
    p = torch.exp(scores.double() - m)
    return m, float(p.sum()), p @ v.double()


def _without_maximum(scores: Tensor, v: Tensor) -> State:
    p = torch.exp(scores.double())
    return float(scores.max()), float(p.sum()), p @ v.double()


def _show(args: Args) -> tuple[Row, ...]:
    scores, v, length, page = args
    held = min(16, length - 16 * page)
    place = window(16, held)
    slots = range(16)[place]
    return (
        Row("length, page", (str(length), str(page))),
        Row("slot", tuple(map(str, slots)), window_note("slot", place, 16)),
        Row("holds", tuple(f"token {16 * page + slot}" if slot < held else "none" for slot in slots)),
        numbers_row("scores", scores[place].tolist(), digits=DIGITS),
        numbers_row("v[:, 0]", v[place, 0].tolist(), digits=DIGITS),
    )


_SUMS = "m is the largest score; l sums e^(s − m), acc the same times v."
_NO_MASK = "Which slots hold tokens? Slots from `length` on take part in your sums."
_ONE_MORE = "Token number `length` does not exist: with 56 tokens slot 8 of page 3 is empty. It is `<`."
_CURRENT = "The current token counts: `length` includes it."
_LAST_PAGE = "Only the last page has a tail, and a full one has 16 slots: compare 16 · page + slot with `length`."
_NOT_0 = "−inf, not 0: e^0 is 1, and more than e^(−5)."
_BEATEN = "A number can be beaten: these scores are below yours. Only −inf is below all."
_SELECT_V = "0 × NaN is NaN, and 0 × inf too: select the rows of v with `where`, do not multiply."
_SELECT_SCORES = "NaN + (−inf) is NaN, and NaN × 0 too: select the scores with `where`, do not add and do not multiply."
_OTHERS = "The other way round: these are the slots without a token."
_MASK_FIRST = "Mask before you take the maximum: here an empty slot holds the largest score."
_FULL = "All 16 slots hold tokens."


def _slots(seed: int, level: float, held: int, empty: str) -> tuple[Tensor, Tensor]:
    """Scores around level and different values of v in the slots that hold tokens; the others as `empty` says."""
    dice = torch.Generator().manual_seed(seed)
    scores = level + (2 * torch.rand(16, generator=dice) - 1)
    v = 1 + 8 * torch.rand(16, 2, generator=dice)
    if empty == "stale":  # of the same size as the others, and one of them is the largest
        scores[held + 1 :][:1] += 2
        return scores, v
    fill = torch.tensor({"NaN": torch.nan, "inf": math.inf, "0": 0.0}[empty])
    scores[held:], v[held:] = fill, fill
    return scores, v


def _far_below() -> Case:
    """Pairs of equal scores that rise from slot to slot, in whole float32 steps: 256 at this size."""
    scores = -4e9 + 20_480.0 * (torch.arange(16) // 2)
    _, v = _slots(59, 0.0, 8, "stale")
    return Case("scores about −4,000,000,000", (scores, v, 56, 3), _BEATEN)


def _case(name: str, length: int, page: int, hint: str, level: float = 2.0, empty: str = "stale") -> Case:
    scores, v = _slots(length + page, level, min(16, length - 16 * page), empty)
    return Case(name, (scores, v, length, page), hint)


CASES = (
    _case("56 tokens on page 3", 56, 3, _SUMS),
    _case("56 tokens on page 2", 56, 2, _FULL),
    _case("48 tokens on page 2", 48, 2, _CURRENT),
    _case("17 tokens on page 1", 17, 1, "One slot holds a token."),
    _case("scores about −5", 56, 3, _SUMS, level=-5.0),
    _case("scores about −20,000", 56, 3, _BEATEN, level=-20_000.0),
    _far_below(),
    _case("0 in the empty slots", 56, 3, _SUMS, empty="0"),
    _case("NaN in the empty slots", 56, 3, _SELECT_V, empty="NaN"),
    _case("inf in the empty slots", 56, 3, _SELECT_V, empty="inf"),
)


EXERCISE = Exercise(
    lab="05_paged_attention",
    solution=attend_page,
    cases=CASES,
    judge=_judge,
    show=_show,
    first_hints=(
        "Slot s of this page holds token 16 · page + s. Which of them are there?",
        "`torch.where` twice: on the scores with −inf, and on the rows of v with 0. Then m, l and acc as before.",
    ),
)
