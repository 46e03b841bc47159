"""Lab 01's words: eight nibbles in 32 bits, built right or wrong, and two words side by side, nibble by nibble."""

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from lab_engine.checks.case import Mismatch
from lab_engine.checks.values import describe, error_text, first_true
from lab_engine.checks.verdict import Row
from lab_engine.nanoqwen_file import LAYOUTS

LINEAR, SHUFFLED = LAYOUTS["linear"], LAYOUTS["value_shuffle"]
INVERSE = (0, 4, 1, 5, 2, 6, 3, 7)
"""Of value_shuffle: weight i goes to nibble INVERSE[i]."""
_LOW_32_BITS = "A word is the bit pattern of an int32: `.to(torch.int32)` keeps the low 32 bits."


def nibbles_of(words: Tensor) -> Tensor:
    """int32 (…) -> int64 (…, 8) in 0…15, bits 0-3 first."""
    return words.to(torch.int64).unsqueeze(-1) >> (4 * torch.arange(8)) & 0xF


def words_of(numbers: Tensor, order: Sequence[int] = LINEAR) -> Tensor:
    """(…, 8) -> int32 (…): nibble i is numbers[order[i]]. Nothing is masked: what needs more bits runs over."""
    shifted = numbers.to(torch.int64)[..., list(order)] << (4 * torch.arange(8))
    return reduce(torch.bitwise_or, shifted.unbind(-1)).to(torch.int32)


def wrong_words_form(expected: Tensor, yours: Any, hint_for_shape: str) -> Mismatch | None:
    """Not an int32 tensor of the expected shape."""
    if isinstance(yours, Tensor) and yours.shape == expected.shape and yours.dtype == expected.dtype:
        return None
    is_tensor = isinstance(yours, Tensor)
    hint = first_true(
        (is_tensor and yours.dtype == torch.int64, _LOW_32_BITS),
        (is_tensor and yours.dtype == torch.int32, hint_for_shape),
    )
    return Mismatch(f"returned {describe(yours)}; expected {describe(expected)}", hint=hint, about_form=True)


def hint_for_overflow(error: BaseException | None) -> str:
    """A word whose top bit is 1 was put into an int32 as a number over 2^31."""
    too_large = isinstance(error, OverflowError) or (error is not None and "without overflow" in error_text(error))
    return "An int32 ends at 2³¹ − 1: compute in int64, then `.to(torch.int32)`." if too_large else ""


def first_difference(expected: Tensor, yours: Tensor) -> int:
    """Place of the first wrong word in the flattened tensors."""
    return int((expected.flatten() != yours.flatten()).nonzero()[0])


def different_words(expected: Tensor, yours: Tensor, given: tuple[Row, ...], hint: str) -> Mismatch:
    """The first wrong word, its nibbles from bits 0-3 up; the whole word at the right."""
    place = first_difference(expected, yours)
    wanted, found = (
        nibbles_row(label, words.flatten()[place])
        for label, words in (("expected nibble 0–7", expected), ("your nibble 0–7", yours))
    )
    differ = tuple(i for i in range(8) if wanted.values[i] != found.values[i])
    return Mismatch(given=given, expected=wanted, yours=found, differ=differ, hint=hint)


def hint_for_words(yours: Tensor, answers: Iterable[tuple[Tensor, str]]) -> str:
    """The hint of the wrong answer that gives these words, or an empty string."""
    return first_true(*((torch.equal(yours, words), hint) for words, hint in answers))


def nibbles_row(label: str, word: Tensor) -> Row:
    """One word as eight hexadecimal digits, bits 0-3 first, and as a whole at the right."""
    digits = tuple(f"{n:X}" for n in nibbles_of(word).tolist())
    return Row(label, digits, f"0x{''.join(reversed(digits))}")


def distinct_nibbles(words: int) -> Tensor:
    """int64 (words, 8): eight different numbers of 0…15 in each row, in random order."""
    generator = torch.Generator().manual_seed(4)
    return torch.stack([torch.randperm(16, generator=generator)[:8] for _ in range(words)])


def bit_pattern(word: int) -> int:
    """The int32 with these 32 bits: 0xFA4DB871 is negative."""
    return word - (1 << 32) if word >> 31 else word
