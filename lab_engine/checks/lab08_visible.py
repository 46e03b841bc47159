"""Lab 08, visible_tokens: the attention variant with a window and sinks."""

from typing import Any

from lab_engine.checks.case import Args, Case, Mismatch
from lab_engine.checks.exercise import Exercise
from lab_engine.checks.values import describe, different_sequences, first_true, numbers_row
from lab_engine.checks.verdict import Row


def visible_tokens(length: int, window: int, sinks: int) -> list[int]:
    """Positions that the query at length - 1 sees: the first `sinks` and the last `window`.

    length counts the current token, and so does window: it is the last token of both.
    Ascending, each position once.

    >>> visible_tokens(length=9, window=4, sinks=2)
    [0, 1, 5, 6, 7, 8]
    """
    first = range(min(sinks, length))
    last = range(max(0, length - window), length)
    return sorted({*first, *last})


def _judge_visible(args: Args, expected: list[int], yours: Any) -> Mismatch | None:
    if not isinstance(yours, list) or not all(isinstance(i, int) for i in yours):
        return Mismatch(f"returned {describe(yours)}; expected a list of ints", about_form=True)
    if yours == expected:
        return None
    return different_sequences("positions", expected, yours, _hint_for_visible(args, expected, yours))


def _hint_for_visible(args: Args, expected: list[int], yours: list[int]) -> str:
    length, window_size, sinks = args
    positions = set(yours)
    wider = {*expected, length - window_size - 1}
    shared = {*range(sinks), *range(length - window_size + sinks, length)}
    return first_true(
        (any(i < 0 for i in yours), "Clamp at 0: there is no token before the first."),
        (length < sinks and max(yours, default=0) >= length, "Two tokens, two sinks: no more sinks than tokens."),
        (length - 1 not in positions, "It sees itself: position length − 1 counts."),
        (len(positions) < len(yours), "A set: a sink inside the window is still one position."),
        (sorted(yours) == expected, "Ascending order."),
        (positions == wider, f"{window_size} with the current token, not {window_size + 1}."),
        (positions == shared, f"{sinks} + {window_size}: the sinks are not part of the window."),
    )


def _show_visible(args: Args) -> tuple[Row, ...]:
    return (Row("argument", ("length", "window", "sinks")), numbers_row("value", args))


def _visible_case(name: str, *args: int) -> Case:
    return Case(name, args, "Two ranges: the first `sinks` positions and the last `window`.")


VISIBLE_CASES = (
    _visible_case("the example", 56, 32, 4),
    _visible_case("shorter than the window", 20, 32, 4),
    _visible_case("shorter than the sinks", 2, 32, 4),
    _visible_case("as long as the window", 32, 32, 4),
    _visible_case("one longer than the window", 33, 32, 4),
    _visible_case("sinks and window overlap", 34, 32, 4),
    _visible_case("sinks and window touch", 36, 32, 4),
    _visible_case("no sinks", 41, 16, 0),
    _visible_case("a window of 1", 17, 1, 3),
    _visible_case("odd sizes", 131, 37, 5),
)


EXERCISE = Exercise(
    lab="08_decoder",
    solution=visible_tokens,
    cases=VISIBLE_CASES,
    judge=_judge_visible,
    show=_show_visible,
    first_hints=("It is two ranges: the sinks and the window.", "Clamp both, then take the union, sorted."),
)
