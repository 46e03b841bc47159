"""Four mistakes with INT4 words, on codes alone: which weights move, how far, and what a product makes of it.

    none           n = q + 8 is stored, n - 8 is read
    wrong_layout   `value_shuffle` words are read as `linear`        six of eight weights change places
    missing_bias   the reader takes n for q                          every weight moves by 8 steps
    sign_smear     the packer ORs q << 4i, without + 8 and & 0xF     a negative code fills all nibbles above its own
    zero_point_7   the reader subtracts 7                            every weight moves by 1 step

A step is the scale of the group. Steps that all go the same way add up: an error of e steps in every weight adds
e * scale * sum(x) to every row of a product, and activations do not average to 0. Without + 8, codes that no sign runs
over move too: by 8 steps down, negative ones by 8 up.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lab_engine.errors import NanoqwenError
from lab_engine.int4 import dequantize, pack_words, quantize_rows, unpack_words
from lab_engine.nanoqwen_file import LAYOUTS


def smear_words(q: Tensor, layout: str = "value_shuffle") -> Tensor:
    """Pack as a careless packer does: int8 (rows, k) -> int32 (rows, k // 8), the codes shifted with their signs.

    Example: -1 3 0 0 0 0 0 0 -> 0xFFFFFFFF; 3 -1 0 0 0 0 0 0 -> 0xFFFFFFF3 (linear).
    """
    eights = q.reshape(q.shape[0], -1, 8).to(torch.int32)
    words = torch.zeros(eights.shape[:2], dtype=torch.int32)
    for place, index in enumerate(LAYOUTS[layout]):
        words |= eights[:, :, index] << (4 * place)
    return words


INT4_MISTAKES = {
    "wrong_layout": "the nibbles of every word are read in the wrong order",
    "missing_bias": "the reader of the weights forgets the − 8",
    "sign_smear": "the packer shifts signed codes without + 8 and & 0xF",
    "zero_point_7": "the reader of the weights subtracts 7 instead of 8",
}
"""Every mistake by name, with what went wrong in one line."""


def misread(q: Tensor, mistake: str) -> Tensor:
    """The codes that arrive when codes q, int8 (rows, k), were written and read with a mistake: int8 (rows, k).

    Packed in `value_shuffle`, as in the shipped file. They may leave -8..7: no nibble is checked on the way.
    """
    if mistake == "wrong_layout":
        return unpack_words(pack_words(q), "linear")
    if mistake == "missing_bias":
        return q + 8
    if mistake == "sign_smear":
        return unpack_words(smear_words(q))
    if mistake == "zero_point_7":
        return q + 1
    if mistake == "none":
        return q
    raise NanoqwenError(f"mistake {mistake!r}: expected one of none, {', '.join(INT4_MISTAKES)}")


@dataclass(frozen=True)
class MisreadGroup:
    """One group before and after: codes were meant, read arrived; all lists run over its weights.

    differences: how far each weight moves, (read - codes) * scale. smeared: whether its stored nibble holds sign bits
    of another weight.
    """

    mistake: str
    scale: float
    codes: tuple[int, ...]
    read: tuple[int, ...]
    differences: tuple[float, ...]
    smeared: tuple[bool, ...]


def misread_group(codes: Tensor, scale: float, mistake: str) -> MisreadGroup:
    """What a mistake does to codes int8 (g,), g a multiple of 8, with their scale."""
    read = misread(codes[None], mistake)[0]
    steps = (read - codes).double()
    smeared = unpack_words(smear_words(codes[None]))[0] + 8 != codes & 0xF
    return MisreadGroup(
        mistake=mistake,
        scale=scale,
        codes=tuple(codes.tolist()),
        read=tuple(read.tolist()),
        differences=tuple((steps * scale + 0.0).tolist()),
        smeared=tuple((smeared & (mistake == "sign_smear")).tolist()),
    )


@dataclass(frozen=True)
class ProductError:
    """Relative error |(W' - W) x| / |W x| of a matrix read with a mistake, over many x of spread 1.

    centred: x of mean 0; shifted: x of mean SHIFT.
    """

    mistake: str
    centred: float
    shifted: float


SHIFT = 0.1
"""The mean of shifted activations, as a share of their spread."""

_VECTORS = 1024  # sum(x) is the same for all rows, so only many x make its mean square certain: to 4 %


def product_errors(weight: Tensor, method: str = "absmax7") -> tuple[ProductError, ...]:
    """The table: one entry for `none` (the rounding alone) and one for each mistake, against the float weights.

    weight: floating (rows, k), k a multiple of 128; method: how its scales are chosen (int4.quantize_rows). The
    activations are normal, the same each time.
    """
    q, scales = quantize_rows(weight, method)
    centred = torch.randn(weight.shape[1], _VECTORS, generator=torch.Generator().manual_seed(0))

    def error(mistake: str, x: Tensor) -> float:
        wrong = dequantize(misread(q, mistake), scales) - weight.float()
        return float((wrong @ x).norm() / (weight.float() @ x).norm())

    return tuple(
        ProductError(name, error(name, centred), error(name, centred + SHIFT)) for name in ("none", *INT4_MISTAKES)
    )


def normal_weights(rows: int = 256, k: int = 3584) -> Tensor:
    """Weights of spread 1 in the width of the 7B, the same each time: float32 (rows, k)."""
    return torch.randn(rows, k, generator=torch.Generator().manual_seed(1))
