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
from lab_engine.gemv_ladder import ALIGNMENT, check_matrix, check_x
from lab_engine.gpu import Kernels, multiprocessors

SOURCE = "gemv_mma.cu"
WARPS, STAGE_UNITS, UNIT_ROWS, PARTS = 16, 8, 32, 2
"""As in kernels/gemv_mma_ring.cuh: warps that multiply, units of a copy, most rows of a unit, parts of a long row."""
THREADS = 32 * (WARPS + 1)
FEWEST_ROWS, SHORT_UNIT_BYTES = 8, 1056  # a unit takes a warp the same time, however few its rows
LONG_ROW = 8192
"""Of longer rows the blocks of a cluster take a part each: a block has to read all of x that its weights meet."""
SHARED_BYTES, RING_BYTES, WINDOW_BYTES = 227 * 1024, 136 * 1024, 42 * 1024
"""Shared memory of a block on Hopper, at most; of it for weights; of them in flight at a time. Measured: with less in
flight the memory waits, with more every other access of the SM waits behind it."""

_WORD_BYTES, _SCALE_BYTES = GROUP // 2, 2  # of a row in a unit


@dataclass(frozen=True)
class Plan:
    """How an (n, k) matrix is shared out: each of `grid` blocks owns `tiles` tiles of `rows` consecutive rows.

    parts: blocks that share each row. The ring's slots and window follow from this.
    """

    n: int
    k: int
    rows: int
    tiles: int
    grid: int
    parts: int = 1

    @property
    def groups(self) -> int:
        """Groups of 128 weights in a row of a part."""
        return self.k // GROUP // self.parts

    @property
    def blocks(self) -> int:
        """Blocks that own weights; the others of the grid only keep their place."""
        return math.ceil(self.n / (self.rows * self.tiles)) * self.parts

    @property
    def unit_bytes(self) -> int:
        """One tile times one group: words, scales, and zeros up to a multiple of 16."""
        return (self.rows * (_WORD_BYTES + _SCALE_BYTES) + 15) // 16 * 16

    @property
    def shape(self) -> tuple[int, int, int, int, int]:
        """How often rows are cut, from the outside in: blocks with other rows, tiles, parts, groups, rows of a tile."""
        return self.blocks // self.parts, self.tiles, self.parts, self.groups, self.rows

    @property
    def slots(self) -> int:
        """Stages of the ring: RING_BYTES of them, or what the rest leaves."""
        return max(3, min(RING_BYTES, SHARED_BYTES - self._rest_bytes) // (self._stage_bytes + 16))

    @property
    def window(self) -> int:
        """Stages in flight at a time; a warp's next unit is up to WARPS / STAGE_UNITS stages on, which must be free."""
        return min(self.slots - WARPS // STAGE_UNITS, max(1, round(WINDOW_BYTES / self._stage_bytes)))

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block, as struct Shared of the kernel shares it out: the ring with its barriers first."""
        return self.slots * (self._stage_bytes + 16) + self._rest_bytes

    @property
    def _stage_bytes(self) -> int:
        return STAGE_UNITS * self.unit_bytes

    @property
    def _rest_bytes(self) -> int:
        """The quantized activation with its scales, the sums of all warps, a sum of squares a warp."""
        return self.groups * (2 * GROUP + 4) + 4 * WARPS * (self.tiles * UNIT_ROWS + 1)


def plan(n: int, k: int, sms: int) -> Plan:
    """The plan with the fewest bytes for the busiest block of those that fit; of equals the one with the tallest tiles.

    NanoqwenError for a matrix that is not whole groups, or whose sums and x are too large for a block's shared memory.
    """
    if k <= 0 or k % GROUP or n <= 0:
        raise NanoqwenError(f"matrix ({n}, {k}): expected n over 0 and k a positive multiple of {GROUP}")
    if sms <= 0:
        raise NanoqwenError(f"sms: found {sms}, expected at least 1")
    if k > LONG_ROW and k // GROUP % PARTS == 0 and sms >= PARTS:
        split = _best_plan(n, k, sms, PARTS)
        if (
            split.tiles <= split.groups and split.shared_bytes <= SHARED_BYTES
        ):  # so many sums fit where the activation was
            return split
    found = _best_plan(n, k, sms, 1)
    if found.shared_bytes > SHARED_BYTES:
        needed = (
            f"{found.shared_bytes:,} bytes of shared memory a block on {sms} SMs, expected at most {SHARED_BYTES:,}"
        )
        raise NanoqwenError(f"matrix ({n}, {k}): needs {needed}; multiply its rows in several parts")
    return found


def _best_plan(n: int, k: int, sms: int, parts: int) -> Plan:
    clusters = sms // parts
    heights = range(FEWEST_ROWS, UNIT_ROWS + 1, 2)  # even: the rows of gate and up come in pairs
    found = [Plan(n, k, rows, math.ceil(n / (rows * clusters)), clusters * parts, parts) for rows in heights]
    return min(
        found,
        key=lambda one: (
            one.shared_bytes > SHARED_BYTES,
            one.tiles * max(one.unit_bytes, SHORT_UNIT_BYTES),
            -one.rows,
        ),
    )


def pack_tiles(words: Tensor, scales: Tensor, plan: Plan) -> Tensor:
    """int32 `value_shuffle` words (n, k // 8) and float16 scales (n, k // 128) -> uint8, as the kernel reads them.

    Rows beyond the matrix have scale 0. Runs where the tensors are.
    """
    _check_matrix(words, scales, plan)
    stacks, tiles, parts, groups, rows = plan.shape
    padding = stacks * tiles * rows - plan.n
    bits = []
    for part in (words.view(plan.n, plan.k // GROUP, -1), scales.view(plan.n, plan.k // GROUP, 1)):
        padded = torch.cat([part, part.new_zeros(padding, *part.shape[1:])])
        units = padded.view(stacks, tiles, rows, parts, groups, -1).permute(0, 3, 1, 4, 2, 5)
        bits.append(units.reshape(stacks, parts, tiles, groups, -1).contiguous().view(torch.uint8))
    gap = plan.unit_bytes - sum(part.shape[-1] for part in bits)
    return torch.cat([*bits, bits[0].new_zeros(stacks, parts, tiles, groups, gap)], dim=-1).flatten()


def unpack_tiles(packed: Tensor, plan: Plan) -> tuple[Tensor, Tensor]:
    """The inverse of pack_tiles: words int32 (n, k // 8) and scales float16 (n, k // 128)."""
    stacks, tiles, parts, groups, rows = plan.shape
    units = packed.view(stacks, parts, tiles, groups, plan.unit_bytes)
    ends = (0, rows * _WORD_BYTES, rows * (_WORD_BYTES + _SCALE_BYTES))
    found = []
    for start, end, dtype in zip(ends, ends[1:], (torch.int32, torch.float16), strict=False):
        part = units[..., start:end].contiguous().view(dtype).view(stacks, parts, tiles, groups, rows, -1)
        found.append(part.permute(0, 2, 4, 1, 3, 5).reshape(stacks * tiles * rows, -1)[: plan.n])
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
    _launch("gemv_plain", matrix, (_input(x, matrix, torch.float16), _checked("y", y, matrix.plan.n)), dependent)


def qkv(
    x: Tensor, norm: Tensor, eps: float, matrix: MmaMatrix, bias: Tensor, y: Tensor, dependent: bool = False
) -> None:
    """y = W RMSNorm(x) + bias. x, norm: float32 (k,); bias, y: float32 (n,)."""
    inputs, size = _normed(x, norm, eps, matrix), matrix.plan.n
    _launch("gemv_qkv", matrix, (*inputs, _checked("bias", bias, size), _checked("y", y, size)), dependent)


def o(x: Tensor, matrix: MmaMatrix, h: Tensor, dependent: bool = False) -> None:
    """h += W x. x: float32 (k,), h: float32 (n,)."""
    _launch("gemv_residual", matrix, (_input(x, matrix), _checked("h", h, matrix.plan.n)), dependent)


down = o
"""h += W x: the same kernel, for the shape of down."""


def gate_up(x: Tensor, norm: Tensor, eps: float, matrix: MmaMatrix, y: Tensor, dependent: bool = False) -> None:
    """y = silu(gate) * up, of W RMSNorm(x), whose rows are gate and up in turn. x, norm: float32 (k,), y: (n / 2,)."""
    inputs = _normed(x, norm, eps, matrix)
    _launch("gemv_gate_up", matrix, (*inputs, _checked("y", y, matrix.plan.n // 2)), dependent)


def lm_head(
    x: Tensor, norm: Tensor, eps: float, matrix: MmaMatrix, logits: Tensor, best: Tensor, dependent: bool = False
) -> None:
    """logits = W RMSNorm(x), float32 (n,). best int64 (1,): the largest's token, the lowest of equals, NaN first."""
    outputs = (_checked("logits", logits, matrix.plan.n), _checked("best", best, 1, torch.int64), matrix.scratch)
    _launch("gemv_lm_head", matrix, (*_normed(x, norm, eps, matrix), *outputs), dependent)


def load_plain(words: Tensor, scales: Tensor) -> Callable[[Tensor], Tensor]:
    """Rung 7 of the ladder: takes x float16 (k,) on the GPU, returns a new y float32 (n,), can be captured.

    words int32 (n, k / 8) in `value_shuffle`, scales float16 (n, k / 128), on the GPU. NanoqwenError for another
    shape, dtype, device or memory order, of the matrix here and of x at every call.
    """
    n, k = check_matrix(words, scales)
    matrix = MmaMatrix.of(words, scales)

    def multiply(x: Tensor) -> Tensor:
        check_x(x, k, matrix.tiles)
        y = torch.empty(n, dtype=torch.float32, device=x.device)
        plain(x, matrix, y)
        return y

    return multiply


@cache
def kernels() -> Kernels:
    """The compiled kernels of this GPU."""
    return Kernels(SOURCE)


def _launch(name: str, matrix: MmaMatrix, arguments: tuple[Tensor | float, ...], dependent: bool) -> None:
    one = matrix.plan
    shape = (one.n, one.groups, one.rows, one.tiles, one.slots, one.window)
    kernels().launch(
        name if one.parts == 1 else f"{name}_split",
        one.grid,
        THREADS,
        matrix.tiles,
        *arguments,
        *shape,
        shared_bytes=one.shared_bytes,
        cluster=one.parts,
        dependent=dependent,
    )


def _normed(x: Tensor, norm: Tensor, eps: float, matrix: MmaMatrix) -> tuple[Tensor, Tensor, float]:
    if matrix.plan.parts > 1:
        raise NanoqwenError(f"rows of {matrix.plan.k} weights: a product with a norm takes at most {LONG_ROW}")
    return _input(x, matrix), _aligned("norm", _checked("norm", norm, matrix.plan.k)), float(eps)


def _input(x: Tensor, matrix: MmaMatrix, dtype: torch.dtype = torch.float32) -> Tensor:
    return _aligned("x", _checked("x", x, matrix.plan.k, dtype))


def _checked(what: str, vector: Tensor, size: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """The vector, if it is on the GPU, contiguous, and of this size and dtype."""
    if tuple(vector.shape) != (size,) or vector.dtype != dtype or not vector.is_cuda:
        found = f"{tuple(vector.shape)} {vector.dtype} on {vector.device}"
        raise NanoqwenError(f"{what}: found {found}, expected {(size,)} {dtype} on the GPU")
    if not vector.is_contiguous():
        raise NanoqwenError(f"{what}: expected contiguous memory; pass {what}.contiguous()")
    return vector


def _aligned(what: str, vector: Tensor) -> Tensor:
    """The vector, if a thread can load four of its numbers at once; those that kernels write may begin anywhere."""
    if past := vector.data_ptr() % ALIGNMENT:
        raise NanoqwenError(f"{what}: starts {past} bytes past a multiple of {ALIGNMENT}; pass {what}.clone()")
    return vector


def _check_matrix(words: Tensor, scales: Tensor, plan: Plan) -> None:
    expected = ((plan.n, plan.k // 8), torch.int32), ((plan.n, plan.k // GROUP), torch.float16)
    for what, part, (shape, dtype) in zip(("words", "scales"), (words, scales), expected, strict=True):
        if part.shape != shape or part.dtype != dtype:
            raise NanoqwenError(f"{what}: found {tuple(part.shape)} {part.dtype}, expected {shape} {dtype}")
