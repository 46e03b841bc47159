"""Lab 04, pages_and_tail: how many pages some tokens need, and how many slots of the last one they fill."""

from typing import Any

from lab_engine.checks.case import Args, Case, Mismatch
from lab_engine.checks.exercise import Exercise
from lab_engine.checks.values import first_true, judge_ints, numbers_row
from lab_engine.checks.verdict import Row


def pages_and_tail(tokens: int) -> tuple[int, int]:
    """Pages of 16 slots that `tokens` tokens need, and the valid slots of the last page.

    tokens: 0 or more, the current one included. No tokens: (0, 0).

    >>> pages_and_tail(56)
    (4, 8)
    """
    if tokens == 0:
        return 0, 0
    return -(-tokens // 16), (tokens - 1) % 16 + 1


def _judge(args: Args, expected: tuple[int, int], yours: Any) -> Mismatch | None:
    return judge_ints(yours, expected, _PARTS, _show(args), lambda found: _hint(args[0], expected, found))


def _hint(tokens: int, expected: tuple[int, int], yours: tuple[int, int]) -> str:
    """The wrong answers that people give, computed; floor and round fail at 56 or 20, before tokens - 1 does."""
    pages, tail = expected
    whole, rest = divmod(tokens, 16)
    return first_true(
        (tokens == 0, "No tokens, no page and no tail: (0, 0)."),
        (yours == (tail, pages), "In this order: pages, then valid slots of the tail."),
        (rest == 1 and yours[0] == pages - 1, "Does it count the current token? 17 tokens are 16 and one more."),
        (yours[0] == whole != pages, "16 tokens need 1 page, 17 need 2: round up."),
        (yours[0] == pages + 1, "A full page is no reason for the next one: 16 tokens need 1 page."),
        (yours[0] == pages and yours[1] == rest == 0, "A full tail has 16 valid slots, not 0."),
        (yours[0] == pages and yours[1] == 16 - tail, "Valid slots are those with a token: yours are the empty ones."),
        (yours[0] == pages and yours[1] == tail - 1, "Slots 0 to 7 are 8 slots: the tail is a count, not an index."),
    )


def _show(args: Args) -> tuple[Row, ...]:
    return (numbers_row("tokens", args),)


_PARTS = ("pages", "tail")


def _case(tokens: int, hint: str) -> Case:
    return Case(f"{tokens} token{'s' if tokens != 1 else ''}", (tokens,), hint)


CASES = (
    _case(56, "Three full pages are 48 tokens. How many are left for the fourth?"),
    _case(20, "One full page is 16 tokens. How many are left for the second?"),
    _case(1, "One token needs a page, and fills one slot of it."),
    _case(15, "One page with one empty slot."),
    _case(16, "One page, full: 16 valid slots."),
    _case(17, "The 17th token begins a page: 1 valid slot."),
    _case(31, "Two pages with one empty slot."),
    _case(32, "Two full pages."),
    _case(33, "The 33rd token begins a page."),
    _case(0, "No tokens, no page and no tail: (0, 0)."),
    _case(1000, "62 full pages are 992 tokens."),
)


EXERCISE = Exercise(
    lab="04_kv_pages",
    solution=pages_and_tail,
    cases=CASES,
    judge=_judge,
    show=_show,
    first_hints=(
        "1, 15, 16, 17, 31, 32, 33, 56 tokens need 1, 1, 1, 2, 2, 2, 3, 4 pages; "
        "their tails have 1, 15, 16, 1, 15, 16, 1, 8 valid slots.",
        "Round up with `-(-tokens // 16)`. The slot of the last token is `(tokens - 1) % 16`. What does 0 give?",
    ),
)
