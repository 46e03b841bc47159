"""Three rungs of the GEMV's ladder in Triton: naive, coalesced, best. INT4 weights in groups of 128, x in fp16.

A row's words lie one after another; a word holds weights 0 2 4 6 1 3 5 7 of its eight (`value_shuffle`), stored as
n = q + 8. Every rung adds up in float32 and always in the same order, so a result is the same to the bit on every run.
What lies behind a row's last word or the last row is never read. With TRITON_INTERPRET=1 in the environment before the
import, the same code runs without a GPU.
"""

# ruff: noqa: ANN001, ANN201, ANN202, PLR0913, PLR0917 - Triton would read a kernel's annotations as types of arguments

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from lab_engine.config import GROUP
from lab_engine.errors import NanoqwenError
from lab_engine.gemv_ladder import check_matrix, check_x

ONE = 0x3F800000
"""The bits of a float32 of 1: exponent 127, fraction 0."""


@triton.jit  # type: ignore[untyped-decorator]
def gemv_triton_naive(  # type: ignore[no-untyped-def]
    words, scales, x, y, n, groups, ROWS: tl.constexpr,
):  # fmt: skip
    """A lane a row: at every step the lanes of a warp read 4 bytes each, a row apart."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    there = row < n
    start = row.to(tl.int64)
    acc = tl.zeros([ROWS], tl.float32)
    for group in range(groups):
        scale = tl.load(scales + start * groups + group, mask=there, other=0.0).to(tl.float32)
        for at in range(group * 16, group * 16 + 16):
            word = tl.load(words + start * (groups * 16) + at, mask=there, other=0)
            for weight in tl.static_range(8):
                q = ((word >> (4 * (weight // 2 + 4 * (weight % 2)))) & 15) - 8
                acc += q.to(tl.float32) * scale * tl.load(x + 8 * at + weight).to(tl.float32)
    tl.store(y + row, acc, mask=there)


@triton.jit  # type: ignore[untyped-decorator]
def gemv_triton_coalesced(  # type: ignore[no-untyped-def]
    words, scales, x, y, groups, WORDS: tl.constexpr,
):  # fmt: skip
    """A program a row, one warp: neighbouring lanes read neighbouring 16 bytes. The unpacking is still naive."""
    row = tl.program_id(0).to(tl.int64)
    weight = tl.arange(0, 8)
    shift = 4 * (weight // 2 + 4 * (weight % 2))
    acc = tl.zeros([WORDS], tl.float32)
    for first in range(0, groups * 16, WORDS):
        at = first + tl.arange(0, WORDS)
        there = at < groups * 16
        word = tl.load(words + row * (groups * 16) + at, mask=there, other=0)
        scale = tl.load(scales + row * groups + at // 16, mask=there, other=0.0).to(tl.float32)
        values = tl.load(x + at[:, None] * 8 + weight, mask=there[:, None], other=0.0).to(tl.float32)
        q = ((word[:, None] >> shift) & 15) - 8
        acc += tl.sum(q.to(tl.float32) * values, 1) * scale
    tl.store(y + row, tl.sum(acc, 0))


@triton.jit
def _four(values):  # type: ignore[no-untyped-def]
    """(a, b, 4) -> four (a, b), without moving a number from lane to lane."""
    even, odd = tl.split(tl.reshape(values, [values.shape[0], values.shape[1], 2, 2]))
    first, third = tl.split(even)
    second, fourth = tl.split(odd)
    return first, second, third, fourth


@triton.jit
def _word(low, high, x_low, x_high, word, x_at, inside, one):  # type: ignore[no-untyped-def]
    """Add a word of every unit of every row, times its eight x: nibbles at bit 15 to `low`, at bit 19 to `high`."""
    values = tl.load(x_at[:, None] + tl.arange(0, 8), mask=inside[:, None], other=0.0).to(tl.float32)
    even, odd = tl.split(tl.reshape(values, [values.shape[0], 4, 2]))
    x0, x2, x4, x6 = _four(even[None])
    x1, x3, x5, x7 = _four(odd[None])
    low += (word << 15 & 15 << 15 | one).to(tl.float32, bitcast=True) * x0
    high += (word << 15 & 15 << 19 | one).to(tl.float32, bitcast=True) * x2
    low += (word << 7 & 15 << 15 | one).to(tl.float32, bitcast=True) * x4
    high += (word << 7 & 15 << 19 | one).to(tl.float32, bitcast=True) * x6
    low += (word >> 1 & 15 << 15 | one).to(tl.float32, bitcast=True) * x1
    high += (word >> 1 & 15 << 19 | one).to(tl.float32, bitcast=True) * x3
    low += (word >> 9 & 15 << 15 | one).to(tl.float32, bitcast=True) * x5
    high += (word >> 9 & 15 << 19 | one).to(tl.float32, bitcast=True) * x7
    return low, high, x_low + (x0 + x4 + x1 + x5), x_high + (x2 + x6 + x3 + x7)


@triton.jit  # type: ignore[untyped-decorator]
def gemv_triton_best(  # type: ignore[no-untyped-def]
    words, scales, x, y, n, groups, one, ROWS: tl.constexpr, UNITS: tl.constexpr,
):  # fmt: skip
    """Several rows a program, K split over its warps: x is read once for all rows, and many loads are in flight.

    A unit is 16 bytes: 4 words, 32 weights, what a lane loads at once. No conversion: a nibble n at bit b of the
    fraction, below the exponent of 1, is the number 1 + n / 2^(23 - b). So its q = n - 8 is 2^(23 - b) times that, less
    2^(23 - b) + 8, and what is taken away is computed once for all rows. one: the bits of 1.0, as an argument, because
    an instruction holds one constant: with a mask and a register, AND and OR are a single LOP3.
    """
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    real = row < n
    start = row.to(tl.int64)[:, None]
    acc = tl.zeros([ROWS, UNITS], tl.float32)
    for first in range(0, groups * 4, UNITS):
        unit = first + tl.arange(0, UNITS)
        inside = unit < groups * 4
        there = real[:, None] & inside
        at = first * 4 + tl.arange(0, UNITS * 4)
        word = tl.load(words + start * (groups * 16) + at, mask=real[:, None] & (at < groups * 16), other=0)
        scale = tl.load(scales + start * groups + unit // 4, mask=there, other=0.0).to(tl.float32)
        low, high = tl.zeros([ROWS, UNITS], tl.float32), tl.zeros([ROWS, UNITS], tl.float32)
        x_low, x_high = tl.zeros([1, UNITS], tl.float32), tl.zeros([1, UNITS], tl.float32)
        word0, word1, word2, word3 = _four(tl.reshape(word, [ROWS, UNITS, 4]))
        x_at = x + unit * 32
        low, high, x_low, x_high = _word(low, high, x_low, x_high, word0, x_at, inside, one)
        low, high, x_low, x_high = _word(low, high, x_low, x_high, word1, x_at + 8, inside, one)
        low, high, x_low, x_high = _word(low, high, x_low, x_high, word2, x_at + 16, inside, one)
        low, high, x_low, x_high = _word(low, high, x_low, x_high, word3, x_at + 24, inside, one)
        acc += (low * 256 + high * 16 - (x_low * (256 + 8) + x_high * (16 + 8))) * scale
    tl.store(y + row, tl.sum(acc, 1), mask=real)


@dataclass(frozen=True)
class Launch:
    """How a rung is launched: its kernel, rows and warps a program; what the kernel takes after its tensors."""

    kernel: Any
    rows: int
    num_warps: int
    numbers: tuple[str, ...]
    constants: dict[str, int]


LAUNCHES = {
    "triton_naive": Launch(gemv_triton_naive, 32, 1, ("n", "groups"), {"ROWS": 32}),
    "triton_coalesced": Launch(gemv_triton_coalesced, 1, 1, ("groups",), {"WORDS": 128}),
    "triton_best": Launch(gemv_triton_best, 8, 4, ("n", "groups", "one"), {"ROWS": 8, "UNITS": 128}),
}


def load(name: str, words: Tensor, scales: Tensor) -> Callable[[Tensor], Tensor]:
    """The GEMV of one matrix by a rung of LAUNCHES: takes x float16 (k,), returns y float32 (n,), can be captured.

    words int32 (n, k / 8) in `value_shuffle`, scales float16 (n, k / 128), on one GPU; in the interpreter on the CPU.
    NanoqwenError for another shape, dtype, device or memory order, of the matrix here and of x at every call.
    """
    launch = _named(name)
    n, k = check_matrix(words, scales)
    if not words.is_cuda and os.environ.get("TRITON_INTERPRET") != "1":
        raise NanoqwenError(
            f"words are on {words.device}: Triton needs an NVIDIA GPU, or TRITON_INTERPRET=1 before its import"
        )

    values = {"n": n, "groups": k // GROUP, "one": ONE}
    arguments = {key: values[key] for key in launch.numbers} | launch.constants

    def gemv(x: Tensor) -> Tensor:
        check_x(x, k, words)
        y = torch.empty(n, dtype=torch.float32, device=x.device)
        launch.kernel[(triton.cdiv(n, launch.rows),)](words, scales, x, y, **arguments, num_warps=launch.num_warps)
        return y

    return gemv


def compile_rung(name: str) -> Any:
    """A rung as Triton compiles it for Hopper, without a GPU: `.asm["cubin"]`, `.asm["ptx"]`, `.metadata.shared`.

    As for the 7B: all pointers, and n, divisible by 16. Leaves nothing on the disk.
    """
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    launch = _named(name)
    types = {"words": "*i32", "scales": "*fp16", "x": "*fp16", "y": "*fp32"} | dict.fromkeys(launch.numbers, "i32")
    signature = types | dict.fromkeys(launch.constants, "constexpr")
    divisible = {(place,): [["tt.divisibility", 16]] for place, key in enumerate(types) if key != "groups"}
    source = ASTSource(launch.kernel, signature, launch.constants, divisible)
    with TemporaryDirectory() as folder, triton.knobs.cache.scope():
        triton.knobs.cache.dir = folder
        return triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": launch.num_warps})


def _named(name: str) -> Launch:
    if name not in LAUNCHES:
        raise NanoqwenError(f"Triton rung {name!r}: expected one of {', '.join(LAUNCHES)}")
    return LAUNCHES[name]
