"""INT4 by hand: one group and one word at a time, in the order in which one would explain it.

`int4.py` does the same for whole matrices, some hundred times as fast; a test holds both together bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lab_engine.nanoqwen_file import LAYOUTS


def quantize_group(group: Tensor) -> tuple[Tensor, Tensor]:
    """float32 (g,) -> codes int8 (g,) and a scale, float16 (): of all candidates that of the smallest squared error.

    The same as int4.quantize_groups with the method `search`, but nothing is refused.
    """
    best_codes, best_scale, smallest = None, None, None
    for candidate in candidate_scales(group):
        scale = candidate.to(torch.float16)  # as the file will hold it
        codes = round_to_scale(group, scale)
        error = (codes.float() * scale.float() - group).square().sum()
        if smallest is None or error < smallest:
            best_codes, best_scale, smallest = codes, scale, error
    assert best_codes is not None
    assert best_scale is not None
    return best_codes, best_scale


def candidate_scales(group: Tensor) -> list[Tensor]:
    """What the search tries for one group, float32: where two are equally good, the earlier one is taken."""
    largest = group.abs().max()
    plain = largest / 7  # the largest weight becomes code 7 or -7
    signed = group[group.abs().argmax()] / -8  # it becomes code -8, whatever its sign
    candidates = [plain, signed, signed * 0.94, signed * 0.88, plain * 0.94, plain * 0.88]
    for m in range(1, 7):  # or code m, where all weights (the first eight show it) are whole multiples of largest / m
        multiples = group[:8] / largest * m if largest else torch.zeros(8)
        if ((multiples - multiples.round()).abs() < 1e-3).all():
            candidates.append((largest / m).clamp(max=65504))
    return candidates


def round_to_scale(group: Tensor, scale: Tensor) -> Tensor:
    """The nearest codes, int8 in -8..7; code 0 for a scale that fp16 could not hold."""
    if scale == 0:
        return torch.zeros(group.shape, dtype=torch.int8)
    return (group / scale.float()).round().clamp(-8, 7).to(torch.int8)


def pack_word(codes: Sequence[int], layout: str = "value_shuffle") -> int:
    """Eight codes -8..7 -> a word, 0 to 2**32 - 1: nibble i (bits 4i to 4i + 3) is codes[LAYOUTS[layout][i]] + 8."""
    word = 0
    for place, index in enumerate(LAYOUTS[layout]):
        word |= (codes[index] + 8) << (4 * place)
    return word


def unpack_word(word: int, layout: str = "value_shuffle") -> list[int]:
    """The inverse of pack_word."""
    codes = [0] * 8
    for place, index in enumerate(LAYOUTS[layout]):
        codes[index] = (word >> (4 * place) & 0xF) - 8
    return codes
