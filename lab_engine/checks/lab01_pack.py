"""Lab 01, pack_words: eight codes become one word of 32 bits, in the order of a layout."""

from functools import reduce
from typing import Any

import torch
from torch import Tensor

from lab_engine.checks.case import Args, Case, Mismatch
from lab_engine.checks.exercise import Exercise
from lab_engine.checks.lab01_words import (
    INVERSE,
    LINEAR,
    SHUFFLED,
    different_words,
    distinct_nibbles,
    first_difference,
    hint_for_overflow,
    hint_for_words,
    words_of,
    wrong_words_form,
)
from lab_engine.checks.values import numbers_row
from lab_engine.checks.verdict import Row
from lab_engine.nanoqwen_file import LAYOUTS


def pack_words(q: Tensor, layout: str) -> Tensor:
    """Pack eight codes a word: nibble i (bits 4i to 4i + 3) holds n = q + 8 of one weight.

    q: int8 (rows, k) in -8…7, k a multiple of 8. Returns int32 (rows, k // 8), bit patterns.
    layout: `linear`, nibble i holds weight i; `value_shuffle`, nibble i holds weight order[i],
    where order = (0, 2, 4, 6, 1, 3, 5, 7).

    >>> toy = torch.tensor([[-7, -1, 0, 3, 5, -4, 2, 7]], dtype=torch.int8)
    >>> [hex(int(pack_words(toy, name)) & 0xFFFFFFFF) for name in ("linear", "value_shuffle")]
    ['0xfa4db871', '0xf4b7ad81']
    """
    order = (0, 1, 2, 3, 4, 5, 6, 7) if layout == "linear" else (0, 2, 4, 6, 1, 3, 5, 7)
    n = (q.to(torch.int64) + 8).reshape(q.shape[0], -1, 8)
    words = torch.zeros(n.shape[:2], dtype=torch.int64)
    for i in range(8):
        words |= n[:, :, order[i]] << (4 * i)
    return words.to(torch.int32)


def _judge(args: Args, expected: Tensor, yours: Any) -> Mismatch | None:
    wrong_form = wrong_words_form(expected, yours, _EIGHT_A_WORD)
    if wrong_form is not None or torch.equal(yours, expected):
        return wrong_form
    q, layout = args
    given = _show(args, first_difference(expected, yours))
    return different_words(expected, yours, given, _hint(q, layout, yours))


def _hint(q: Tensor, layout: str, yours: Tensor) -> str:
    """The wrong answers that people give, computed: whose words are these?"""
    codes = q.to(torch.int64).reshape(q.shape[0], -1, 8)
    n, order = codes + 8, LAYOUTS[layout]
    swapped_bytes = [order[i] for i in (6, 7, 4, 5, 2, 3, 0, 1)]
    answers = (
        (words_of(codes.clamp(0, 15), order), "All negative weights are gone: add 8, don't clip to 0…15."),
        (words_of(codes & 0xF, order), "The reader subtracts 8: store n = q + 8."),
        (words_of(codes, order), _SMEAR),
        (_summed(codes, order), _SMEAR),
        (words_of(n - 1, order), _PLUS_7),
        (words_of(n - 1 & 0xF, order), _PLUS_7),
        (_in_int8(n, order), "An int8 has 8 bits: shift in int64, then convert to int32."),
        (words_of(n, order[::-1]), "Nibble 0 is bits 0–3: weight 0 goes to the low end of the word."),
        (words_of(n, swapped_bytes), "Nibble 0 is bits 0–3, and the word little-endian: byte 0 holds nibbles 0 and 1."),
        (words_of(n, INVERSE), f"{_ORDER[:-1]}; yours went the other way."),
        (words_of(n, LINEAR), _TWO_LAYOUTS),
        (words_of(n, SHUFFLED), _TWO_LAYOUTS),
    )
    return hint_for_words(yours, answers)


def _hint_without_value(case: Case, error: BaseException | None) -> str:
    several_rows = case.args[0].shape[0] > 1
    return hint_for_overflow(error) or (_EIGHT_A_WORD if error is not None and several_rows else "")


def _summed(codes: Tensor, order: tuple[int, ...]) -> Tensor:
    return (codes[..., list(order)] << (4 * torch.arange(8))).sum(dim=-1).to(torch.int32)


def _in_int8(n: Tensor, order: tuple[int, ...]) -> Tensor:
    parts = [(n[..., weight].to(torch.int8) << (4 * i)).to(torch.int64) for i, weight in enumerate(order)]
    return reduce(torch.bitwise_or, parts).to(torch.int32)


def _show(args: Args, word: int = 0) -> tuple[Row, ...]:
    q, layout = args
    row, column = divmod(word, q.shape[1] // 8)
    note = f"row {row} · word {column} · {layout}"
    return (numbers_row("q of weight 0–7", q[row, 8 * column : 8 * column + 8].tolist(), note),)


def _codes(*rows: tuple[int, ...]) -> Tensor:
    return torch.tensor(rows, dtype=torch.int8)


_SMEAR = "Sign bits run over the neighbours: n = q + 8 is never negative."
_PLUS_7 = "n = q + 8; −8 must be 0."
_TWO_LAYOUTS = "Two layouts, two words: the order of the nibbles depends on `layout`."
_ORDER = "Nibble i holds weight order[i], where order = (0, 2, 4, 6, 1, 3, 5, 7)."
_EIGHT_A_WORD = "Row by row, eight codes a word: (rows, k // 8)."
_BY_HAND = "n = q + 8, then nibble i is shifted left by 4i: do one word by hand."

_TOY = _codes((-7, -1, 0, 3, 5, -4, 2, 7))
_RANDOM = (distinct_nibbles(9) - 8).to(torch.int8).reshape(3, 24)

CASES = (
    Case("the toy word (linear)", (_TOY, "linear"), _BY_HAND),
    Case("the toy word (shuffled)", (_TOY, "value_shuffle"), _ORDER),
    Case("three rows of 24 (linear)", (_RANDOM, "linear"), _EIGHT_A_WORD),
    Case("three rows of 24 (shuffled)", (_RANDOM, "value_shuffle"), "The order is that of the eight codes of a word."),
    Case("−1 beside 3", (_codes((-1, 3, 0, 0, 0, 0, 0, 0)), "linear"), _SMEAR),
    Case("3 beside −1", (_codes((3, -1, 0, 0, 0, 0, 0, 0)), "linear"), _SMEAR),
    Case("−8 beside 7", (_codes((0, -8, 7, -8, 1, -7, -8, 6)), "value_shuffle"), _PLUS_7),
    Case("−8 first and last", (_codes((-8, 3, 1, 6, 2, -5, 4, -8)), "linear"), _PLUS_7),
)


EXERCISE = Exercise(
    lab="01_int4",
    solution=pack_words,
    cases=CASES,
    judge=_judge,
    show=_show,
    first_hints=(
        "Write the eight numbers n = q + 8 below each other, as hexadecimal digits. Which one is the last of the word?",
        "`word |= n[order[i]] << 4 * i`, in int64, where no sign is in the way; then to int32.",
    ),
    hint_without_value=_hint_without_value,
)
