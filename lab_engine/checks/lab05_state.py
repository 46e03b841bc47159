"""Lab 05's softmax state (m, l, acc): what a right one looks like, and two of them side by side."""

import math
import numbers
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from lab_engine.checks.case import Mismatch
from lab_engine.checks.values import describe, first_true, numbers_row
from lab_engine.checks.verdict import Row

RTOL = 1e-4
"""Relative, of every number: float32 rounds at 1e-7, and the mistakes are far larger."""

DIGITS = 6
"""Shown of a result: what differs by RTOL is then seen to differ."""

State = tuple[float, float, Tensor]


def as_number(value: Any) -> float | None:
    """A number, or a tensor without dimensions, as a float; None for anything else."""
    if isinstance(value, Tensor) and value.ndim == 0 and not value.is_complex():
        return float(value)
    return float(value) if isinstance(value, numbers.Real) and not isinstance(value, bool) else None


def close(yours: float, expected: float) -> bool:
    """Equal to RTOL; NaN equals NaN, an infinity only itself."""
    return math.isclose(yours, expected, rel_tol=RTOL) or (math.isnan(yours) and math.isnan(expected))


def wrong_parts(yours: Any, parts: dict[str, Tensor | float], order: str) -> Mismatch | None:
    """Not a tuple of numbers and float32 tensors as in `parts`, which holds the expected ones by name."""
    if not isinstance(yours, tuple) or len(yours) != len(parts):
        hint = f"A tuple: `return {order}`." if isinstance(yours, list) else ""
        return Mismatch(f"returned {describe(yours)}; expected ({order})", hint=hint, about_form=True)
    for (name, wanted), part in zip(parts.items(), yours, strict=True):
        if isinstance(wanted, Tensor):
            fits = isinstance(part, Tensor) and (part.shape, part.dtype) == (wanted.shape, wanted.dtype)
            form = describe(wanted)
        else:
            fits, form = as_number(part) is not None, "a float"
        if not fits:
            return Mismatch(f"returned a tuple whose {name} is {describe(part)}; expected {form}", about_form=True)
    return None


def wrong_state(yours: Any, expected: State) -> Mismatch | None:
    """Not (m, l, acc) in form."""
    return wrong_parts(yours, dict(zip(("m", "l", "acc"), expected, strict=True)), "m, l, acc")


def state_numbers(state: Any) -> list[float]:
    """(m, l, acc) as one list of numbers."""
    m, l, acc = state
    return [float(m), float(l), *acc.detach().double().tolist()]


def same_state(yours: Any, expected: Any) -> bool:
    """All numbers close."""
    return all(map(close, state_numbers(yours), state_numbers(expected)))


def state_rows(before: State) -> tuple[Row, Row]:
    """The headings of a state, and the one that a page is added to."""
    return _heading(before), numbers_row("before", state_numbers(before), digits=DIGITS)


def _heading(state: State) -> Row:
    return Row("state", ("m", "l", *(f"acc[{i}]" for i in range(len(state[2])))))


def different_states(given: tuple[Row, ...], expected: State, yours: Any, hint: str) -> Mismatch | None:
    """The two states below their headings, unless `given` ends with these; None if the states are the same."""
    wanted, found = state_numbers(expected), state_numbers(yours)
    differ = tuple(i for i in range(len(wanted)) if not close(found[i], wanted[i]))
    if not differ:
        return None
    heading = _heading(expected)
    return Mismatch(
        given=given if heading in given else (*given, heading),
        expected=numbers_row("expected", wanted, digits=DIGITS),
        yours=numbers_row("yours", found, digits=DIGITS),
        differ=differ,
        hint=hint,
    )


def hint_of_same(yours: Any, answers: Iterable[tuple[State, str]]) -> str:
    """The hint of the wrong answer that gives this state, or an empty string."""
    return first_true(*((same_state(yours, state), hint) for state, hint in answers))


def softmax_state(scores: Tensor, v: Tensor) -> State:
    """(m, l, acc) of all these scores at once, in float64; all -inf: nothing seen."""
    scores, v = scores.double(), v.double()
    m = float(scores.max())
    if m == -math.inf:
        return m, 0.0, torch.zeros(v.shape[1])
    p = torch.exp(scores - m)
    return m, float(p.sum()), (p @ v).float()
