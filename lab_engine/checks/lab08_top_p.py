"""Lab 08, top_p_probs: a sampler."""

from typing import Any

import torch
from torch import Tensor

from lab_engine.checks.case import Args, Case, Mismatch
from lab_engine.checks.exercise import Exercise
from lab_engine.checks.values import describe, first_true, number, numbers_row, window, window_note
from lab_engine.checks.verdict import Row


def top_p_probs(logits: Tensor, p: float, temperature: float) -> Tensor:
    """Probabilities after nucleus (top-p) filtering, ready for sampling.

    logits: float32 (vocab,), in any order. Returns float32 (vocab,): of softmax(logits /
    temperature) the smallest set of most probable tokens whose mass reaches p is kept (at least
    one token) and scaled to sum to 1.
    Temperature 0 gives probability 1 to the largest logit, the lowest id if there are several.

    >>> top_p_probs(torch.tensor([0.5, 0.3, 0.15, 0.05]).log(), p=0.75, temperature=1.0)
    tensor([0.6250, 0.3750, 0.0000, 0.0000])
    """
    if temperature == 0:
        only = torch.zeros_like(logits)
        only[logits.argmax()] = 1
        return only
    probs = torch.softmax(logits / temperature, dim=-1)
    ordered, ids = probs.sort(descending=True, stable=True)
    keep = ordered.cumsum(0) - ordered < p
    keep[0] = True
    kept = torch.zeros_like(probs).scatter(0, ids, ordered * keep)
    return kept / kept.sum()


RTOL = 1e-4


def _judge_top_p(args: Args, expected: Tensor, yours: Any) -> Mismatch | None:
    logits, _, temperature = args
    if not isinstance(yours, Tensor) or not yours.is_floating_point() or yours.shape != logits.shape:
        message = f"returned {describe(yours)}; expected {describe(expected)}: one probability a token"
        return Mismatch(message, about_form=True)
    wanted, found = expected.double(), yours.detach().double()
    if _close(found, wanted) or (temperature and _close(_by_logit(logits, found), _by_logit(logits, wanted))):
        return None
    off = ~torch.isclose(found, wanted, rtol=RTOL, atol=0)
    place = window(len(logits), int(off.nonzero()[0]))
    return Mismatch(
        given=_show_top_p(args, place),
        expected=numbers_row("expected", wanted[place].tolist(), f"sum {number(wanted.sum().item())}"),
        yours=numbers_row("yours", found[place].tolist(), f"sum {number(found.sum().item())}"),
        differ=tuple(i for i, wrong in enumerate(off[place].tolist()) if wrong),
        hint=_hint_for_top_p(args, wanted, found),
    )


def _close(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(a, b, rtol=RTOL, atol=0)


def _by_logit(logits: Tensor, probs: Tensor) -> Tensor:
    """probs ordered by their logits: of equally probable tokens any may be kept, except at temperature 0."""
    order = sorted(range(len(logits)), key=lambda i: (logits[i].item(), probs[i].item()))
    return probs[order]


def _hint_for_top_p(args: Args, expected: Tensor, yours: Tensor) -> str:
    logits, p, temperature = args
    if temperature == 0 or p == 0 or yours.isnan().any():
        return ""
    full = torch.softmax(logits.double() / temperature, dim=-1)
    multiplied = top_p_probs(logits.double(), p, 1 / temperature)
    kept, wanted = yours > 0, expected > 0
    upwards = _close(yours, full) or (full[0] == full.max() and not kept[0])
    fewer = temperature == 1 and bool((kept <= wanted).all()) and not kept.equal(wanted)
    return first_true(
        (temperature != 1 and _close(yours, multiplied), "Divide the logits by the temperature, don't multiply."),
        (bool(upwards), "Largest first: sort downwards, keep until the mass reaches p, drop the rest."),
        (kept.equal(wanted) and _close(yours[kept], full[kept]), "Sums to 1: divide what is kept by its sum."),
        (fewer, "It is what reaches p: the token that crosses p belongs to the set."),
    )


def _show_top_p(args: Args, place: slice | None = None) -> tuple[Row, ...]:
    logits, p, temperature = args
    place = place or window(len(logits), 0)
    return (
        numbers_row("p, temperature", [p, temperature]),
        numbers_row("logit", logits[place].tolist(), window_note("token", place, len(logits))),
    )


def _logits(*probs: float) -> Tensor:
    return torch.tensor(probs).log()


_EXAMPLE = (0.5, 0.3, 0.15, 0.05)
_EMPTY = "At least one token stays, whatever p is."
_RANDOM = torch.randn(37, generator=torch.Generator().manual_seed(2)) * 2

TOP_P_CASES = (
    Case("the example", (_logits(*_EXAMPLE), 0.75, 1.0), "Keep where (cumulative − own) < p, then scale to sum 1."),
    Case("one token reaches p", (_logits(*_EXAMPLE), 0.4, 1.0), "It is what reaches p: the first token alone has 0.5."),
    Case("four equal logits", (torch.zeros(4), 0.5, 1.0), "Two of four equal tokens have the mass 0.5."),
    Case(
        "unsorted", (_logits(0.05, 0.5, 0.15, 0.3), 0.75, 1.0), "Undo the sort: the mask is by rank, the result by id."
    ),
    Case("37 tokens, unsorted", (_RANDOM, 0.8, 1.0), "Undo the sort: the mask is by rank, the result by id."),
    Case("temperature 2", (_logits(*_EXAMPLE), 0.75, 2.0), "The set depends on T: temperature first, then the cut."),
    Case("temperature 0.5", (_logits(*_EXAMPLE), 0.75, 0.5), "Divide the logits by the temperature before softmax."),
    Case("temperature 0", (torch.tensor([1.0, 3.0, 2.0, 3.0]), 0.9, 0.0), "No division by 0. Ties to the lowest id."),
    Case(
        "logits of 1000",
        (torch.tensor([1000.0, 998.0, 1001.0, 990.0]), 0.95, 1.0),
        "inf/inf is NaN: take the maximum out before exp, or use torch.softmax.",
    ),
    Case("p = 0", (_logits(*_EXAMPLE), 0.0, 1.0), _EMPTY),
    Case("p = 1", (_logits(*_EXAMPLE), 1.0, 1.0), "Everything is needed to reach 1."),
)


EXERCISE = Exercise(
    lab="08_decoder",
    solution=top_p_probs,
    cases=TOP_P_CASES,
    judge=_judge_top_p,
    show=_show_top_p,
    first_hints=(
        "Sort downwards and cumulate; then undo the sort.",
        "Keep where (cumulative − own) < p, and always the first.",
    ),
    hint_without_value=lambda case, error: case.hint if error is not None and 0 in case.args[1:] else "",
)
