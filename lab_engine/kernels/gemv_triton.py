"""Three rungs of the GEMV in Triton: naive, coalesced, best. INT4 weights in groups of 128, times a vector of fp16.

A row's words lie one after another; a word holds weights 0 2 4 6 1 3 5 7 of its eight (`value_shuffle`), stored as
n = q + 8. Every rung adds up in float32 and always in the same order, so a result is the same to the bit on every run.
What lies behind a row's last word or the last row is never read. With TRITON_INTERPRET=1 in the environment before the
import, the same code runs without a GPU.
"""

# ruff: noqa: ANN001, ANN201, ANN202, PLR0913, PLR0917 - Triton would read a kernel's annotations as types of arguments

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from lab_engine.config import GROUP
from lab_engine.errors import NanoqwenError


@triton.jit  # type: ignore[untyped-decorator]
def gemv_triton_naive(  # type: ignore[no-untyped-def]
    words, scales, x, y, n, k, ROWS: tl.constexpr,
):  # fmt: skip
    """A lane a row: at every step the lanes of a warp read 4 bytes each, a row apart."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    there = row < n
    start = row.to(tl.int64)
    acc = tl.zeros([ROWS], tl.float32)
    for group in range(k // 128):
        scale = tl.load(scales + start * (k // 128) + group, mask=there, other=0.0).to(tl.float32)
        for at in range(group * 16, group * 16 + 16):
            word = tl.load(words + start * (k // 8) + at, mask=there, other=0)
            for weight in tl.static_range(8):
                q = ((word >> (4 * (weight // 2 + 4 * (weight % 2)))) & 15) - 8
                acc += q.to(tl.float32) * scale * tl.load(x + 8 * at + weight).to(tl.float32)
    tl.store(y + row, acc, mask=there)


@triton.jit  # type: ignore[untyped-decorator]
def gemv_triton_coalesced(  # type: ignore[no-untyped-def]
    words, scales, x, y, n, k, WORDS: tl.constexpr,
):  # fmt: skip
    """A program a row, one warp: neighbouring lanes read neighbouring 16 bytes. The unpacking is still naive."""
    row = tl.program_id(0).to(tl.int64)
    weight = tl.arange(0, 8)
    shift = 4 * (weight // 2 + 4 * (weight % 2))
    acc = tl.zeros([WORDS], tl.float32)
    for first in range(0, k // 8, WORDS):
        at = first + tl.arange(0, WORDS)
        there = at < k // 8
        word = tl.load(words + row * (k // 8) + at, mask=there, other=0)
        scale = tl.load(scales + row * (k // 128) + at // 16, mask=there, other=0.0).to(tl.float32)
        values = tl.load(x + at[:, None] * 8 + weight, mask=there[:, None], other=0.0).to(tl.float32)
        q = ((word[:, None] >> shift) & 15) - 8
        acc += tl.sum(q.to(tl.float32) * values, 1) * scale
    tl.store(y + row, tl.sum(acc, 0))


@triton.jit  # type: ignore[untyped-decorator]
def _split_eight(values):  # type: ignore[no-untyped-def]
    """(…, 8) -> the eight (…): x of the eight weights of a word."""
    pairs = tl.reshape(values, [values.shape[0], values.shape[1], 2, 2, 2])
    low, high = tl.split(pairs)  # by the last bit of the weight's number
    low_low, low_high = tl.split(low)
    high_low, high_high = tl.split(high)
    x0, x4 = tl.split(low_low)
    x2, x6 = tl.split(low_high)
    x1, x5 = tl.split(high_low)
    x3, x7 = tl.split(high_high)
    return x0, x1, x2, x3, x4, x5, x6, x7


@triton.jit  # type: ignore[untyped-decorator]
def _two(acc, view, low, high):  # type: ignore[no-untyped-def]
    """acc + two nibbles of `view`, at bits 15 and 19, each as the fraction of a float32 between 1 and 2, times x."""
    acc += (view & (15 << 15) | 0x3F800000).to(tl.float32, bitcast=True) * low[None]
    return acc + (view & (15 << 19) | 0x3F800000).to(tl.float32, bitcast=True) * high[None]


@triton.jit  # type: ignore[untyped-decorator]
def gemv_triton_best(  # type: ignore[no-untyped-def]
    words, scales, x, y, n, k, ROWS: tl.constexpr, UNITS: tl.constexpr,
):  # fmt: skip
    """Several rows a program, K split over its warps: x is read once for all rows, and many loads are in flight.

    A unit is 16 bytes: 4 words, 32 weights, what a lane loads at once. No conversion: a nibble n at bit b of the
    fraction, below the exponent of 1, is the number 1 + n / 2^(23 - b). So n - 8 = 2^(23 - b) (that - 1) - 8, and what
    does not depend on the weight is taken away once for all rows, as `offset`.
    """
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    real = row < n
    start = row.to(tl.int64)[:, None]
    part = tl.arange(0, 4)
    acc = tl.zeros([ROWS, UNITS], tl.float32)
    for first in range(0, k // 32, UNITS):
        unit = first + tl.arange(0, UNITS)
        inside = unit < k // 32
        there = real[:, None] & inside
        at = (start * (k // 8))[:, :, None] + unit[None, :, None] * 4 + part
        word = tl.load(words + at, mask=there[:, :, None], other=0, eviction_policy="evict_first")
        scale = tl.load(scales + start * (k // 128) + unit // 4, mask=there, other=0.0)
        of_word = x + (unit[:, None] * 32 + part * 8)[:, :, None] + tl.arange(0, 8)
        values = tl.load(of_word, mask=inside[:, None, None], other=0.0).to(tl.float32)
        x0, x1, x2, x3, x4, x5, x6, x7 = _split_eight(values)
        x0, x4, x1, x5 = x0 * 256, x4 * 256, x1 * 256, x5 * 256  # at bit 15: 2^(23 - 15)
        x2, x6, x3, x7 = x2 * 16, x6 * 16, x3 * 16, x7 * 16  # at bit 19
        offset = (x0 + x4 + x1 + x5) * -(1 + 8 / 256) + (x2 + x6 + x3 + x7) * -(1 + 8 / 16)
        total = tl.broadcast_to(offset[None], [ROWS, UNITS, 4])
        total = _two(total, word << 15, x0, x2)
        total = _two(total, word << 7, x4, x6)
        total = _two(total, word >> 1, x1, x3)
        total = _two(total, word >> 9, x5, x7)
        acc += tl.sum(total, 2) * scale.to(tl.float32)
    tl.store(y + row, tl.sum(acc, 1), mask=real)


@dataclass(frozen=True)
class Launch:
    """How a rung is launched: its kernel, rows a program, warps a program, constants of the kernel."""

    kernel: Any
    rows: int
    num_warps: int
    constants: dict[str, int] = field(default_factory=dict)


LAUNCHES = {
    "triton_naive": Launch(gemv_triton_naive, 32, 1, {"ROWS": 32}),
    "triton_coalesced": Launch(gemv_triton_coalesced, 1, 1, {"WORDS": 128}),
    "triton_best": Launch(gemv_triton_best, 8, 4, {"ROWS": 8, "UNITS": 128}),
}


def load(name: str, words: Tensor, scales: Tensor) -> Callable[[Tensor], Tensor]:
    """The GEMV of one matrix by a rung of LAUNCHES: takes x float16 (k,), returns y float32 (n,), can be captured.

    words int32 (n, k / 8) in `value_shuffle`, scales float16 (n, k / 128), on one GPU; in the interpreter on the CPU.
    NanoqwenError for another shape, dtype, device or memory order, of the matrix here and of x at every call.
    """
    launch = _named(name)
    _check_matrix(words, scales)
    (n, groups), k = scales.shape, scales.shape[1] * GROUP

    def gemv(x: Tensor) -> Tensor:
        _check("x", x, (k,), torch.float16, words)
        y = torch.empty(n, dtype=torch.float32, device=x.device)
        programs = triton.cdiv(n, launch.rows)
        launch.kernel[(programs,)](words, scales, x, y, n, k, **launch.constants, num_warps=launch.num_warps)
        return y

    return gemv


def compile_rung(name: str) -> Any:
    """A rung as Triton compiles it for Hopper, without a GPU: `.asm["cubin"]`, `.asm["ptx"]`, `.metadata.shared`."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    launch = _named(name)
    types = {"words": "*i32", "scales": "*fp16", "x": "*fp16", "y": "*fp32", "n": "i32", "k": "i32"}
    signature = types | dict.fromkeys(launch.constants, "constexpr")
    attributes = {(place,): [["tt.divisibility", 16]] for place in range(len(types))}
    source = ASTSource(launch.kernel, signature, launch.constants, attributes)
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": launch.num_warps})


def _named(name: str) -> Launch:
    if name not in LAUNCHES:
        raise NanoqwenError(f"Triton rung {name!r}: expected one of {', '.join(LAUNCHES)}")
    return LAUNCHES[name]


def _check_matrix(words: Tensor, scales: Tensor) -> None:
    if scales.ndim != 2 or 0 in scales.shape:
        raise NanoqwenError(f"scales: found {tuple(scales.shape)}, expected (n, k / {GROUP}), neither of them 0")
    n, groups = scales.shape
    _check("words", words, (n, groups * GROUP // 8), torch.int32, words)
    _check("scales", scales, (n, groups), torch.float16, words)
    if not words.is_cuda and os.environ.get("TRITON_INTERPRET") != "1":
        raise NanoqwenError(
            f"words are on {words.device}: Triton needs an NVIDIA GPU, or TRITON_INTERPRET=1 before its import"
        )


def _check(name: str, tensor: Tensor, shape: tuple[int, ...], dtype: torch.dtype, words: Tensor) -> None:
    if tuple(tensor.shape) != shape or tensor.dtype != dtype or tensor.device != words.device:
        found = f"{tuple(tensor.shape)} {tensor.dtype} on {tensor.device}"
        raise NanoqwenError(f"{name}: found {found}, expected {shape} {dtype} on {words.device}")
    if not tensor.is_contiguous():
        raise NanoqwenError(f"{name}: expected contiguous memory; pass {name}.contiguous()")
