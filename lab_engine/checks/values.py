"""Values as a learner reads them: numbers as short text, a window around a difference, a type in words."""

import math
import numbers
from collections.abc import Callable, Sequence
from typing import Any

from lab_engine.checks.case import Mismatch
from lab_engine.checks.verdict import Row

WIDTH = 8
"""Columns of a failing case that are shown at most."""


def number(value: float, digits: int = 4) -> str:
    """Integers exact, floats with so many digits, U+2212 as the minus."""
    if isinstance(value, numbers.Integral):
        return f"{int(value):,}".replace("-", "\u2212")
    if math.isnan(value):
        return "NaN"
    return f"{value:.{digits}g}".replace("-", "\u2212")


def numbers_row(label: str, values: Sequence[float], note: str = "", digits: int = 4) -> Row:
    """A row of numbers, all of them."""
    return Row(label, tuple(number(value, digits) for value in values), note)


def window(length: int, first: int) -> slice:
    """At most WIDTH places of a sequence, the place `first` among them."""
    start = max(0, min(first - WIDTH // 2, length - WIDTH))
    return slice(start, min(length, start + WIDTH))


def window_note(what: str, place: slice, length: int) -> str:
    """Which places are shown, if not all of them are: `token 8–15 of 37`."""
    if place.stop - place.start >= length:
        return ""
    return f"{what} {place.start}\u2013{place.stop - 1} of {length}"


def first_true(*pairs: tuple[bool, str]) -> str:
    """The text of the first pair whose condition holds, or an empty string."""
    return next((text for holds, text in pairs if holds), "")


def describe(value: Any) -> str:
    """A type in words, with the shape of a tensor or array: `a float32 tensor of shape (1, 4)`."""
    kind = type(value).__name__
    if kind in {"Tensor", "ndarray"}:
        dtype = str(value.dtype).removeprefix("torch.")
        return f"{with_article(dtype)} {kind.lower()} of shape {tuple(value.shape)}"
    if value is None or value is Ellipsis:
        return str(value)
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    return with_article(kind)


def with_article(name: str) -> str:
    """`a list`, `an int`."""
    return f"an {name}" if name[:1].lower() in "aeiou" else f"a {name}"


def wrong_ints(yours: Any, parts: tuple[str, ...]) -> Mismatch | None:
    """Not a tuple of as many ints as parts has names."""
    wanted = f"({', '.join(parts)})"
    if not isinstance(yours, tuple) or len(yours) != len(parts):
        hint = (
            f"A tuple: `return {', '.join(part.replace(' ', '_') for part in parts)}`."
            if isinstance(yours, list)
            else ""
        )
        return Mismatch(f"returned {describe(yours)}; expected {wanted}", hint=hint, about_form=True)
    for name, part in zip(parts, yours, strict=True):
        if not isinstance(part, numbers.Integral) or isinstance(part, bool):
            hint = "`//` keeps an int, `/` makes a float." if isinstance(part, float) else ""
            message = f"returned a tuple whose {name} is {describe(part)}; expected an int"
            return Mismatch(message, hint=hint, about_form=True)
    return None


def judge_ints(
    yours: Any, expected: tuple[int, ...], parts: tuple[str, ...], given: tuple[Row, ...], hint: Callable[[Any], str]
) -> Mismatch | None:
    """A tuple of ints against the expected one, below the names of its parts; hint(yours) is asked where they differ.

    Integers of NumPy count as ints.
    """
    wrong_form = wrong_ints(yours, parts)
    if wrong_form is not None:
        return wrong_form
    yours = tuple(int(part) for part in yours)
    if yours == expected:
        return None
    return Mismatch(
        given=(*given, Row("result", parts)),
        expected=numbers_row("expected", expected),
        yours=numbers_row("yours", yours),
        differ=tuple(i for i in range(len(parts)) if yours[i] != expected[i]),
        hint=hint(yours),
    )


def error_text(error: BaseException) -> str:
    """What an exception says; nothing if it is of a class of the learner's that cannot say it."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - a broken __str__ may raise anything
        return ""


def different_sequences(what: str, expected: Sequence[Any], yours: Sequence[Any], hint: str) -> Mismatch:
    """Two lists side by side, around the first place where they differ; a dash where one is shorter."""
    longest = max(len(expected), len(yours))
    wanted, found = (
        [number(v) if isinstance(v, int) else str(v) for v in values] + ["\u2013"] * (longest - len(values))
        for values in (expected, yours)
    )
    differ = [i for i in range(longest) if wanted[i] != found[i]]
    place = window(longest, differ[0])
    return Mismatch(
        expected=Row(f"expected {what}", tuple(wanted[place]), window_note("place", place, longest)),
        yours=Row(f"your {what}", tuple(found[place])),
        differ=tuple(i - place.start for i in differ if place.start <= i < place.stop),
        hint=hint,
    )
