"""Lab 01, shuffle_words: from the order of the weights to the order that the unpack likes."""

from typing import Any

import torch
from torch import Tensor

from lab_engine.checks.case import Args, Case, Mismatch
from lab_engine.checks.exercise import Exercise
from lab_engine.checks.lab01_words import (
    INVERSE,
    LINEAR,
    SHUFFLED,
    bit_pattern,
    different_words,
    distinct_nibbles,
    first_difference,
    hint_for_overflow,
    hint_for_words,
    nibbles_of,
    nibbles_row,
    words_of,
    wrong_words_form,
)
from lab_engine.checks.verdict import Row


def shuffle_words(words: Tensor) -> Tensor:
    """Turn `linear` words into `value_shuffle` words: the same nibbles in another order.

    Nibble i (bits 4i to 4i + 3) of the result is nibble order[i] of the word, where
    order = (0, 2, 4, 6, 1, 3, 5, 7). words: int32 of any shape, read as bit patterns.
    Returns int32 of the same shape.

    >>> hex(shuffle_words(torch.tensor(0x76543210, dtype=torch.int32)))
    '0x75316420'
    """
    shuffled = torch.zeros_like(words)
    for i, source in enumerate((0, 2, 4, 6, 1, 3, 5, 7)):
        shuffled |= (words >> (4 * source) & 0xF) << (4 * i)
    return shuffled


def _judge(args: Args, expected: Tensor, yours: Any) -> Mismatch | None:
    wrong_form = wrong_words_form(expected, yours, _ANY_SHAPE)
    if wrong_form is not None or torch.equal(yours, expected):
        return wrong_form
    given = _show(args, first_difference(expected, yours))
    return different_words(expected, yours, given, _hint(args[0], yours))


def _hint(words: Tensor, yours: Tensor) -> str:
    """The wrong answers that people give, computed: whose words are these?"""
    nibbles, unmasked = nibbles_of(words), words.to(torch.int64).unsqueeze(-1) >> (4 * torch.arange(8))
    answers = (
        (words_of(unmasked, SHUFFLED), _SIGN),
        (words_of(nibbles, INVERSE), _FOLLOW),
        (words_of(nibbles, LINEAR[::-1]), _FOLLOW),
        (words_of(nibbles, SHUFFLED[::-1]), _FOLLOW),
        (words, _FOLLOW),
        (words_of(nibbles, (4, 5, 6, 7, 0, 1, 2, 3)), _EVEN),
        (words_of(nibbles, (1, 3, 5, 7, 0, 2, 4, 6)), _EVEN),
    )
    return hint_for_words(yours, answers)


def _hint_without_value(case: Case, error: BaseException | None) -> str:
    unusual_shape = case.args[0].dim() not in (1, 2)
    return hint_for_overflow(error) or (case.hint if error is not None and unusual_shape else "")


def _show(args: Args, place: int = 0) -> tuple[Row, ...]:
    words = args[0].flatten()
    return (nibbles_row("given nibble 0–7", words[place]),)


def _words(*patterns: int) -> Tensor:
    return torch.tensor([bit_pattern(pattern) for pattern in patterns], dtype=torch.int32)


_SIGN = "int32 `>>` copies the sign: mask with `& 0xF` after the shift."
_FOLLOW = "Follow weight 1: it is nibble 1 of the given word and goes to nibble 4."
_EVEN = "Even weights fill the low half: 0 2 4 6, then 1 3 5 7."
_ANY_SHAPE = "Any shape: the result has that of `words`."

_RANDOM = words_of(distinct_nibbles(15)).reshape(3, 5)

CASES = (
    Case("0x76543210", (_words(0x76543210),), _FOLLOW),
    Case("the toy word", (_words(0xFA4DB871),), _SIGN),
    Case("(3, 5) random words", (_RANDOM,), _FOLLOW),
    Case("a single word", (_words(0x8F1E2D3C)[0],), "Any shape: a word alone has the shape ()."),
    Case("(2, 2, 3) words", (_RANDOM.flatten()[:12].reshape(2, 2, 3),), _ANY_SHAPE),
)


EXERCISE = Exercise(
    lab="01_int4",
    solution=shuffle_words,
    cases=CASES,
    judge=_judge,
    show=_show,
    first_hints=(
        "Where does each nibble go? Write the eight arrows for 0x76543210 → 0x75316420.",
        "Shift a nibble down and mask it with `& 0xF`; then shift it up to its place and `|=` it in.",
    ),
    hint_without_value=_hint_without_value,
)
