"""INT4 weights times INT8 activations: the dp4a kernels on a GPU, and the same arithmetic on any machine.

    x[i] ~= code[i] * scale[group]     one scale for 128 numbers of x, by the largest of them
    y[row] = sum over groups of scale of the row's group * scale of x's group * (an exact sum of integers)

One limb: codes -127..127. Two limbs: codes -32512..32512 = 256 * high + low, both of them signed bytes.
What breaks it: a group of x with one number far above the others, which takes the scale and leaves the rest no codes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lab_engine.config import GROUP
from lab_engine.errors import NanoqwenError
from lab_engine.index_text import functions
from lab_engine.int4 import unpack_words

if TYPE_CHECKING:
    from lab_engine.gemv_ladder import Gemv

SOURCE = "gemv_dp4a.cu"
LARGEST = {1: 127, 2: 32512}
"""The largest code by number of limbs; 32512 is 127 * 256, so that the high limb stays within 127."""
LIMBS = {"dp4a_separate": 1, "dp4a_fused": 1, "dp4a_limbs": 2}
QUANTIZE = {1: "gemv_quantize_int8", 2: "gemv_quantize_limbs"}
GIVEN = {1: "gemv_dp4a_separate", 2: "gemv_dp4a_limbs_given"}
"""Kernels by number of limbs: one that quantizes x, and a product that takes x quantized."""
LANE_WEIGHTS = 32
"""Weights that a lane loads at once; their sum with x is one exact integer."""

_WARPS, _ROWS, _BLOCKS = (int(functions()[f"rows_{name}"]()) for name in ("warps", "rows", "blocks"))


@dataclass(frozen=True)
class Launch:
    """How the kernels of one (n, k) matrix are launched: a product as the rung `rows`."""

    n: int
    k: int
    sms: int

    @property
    def threads(self) -> int:
        """Of every block."""
        return 32 * _WARPS

    @property
    def tiles(self) -> int:
        """Blocks' worth of rows."""
        return -(-self.n // (_WARPS * _ROWS))

    @property
    def grid(self) -> int:
        """Blocks of a product: each takes tile after tile, so that it prepares x once."""
        return min(self.tiles, self.sms * _BLOCKS)

    @property
    def quantize_grid(self) -> int:
        """Blocks of gemv_quantize_*: two groups a warp."""
        return -(-self.k // (2 * _WARPS * GROUP))


def load(name: str, words: Tensor, scales: Tensor) -> Gemv:
    """The product of one matrix by a dp4a rung: takes x float16 (k,), returns y float32 (n,), can be captured.

    words int32 (n, k / 8) in `value_shuffle` and scales float16 (n, k / 128), on a GPU. dp4a_separate launches two
    kernels, the others one. NanoqwenError names a rung, shape, dtype or device that it cannot take; ToolchainError
    where there is no GPU or no compiler.
    """
    from lab_engine.gemv_ladder import check_matrix, check_x
    from lab_engine.gpu import Kernels, multiprocessors

    if name not in LIMBS:
        raise NanoqwenError(f"rung {name!r}: expected one of {', '.join(LIMBS)}")
    n, k = check_matrix(words, scales)
    kernels, launch = Kernels(SOURCE), Launch(n, k, multiprocessors())
    shared, separate = activation_bytes(k, LIMBS[name]), name == "dp4a_separate"

    def gemv(x: Tensor) -> Tensor:
        check_x(x, k, words)
        y = torch.empty(n, dtype=torch.float32, device=x.device)
        if separate:
            codes = torch.empty(shared, dtype=torch.uint8, device=x.device)
            kernels.launch(QUANTIZE[1], launch.quantize_grid, launch.threads, x, codes, k)
            x = codes
        kernels.launch(f"gemv_{name}", launch.grid, launch.threads, words, scales, x, y, n, k, shared_bytes=shared)
        return y

    return gemv


def activation_bytes(k: int, limbs: int) -> int:
    """Bytes of a quantized x: codes of each limb and a float32 a group, filled up with zeros to whole 1024 codes."""
    return -(-k // 1024) * (1024 * limbs + 1024 // GROUP * 4)


def quantize(x: Tensor, limbs: int) -> tuple[Tensor, Tensor]:
    """x floating (k,), rounded to float16, to codes int32 (k,) and scales float32 (k / 128,), as the kernels do it.

    >>> codes, scales = quantize(torch.arange(128.0), limbs=1)
    >>> codes[-3:].tolist(), float(scales[0])
    ([125, 126, 127], 1.0)
    """
    groups = x.to(torch.float16).float().reshape(-1, GROUP)
    largest, most = groups.abs().amax(dim=1), torch.tensor(float(LARGEST[limbs]))
    inverse = torch.where(largest > 0, most / largest, 0.0)
    codes = (groups * inverse[:, None]).round().to(torch.int32)
    return codes.flatten(), largest / most


def split_limbs(codes: Tensor) -> tuple[Tensor, Tensor]:
    """Codes int32 -> high and low limbs, 256 * high + low, both -128..127.

    >>> [limb.tolist() for limb in split_limbs(torch.tensor([-12345, 32512, 128]))]
    [[-48, 127, 1], [-57, 0, -128]]
    """
    high = (codes + 128) >> 8
    return high, codes - 256 * high


def reference_int8(words: Tensor, scales: Tensor, x: Tensor, limbs: int = 1) -> Tensor:
    """The product with a quantized x by the kernels' own arithmetic: float64 (n,), added up in float64.

    words int32 (n, k / 8) in `value_shuffle`, scales float16 (n, k / 128), x floating (k,). Codes, integer sums and
    the float32 number that each of them becomes are the kernels' own, to the bit; the order of adding is not modelled.
    """
    codes, x_scales = quantize(x, limbs)
    weights = unpack_words(words).view(len(words), -1, LANE_WEIGHTS)
    sums = torch.stack([row.int() * codes.view(-1, LANE_WEIGHTS) for row in weights]).sum(dim=2)
    factors = scales.float() * (x_scales / 16)
    parts = (16 * sums).float() * factors.repeat_interleave(GROUP // LANE_WEIGHTS, dim=1)
    return parts.double().sum(dim=1)


def reference_fp16(words: Tensor, scales: Tensor, x: Tensor) -> Tensor:
    """The product by the arithmetic of the rung `rows`: float64 (n,), added up in float64.

    Of each word two fp16 chains of four products each, every step rounded once; from there on float32, here float64.
    """
    weights = unpack_words(words).double().view(len(words), -1, 4, 2)
    pairs = weights * x.to(torch.float16).double().view(-1, 4, 2)
    chain = pairs[:, :, 0].half()
    for step in range(1, 4):
        chain = (pairs[:, :, step] + chain.double()).half()
    groups = chain.double().sum(dim=2).view(*scales.shape, -1).sum(dim=2)
    return (groups * scales.double()).sum(dim=1)
