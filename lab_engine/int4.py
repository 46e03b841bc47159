"""Symmetric INT4 weights: 128 weights of a row share one fp16 scale, and a word of 32 bits holds eight.

    weight[row, i] ~= q[row, i] * scale[row, i // 128]        q in -8..7, stored as the nibble n = q + 8

128 weights take 64 bytes of nibbles and 2 of scale: 0.515625 bytes a weight.
What breaks it: a missing +8 (negative weights vanish), a scale that fp16 cannot hold, the wrong nibble order.
Everything here works on whole matrices; `int4_reference.py` does the same by hand, one group and one word at a time.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lab_engine.config import GROUP
from lab_engine.errors import NanoqwenError
from lab_engine.nanoqwen_file import LAYOUTS
from lab_engine.threads import one_thread_of_two

CODES_PER_WORD = 8
BYTES_PER_WEIGHT = 0.5 + 2 / GROUP

METHODS = ("absmax7", "absmax8", "search")
"""How quantize_groups can choose scales."""

_FP16_MAX = 65504.0
_BLOCK_WEIGHTS = 1 << 20  # quantized at once: 4 MiB in float32, so that a block stays in the cache
# Fractions of the two plain scales that the search tries besides 1. More change next to nothing (docs/int4_scales.md).
_SHRINK = (0.94, 0.88)


def quantize_rows(weight: Tensor, method: str = "search") -> tuple[Tensor, Tensor]:
    """Quantize a matrix row by row in groups of 128.

    weight: floating (rows, k), k a multiple of 128. Returns q int8 (rows, k) in -8..7 and scales float16
    (rows, k // 128); a group that fp16 scales flush to zero gets scale 0 and q 0. Methods: `absmax7`
    (scale max|w|/7), `absmax8` (the largest weight becomes code -8, so the scale carries its sign),
    `search` (per group the candidate with the smallest squared error; exact where INT4 holds the group exactly).
    Raises NanoqwenError for k % 128, for NaN or inf, and for a scale over 65504.
    """
    weight = _detached(weight)
    if weight.ndim != 2 or weight.shape[1] % GROUP or 0 in weight.shape:
        raise NanoqwenError(f"weight of shape {tuple(weight.shape)}: expected (rows, k) with k a multiple of {GROUP}")
    q, scales = quantize_groups(weight.reshape(weight.shape[0], -1, GROUP), method)
    return q.reshape(weight.shape), scales


@one_thread_of_two()
def quantize_groups(groups: Tensor, method: str = "search") -> tuple[Tensor, Tensor]:
    """Quantize groups of any size: floating (..., g) -> codes int8 (..., g) and scales float16 (...).

    Methods are those of quantize_rows, and errors too; every leading dimension is free, g is at least 1.
    """
    if method not in METHODS:
        raise NanoqwenError(f"method {method!r}: expected {', '.join(METHODS[:-1])} or {METHODS[-1]}")
    groups = _groups(groups)
    flat = groups.reshape(-1, groups.shape[-1])
    q, scales = torch.empty(flat.shape, dtype=torch.int8), torch.empty(len(flat), dtype=torch.float16)
    size = max(_BLOCK_WEIGHTS // flat.shape[1], 1)
    # The same memory for every block and every candidate: touching new pages costs more than the arithmetic.
    buffers = torch.empty(2, min(size, len(flat)), flat.shape[1])
    for start in range(0, len(flat), size):
        here = slice(start, start + size)
        block, work = buffers[:, : len(flat[here])]
        block.copy_(flat[here])
        scales[here] = _as_stored(_choose_scales(block, method, work), block)
        q[here] = _levels(block, scales[here], work)
    return q.reshape(groups.shape), scales.reshape(groups.shape[:-1])


def round_to_scales(groups: Tensor, scales: Tensor) -> tuple[Tensor, Tensor]:
    """Codes for given scales: floating (..., g) and (...) -> int8 (..., g) in -8..7 and float16 (...).

    The codes come from the scale that the file will hold, rounded to fp16; where that is 0 they are 0.
    Raises NanoqwenError for a scale over 65504.
    """
    groups = _groups(groups).float()
    stored = _as_stored(scales.detach(), groups)
    return _levels(groups, stored, torch.empty_like(groups)).to(torch.int8), stored


def plain_scale(groups: Tensor) -> Tensor:
    """max|w| / 7 of each group: the scale that makes the largest weight a level. float32 (rows, groups)."""
    return groups.abs().amax(dim=-1) / 7


def dequantize(q: Tensor, scales: Tensor) -> Tensor:
    """q int8 (rows, k) and scales float16 (rows, k // 128) -> float32 (rows, k)."""
    groups = q.reshape(q.shape[0], -1, GROUP).float() * scales.float().unsqueeze(-1)
    return groups.reshape(q.shape)


@one_thread_of_two()
def pack_words(q: Tensor, layout: str = "value_shuffle") -> Tensor:
    """Pack codes int8 (rows, k) in -8..7 into int32 bit patterns (rows, k // 8); see LAYOUTS.

    Example: -7 -1 0 3 5 -4 2 7 -> 0xFA4DB871 (linear), 0xF4B7AD81 (value_shuffle).
    """
    order = _order(layout)
    if q.ndim != 2 or q.shape[1] % CODES_PER_WORD:
        raise NanoqwenError(f"codes of shape {tuple(q.shape)}: expected (rows, k) with k a multiple of 8")
    if q.numel() and (int(q.min()) < -8 or int(q.max()) > 7):
        raise NanoqwenError(f"codes from {int(q.min())} to {int(q.max())}: expected -8 to 7")
    nibbles = (q.reshape(q.shape[0], -1, CODES_PER_WORD) + 8).to(torch.int32)
    words = torch.zeros(nibbles.shape[:2], dtype=torch.int32)
    for place, index in enumerate(order):
        words |= nibbles[:, :, index] << (4 * place)
    return words


def unpack_words(words: Tensor, layout: str = "value_shuffle") -> Tensor:
    """The inverse of pack_words: int32 (rows, k // 8) -> codes int8 (rows, k)."""
    place_of_weight = torch.tensor(_order(layout), device=words.device).argsort()
    nibbles = words.unsqueeze(-1) >> (4 * place_of_weight).to(torch.int32)
    return nibbles.bitwise_and_(0xF).sub_(8).to(torch.int8).reshape(words.shape[0], -1)


def shuffle_words(words: Tensor) -> Tensor:
    """Turn int32 `linear` words of any shape into `value_shuffle` words. Example: 0x76543210 -> 0x75316420."""
    shuffled = torch.zeros_like(words)
    for place, index in enumerate(LAYOUTS["value_shuffle"]):
        shuffled |= (words >> (4 * index) & 0xF) << (4 * place)
    return shuffled


def dequantize_words(words: Tensor, scales: Tensor, out: Tensor) -> Tensor:
    """Unpack `value_shuffle` words straight to floating weights, two at a time; returns out.

    words int32 (rows, k // 8), scales float16 (rows, k // 128), out floating (rows, k). For bfloat16 each shift by
    4j leaves weights 2j and 2j + 1 in the halves of a word; OR-ing 0x4300 makes them bf16 128 + n, exactly,
    so subtracting 136 gives q (bf16 has steps of 1 there). Other dtypes go through the codes.
    Source: the fp16 form (0x6400, 1032) of FasterTransformer `interleaved_numeric_conversion.h`.
    """
    if out.dtype != torch.bfloat16:
        return out.copy_(dequantize(unpack_words(words), scales))
    pairs = out.view(torch.int32).view(*words.shape, 4)
    torch.bitwise_right_shift(words.unsqueeze(-1), torch.tensor([0, 4, 8, 12], dtype=torch.int32), out=pairs)
    pairs.bitwise_and_(0x000F000F).bitwise_or_(0x43004300)
    groups = out.view(words.shape[0], -1, GROUP)
    groups.sub_(136).mul_(scales.to(torch.bfloat16).unsqueeze(-1))
    return out


def _order(layout: str) -> tuple[int, ...]:
    if layout not in LAYOUTS:
        raise NanoqwenError(f"nibble layout {layout!r}: expected one of {', '.join(LAYOUTS)}")
    return LAYOUTS[layout]


def _detached(weights: Tensor) -> Tensor:
    """The weights without autograd, which cannot follow results written into given memory."""
    if not isinstance(weights, Tensor):
        raise NanoqwenError(f"weights: found {type(weights).__name__}, expected a tensor")
    return weights.detach()


def _groups(groups: Tensor) -> Tensor:
    groups = _detached(groups)
    if not groups.ndim or not groups.shape[-1]:
        raise NanoqwenError(f"groups of shape {tuple(groups.shape)}: expected (..., g) with g at least 1")
    return groups


def _as_stored(scales: Tensor, groups: Tensor) -> Tensor:
    """The scales in fp16, as a file holds them; refused where one does not fit."""
    stored = scales.to(torch.float16)
    if not torch.isfinite(stored).all():
        worst = float(groups.abs().max())
        raise NanoqwenError(f"largest weight {worst:g}: its scale is over 65504, the largest fp16 number")
    return stored


def _levels(groups: Tensor, stored: Tensor, out: Tensor) -> Tensor:
    """The codes -8..7 for fp16 scales as whole float32 numbers, in out; 0 where the scale is 0."""
    divisor = stored.float().unsqueeze(-1)
    torch.div(groups, torch.where(divisor == 0, torch.inf, divisor), out=out)
    return out.round_().clamp_(-8, 7)


def _choose_scales(groups: Tensor, method: str, work: Tensor) -> Tensor:
    """float32 (n, g) -> float32 (n,); work, shaped like groups, is overwritten."""
    extreme = _signed_extreme(groups)
    if not torch.isfinite(extreme).all():
        raise NanoqwenError("weights: found NaN or inf, expected finite numbers")
    if method == "absmax7":
        return extreme.abs() / 7
    if method == "absmax8":
        return extreme / -8
    return _search(groups, extreme, work)


def _signed_extreme(groups: Tensor) -> Tensor:
    """The weight of largest magnitude of each group, with its sign; of two equal ones the first. NaN where one is."""
    high, low = groups.amax(dim=-1), groups.amin(dim=-1)
    extreme = torch.where(high > -low, high, low)
    tied = high == -low
    extreme[tied] = groups[tied].gather(-1, groups[tied].abs().argmax(dim=-1, keepdim=True)).squeeze(-1)
    return extreme


def _search(groups: Tensor, extreme: Tensor, work: Tensor) -> Tensor:
    """Per group, the candidate scale with the smallest squared error; ties keep the earlier candidate."""
    plain, signed = extreme.abs() / 7, extreme / -8
    candidates = [signed, *(signed * f for f in _SHRINK), *(plain * f for f in _SHRINK)]
    best, best_error = plain, _squared_error(groups, plain, work)  # NaN where fp16 cannot hold it: it stays the best
    for scales in [*candidates, *_coarse_lattices(groups, extreme.abs(), plain)]:
        error = _squared_error(groups, scales, work)
        better = error < best_error
        best = torch.where(better, scales, best)
        best_error = torch.where(better, error, best_error)
    return best


def _squared_error(groups: Tensor, scales: Tensor, work: Tensor) -> Tensor:
    """Of each group with these scales as fp16 stores them, float32; work is overwritten."""
    stored = scales.to(torch.float16)
    levels = _levels(groups, stored, work)
    return levels.mul_(stored.float().unsqueeze(-1)).sub_(groups).square_().sum(dim=-1)


def _coarse_lattices(groups: Tensor, largest: Tensor, plain: Tensor) -> list[Tensor]:
    """Scales max/m, m = 1..6, for groups that may be whole multiples of one: exact groups with small codes.

    Natural weights never are, and eight weights of a group show it; such a group gets its plain scale again.
    """
    ratio = groups[:, :8].T.contiguous() / torch.where(largest == 0, 1.0, largest)
    whole = {m: (ratio * m - (ratio * m).round()).abs().amax(dim=0) < 1e-3 for m in range(1, 7)}
    return [torch.where(w, (largest / m).clamp(max=_FP16_MAX), plain) for m, w in whole.items() if w.any()]
