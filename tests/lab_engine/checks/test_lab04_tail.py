import math

import pytest

from lab_engine.checks.lab04_tail import EXERCISE as TAIL
from lab_engine.checks.lab04_tail import pages_and_tail
from lab_engine.kv_pages import pages_for
from tests.lab_engine.checks.answers import names


def tail(tokens):
    return (tokens - 1) % 16 + 1 if tokens else 0


def up(tokens):
    return -(-tokens // 16)


def from_a_table(tokens):
    """The eight answers of the first hint, and no rule."""
    pages = {0: 0, 1: 1, 15: 1, 16: 1, 17: 2, 31: 2, 32: 2, 33: 3, 56: 4}
    return pages.get(tokens, 0), tail(tokens)


def counts_its_calls():
    total = 0

    def add(tokens):
        nonlocal total
        total += tokens
        return up(total), tail(total)

    return add


ALL = names(TAIL)
FULL = {"16 tokens", "32 tokens"}
NEW = {"1 token", "17 tokens", "33 tokens"}
NONE = "0 tokens"
WRONG = {
    "floor": (lambda n: divmod(n, 16), "16 tokens need 1 page, 17 need 2: round up", ALL - {NONE}),
    "floor of the pages": (lambda n: (n // 16, tail(n)), "round up", ALL - FULL - {NONE}),
    "floor + 1": (lambda n: (n // 16 + 1, tail(n)), "A full page is no reason for the next", {NONE, *FULL}),
    "tail = tokens % 16": (lambda n: (up(n), n % 16), "A full tail has 16", FULL),
    "the current token left out": (
        lambda n: (math.ceil((n - 1) / 16), (n - 1) % 16 + 1),
        "Does it count the current token?",
        {NONE, *NEW},
    ),
    "(0, 16) for none": (lambda n: (up(n), (n - 1) % 16 + 1), "No tokens, no page and no tail", {NONE}),
    "a page for none": (lambda n: (max(1, up(n)), tail(n)), "No tokens, no page and no tail", {NONE}),
    "empty slots": (
        lambda n: (up(n), 16 * up(n) - n),
        "yours are the empty ones",
        ALL - {"56 tokens", "1000 tokens", NONE},
    ),
    "the last slot": (lambda n: (up(n), (n - 1) % 16), "the tail is a count, not an index", ALL),
    "tail before pages": (lambda n: (tail(n), up(n)), "In this order", ALL - {NONE, "1 token"}),
    "rounded to nearest": (
        lambda n: (round(n / 16), tail(n)),
        "16 tokens need 1 page, 17 need 2: round up",
        {*NEW, "20 tokens", "1000 tokens"},
    ),
    "half rounded up": (
        lambda n: (int(n / 16 + 0.5), tail(n)),
        "16 tokens need 1 page, 17 need 2: round up",
        {*NEW, "20 tokens"},
    ),
    "a table of answers": (from_a_table, "One full page is 16 tokens", {"20 tokens", "1000 tokens"}),
    "the example's answer": (lambda _: (4, 8), "One full page is 16 tokens", None),
    "a count of its own": (counts_its_calls(), "", None),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_count_fails_with_its_own_hint_on_the_cases_that_show_it(name, failing_cases):
    wrong, hint, only = WRONG[name]
    verdict = TAIL.check(wrong)
    assert verdict.status == "failed"
    assert hint in verdict.hint, verdict
    if only is not None:
        assert failing_cases(TAIL, wrong) == only


def by_counting(tokens):
    pages, filled = 0, 0
    for _ in range(tokens):
        if filled in (0, 16):
            pages, filled = pages + 1, 0
        filled += 1
    return pages, filled


RIGHT = [
    pages_and_tail,
    by_counting,
    lambda n: (math.ceil(n / 16), n - 16 * (math.ceil(n / 16) - 1) if n else 0),
    lambda n: ((n + 15) // 16, n and (n % 16 or 16)),
    lambda n: (n // 16 + (n % 16 > 0), n % 16 or 16 * (n > 0)),
]


@pytest.mark.parametrize("right", RIGHT)
def test_a_right_count_passes(right):
    verdict = TAIL.check(right)
    assert verdict.status == "passed", verdict


def test_the_table_of_the_lab_and_the_engines_own_count():
    pages_and_tails = [pages_and_tail(n) for n in (1, 15, 16, 17, 31, 32, 33, 56)]
    assert pages_and_tails == [(1, 1), (1, 15), (1, 16), (2, 1), (2, 15), (2, 16), (3, 1), (4, 8)]
    for n in range(200):
        pages, valid = pages_and_tail(n)
        assert pages == pages_for(n)
        assert 16 * max(0, pages - 1) + valid == n


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda n: (n / 16, tail(n)), "returned a tuple whose pages is a float; expected an int"),
        (lambda n: [up(n), tail(n)], "returned a list; expected (pages, tail)"),
        (up, "returned an int; expected (pages, tail)"),
        (lambda n: (up(n), n % 16 > 0), "returned a tuple whose tail is a bool; expected an int"),
    ],
)
def test_another_form_is_refused_in_words(wrong, message):
    assert TAIL.check(wrong).message == message


def test_the_verdict_shows_both_counts():
    verdict = TAIL.check(lambda n: divmod(n, 16))
    assert str(verdict).splitlines()[1:6] == [
        "  case: 56 tokens",
        "    tokens       56",
        "    result    pages  tail",
        "    expected      4     8",
        "    yours         3     8",
    ]
