"""The fastest product of a matrix and one vector: INT4 weights times 16-bit activations on integer tensor cores.

A matrix is stored in *tiles*: a block of the kernel reads its whole share as one run of bytes. Words stay whole
`value_shuffle` words; only their order in memory changes, and each group's scales lie behind its words. y float32.
Every form of the product is one kernel of kernels/gemv_mma.cu, launched on PyTorch's current stream; h, the residual
stream, is float32, as is everything between two kernels. What breaks it: k that is no multiple of 128, a `dependent`
launch behind something that does not write what it reads in one stream order.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from lab_engine.config import GROUP
from lab_engine.errors import NanoqwenError
from lab_engine.gpu import Kernels, multiprocessors

SOURCE = "gemv_mma.cu"
WARPS, STAGE_UNITS, UNIT_ROWS = 8, 4, 32
"""As in kernels/gemv_mma.cuh: warps that multiply, units of a bulk copy, and the most rows of a unit."""
THREADS = 32 * (WARPS + 1)
FEWEST_ROWS = 8  # of a unit: it takes the warp as long as 32

_WORD_BYTES, _SCALE_BYTES = GROUP // 2, 2  # of a row in a unit


@dataclass(frozen=True)
class Plan:
    """How an (n, k) matrix is shared out: each of `grid` blocks owns `tiles` tiles of `rows` consecutive rows.

    slots: stages of the ring in shared memory; window: stages in flight at a time; early: the next kernel of the stream
    may start when so many stages are still to be asked for.
    """

    n: int
    k: int
    rows: int
    tiles: int
    grid: int
    slots: int = 6
    window: int = 5
    early: int = 0

    @property
    def groups(self) -> int:
        """Groups of 128 weights in a row."""
        return self.k // GROUP

    @property
    def blocks(self) -> int:
        """Blocks that own rows; the others of the grid only keep their place."""
        return math.ceil(self.n / (self.rows * self.tiles))

    @property
    def unit_bytes(self) -> int:
        """One tile times one group: words, scales, and zeros up to a multiple of 16."""
        return (self.rows * (_WORD_BYTES + _SCALE_BYTES) + 15) // 16 * 16

    @property
    def shape(self) -> tuple[int, int, int, int, int]:
        """Of the packed bytes: (blocks, tiles, groups, unit_bytes) and the rows of a tile before them."""
        return self.blocks, self.tiles, self.groups, self.unit_bytes, self.rows

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block, as struct Shared of the kernel shares it out."""
        ring = self.slots * (STAGE_UNITS * self.unit_bytes + 16)
        return ring + self.groups * (2 * GROUP + 4) + 4 * WARPS * (self.tiles * UNIT_ROWS + 1)


def plan(n: int, k: int, sms: int) -> Plan:
    """The plan with the fewest bytes for the busiest block; of equals the one with the tallest tiles."""
    if k <= 0 or k % GROUP or n <= 0:
        raise NanoqwenError(f"matrix ({n}, {k}): expected n over 0 and k a positive multiple of {GROUP}")
    heights = range(FEWEST_ROWS, UNIT_ROWS + 1, 2)  # even: the rows of gate and up come in pairs
    found = [Plan(n, k, rows, math.ceil(n / (rows * sms)), sms) for rows in heights]
    return min(found, key=lambda one: (one.tiles * one.unit_bytes, -one.rows))


def pack_tiles(words: Tensor, scales: Tensor, plan: Plan) -> Tensor:
    """int32 `value_shuffle` words (n, k // 8) and float16 scales (n, k // 128) -> uint8, as the kernel reads them.

    Rows beyond the matrix have scale 0. Runs where the tensors are.
    """
    _check_matrix(words, scales, plan)
    blocks, tiles, groups, unit_bytes, rows = plan.shape
    padding = blocks * tiles * rows - plan.n
    parts = []
    for part in (words.view(plan.n, groups, -1), scales.view(plan.n, groups, 1)):
        padded = torch.cat([part, part.new_zeros(padding, *part.shape[1:])])
        units = padded.view(blocks, tiles, rows, groups, -1).transpose(2, 3)
        parts.append(units.reshape(blocks, tiles, groups, -1).contiguous().view(torch.uint8))
    gap = unit_bytes - sum(part.shape[-1] for part in parts)
    return torch.cat([*parts, parts[0].new_zeros(blocks, tiles, groups, gap)], dim=-1).flatten()


def unpack_tiles(packed: Tensor, plan: Plan) -> tuple[Tensor, Tensor]:
    """The inverse of pack_tiles: words int32 (n, k // 8) and scales float16 (n, k // 128)."""
    blocks, tiles, groups, unit_bytes, rows = plan.shape
    units = packed.view(blocks, tiles, groups, unit_bytes)
    ends = (0, rows * _WORD_BYTES, rows * (_WORD_BYTES + _SCALE_BYTES))
    found = []
    for start, end, dtype in zip(ends, ends[1:], (torch.int32, torch.float16), strict=False):
        part = units[..., start:end].contiguous().view(dtype).view(blocks, tiles, groups, rows, -1)
        found.append(part.transpose(2, 3).reshape(blocks * tiles * rows, -1)[: plan.n])
    return found[0], found[1]


def interleave(first: Tensor, second: Tensor) -> Tensor:
    """Rows of two tensors in turn: how gate_up takes gate and up, so that a block holds both of a pair."""
    return torch.stack([first, second], dim=1).flatten(0, 1)


@dataclass(frozen=True)
class MmaMatrix:
    """A matrix on the GPU in tiles. scratch: int64 (2,), two zeros between kernels, where lm_head's blocks meet."""

    tiles: Tensor
    plan: Plan
    scratch: Tensor

    @classmethod
    def of(cls, words: Tensor, scales: Tensor, plan_: Plan | None = None) -> MmaMatrix:
        """Pack words and scales, which lie on the GPU, for all its SMs, or as plan_ says."""
        chosen = plan_ or plan(words.shape[0], words.shape[1] * 8, multiprocessors())
        return cls(pack_tiles(words, scales, chosen), chosen, torch.zeros(2, dtype=torch.int64, device=words.device))


def plain(x: Tensor, matrix: MmaMatrix, y: Tensor, dependent: bool = False) -> None:
    """y = W x. x: float16 (k,), y: float32 (n,)."""
    _launch("gemv_plain", matrix, (_input(x, matrix, torch.float16), _output(y, matrix.plan.n)), dependent)


def qkv(
    x: Tensor, norm: Tensor, eps: float, matrix: MmaMatrix, bias: Tensor, y: Tensor, dependent: bool = False
) -> None:
    """y = W RMSNorm(x) + bias. x, norm: float32 (k,); bias, y: float32 (n,)."""
    size = matrix.plan.n
    _launch("gemv_qkv", matrix, (*_normed(x, norm, eps, matrix), _output(bias, size), _output(y, size)), dependent)


def o(x: Tensor, matrix: MmaMatrix, h: Tensor, dependent: bool = False) -> None:
    """h += W x. x: float32 (k,), h: float32 (n,)."""
    _launch("gemv_residual", matrix, (_input(x, matrix), _output(h, matrix.plan.n)), dependent)


down = o
"""h += W x: the same kernel, for the shape of down."""


def gate_up(x: Tensor, norm: Tensor, eps: float, matrix: MmaMatrix, y: Tensor, dependent: bool = False) -> None:
    """y = silu(gate) * up, of W RMSNorm(x), whose rows are gate and up in turn. x, norm: float32 (k,), y: (n / 2,)."""
    _launch("gemv_gate_up", matrix, (*_normed(x, norm, eps, matrix), _output(y, matrix.plan.n // 2)), dependent)


def lm_head(
    x: Tensor, norm: Tensor, eps: float, matrix: MmaMatrix, logits: Tensor, best: Tensor, dependent: bool = False
) -> None:
    """logits = W RMSNorm(x), float32 (n,). best int64 (1,): the largest's token, the lowest of equals, NaN first."""
    outputs = (_output(logits, matrix.plan.n), _checked("best", best, 1, torch.int64), matrix.scratch)
    _launch("gemv_lm_head", matrix, (*_normed(x, norm, eps, matrix), *outputs), dependent)


def load_plain(words: Tensor, scales: Tensor) -> Callable[[Tensor], Tensor]:
    """Rung 7 of the ladder: the result takes x float16 (k,) on the GPU and gives y float32 (n,), capturable."""
    matrix = MmaMatrix.of(words, scales)
    y = torch.empty(matrix.plan.n, device=words.device)

    def multiply(x: Tensor) -> Tensor:
        plain(x, matrix, y)
        return y

    return multiply


@cache
def kernels() -> Kernels:
    """The compiled kernels of this GPU."""
    return Kernels(SOURCE)


def _launch(name: str, matrix: MmaMatrix, arguments: tuple[Tensor | float, ...], dependent: bool) -> None:
    one = matrix.plan
    shape = (one.n, one.groups, one.rows, one.tiles, one.slots, one.window, one.early)
    kernels().launch(
        name,
        one.grid,
        THREADS,
        matrix.tiles,
        *arguments,
        *shape,
        shared_bytes=one.shared_bytes,
        dependent=dependent,
    )


def _normed(x: Tensor, norm: Tensor, eps: float, matrix: MmaMatrix) -> tuple[Tensor, Tensor, float]:
    return _input(x, matrix), _checked("norm", norm, matrix.plan.k), float(eps)


def _input(x: Tensor, matrix: MmaMatrix, dtype: torch.dtype = torch.float32) -> Tensor:
    return _checked("x", x, matrix.plan.k, dtype)


def _output(y: Tensor, size: int) -> Tensor:
    return _checked("vector of rows", y, size)


def _checked(what: str, vector: Tensor, size: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """The vector, if it is on the GPU, contiguous, aligned to 16 bytes where it is long, and of this size and dtype."""
    if vector.shape != (size,) or vector.dtype != dtype or not vector.is_contiguous() or not vector.is_cuda:
        found = f"{vector.dtype} {tuple(vector.shape)} on {vector.device}, strides {vector.stride()}"
        raise NanoqwenError(f"{what}: found {found}; expected contiguous {dtype} ({size},) on the GPU")
    return vector


def _check_matrix(words: Tensor, scales: Tensor, plan: Plan) -> None:
    expected = ((plan.n, plan.k // 8), torch.int32), ((plan.n, plan.k // GROUP), torch.float16)
    for what, part, (shape, dtype) in zip(("words", "scales"), (words, scales), expected, strict=True):
        if part.shape != shape or part.dtype != dtype:
            raise NanoqwenError(f"{what}: found {part.dtype} {tuple(part.shape)}; expected {dtype} {shape}")
