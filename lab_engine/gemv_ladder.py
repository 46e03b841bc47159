"""The ladder: y = W x at batch 1 for an INT4 matrix, from one thread a row to tensor cores, one idea more on each rung.

    y[row] = sum over groups of scale[row, group] * sum over its 128 weights of q[row, i] * x[i]

Every rung takes the same matrix and is right on its own; it adds up in float32 or exact integers and always in the
same order, so a result is the same to the bit on every run. What breaks a kernel: x that is not aligned to 16 bytes,
words in the other nibble order, a row that does not end with a whole group.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lab_engine.config import GROUP
from lab_engine.errors import NanoqwenError
from lab_engine.gpu import Kernels, multiprocessors
from lab_engine.index_text import functions

if TYPE_CHECKING:
    from torch import Tensor

Gemv = Callable[["Tensor"], "Tensor"]

ALIGNMENT = 16
"""Bytes that a lane loads at once, from an address that is a multiple of them."""


@dataclass(frozen=True)
class Rung:
    """One kernel of the ladder.

    title: a few words; idea: what it adds; source: its file in kernels/; kernel: its name there; layout: the nibble
    order that it reads; activation: what x is in its products; access: how lanes read the weights, a family of
    functions in kernels/gemv_index.cuh where there is one.
    """

    name: str
    title: str
    idea: str
    source: str
    kernel: str
    layout: str = "value_shuffle"
    activation: str = "fp16"
    needs_hopper: bool = False
    access: str = "coalesced"


def _cuda(name: str, title: str, idea: str, layout: str = "value_shuffle", access: str = "coalesced") -> Rung:
    return Rung(
        name, title, idea, f"gemv_{name}.cu", f"gemv_{name}", layout, access=access, needs_hopper=name == "ring"
    )


def _dp4a(name: str, title: str, idea: str, activation: str = "int8") -> Rung:
    return Rung(name, title, idea, "gemv_dp4a.cu", f"gemv_{name}", activation=activation, access="rows")


def _triton(name: str, title: str, idea: str, access: str) -> Rung:
    return Rung(name, title, idea, "gemv_triton.py", f"gemv_{name}", access=access)


RUNGS: dict[str, Rung] = {
    rung.name: rung
    for rung in (
        _cuda("naive", "A thread a row", "A loop in C: one word, eight shifts, masks and conversions.", access="naive"),
        _cuda("coalesced", "A warp a row", "Neighbouring lanes read neighbouring 16 bytes."),
        _cuda("lop3", "Logic instead of conversions", "Two nibbles become fp16 with one LOP3; HFMA2 multiplies two."),
        _cuda("prmt", "Look-up instead of logic", "PRMT looks the nibbles up in a table of bytes.", layout="linear"),
        _cuda("rows", "Several rows a warp", "x is read once for all rows, and many loads fly at once.", access="rows"),
        _cuda(
            "ring", "The copy engine", "Bulk copies fill a ring in shared memory, ahead of the warps.", access="ring"
        ),
        Rung(
            "mma",
            "Tensor cores",
            "x as two int8 limbs in the columns of an INT8 product; exact sums.",
            "gemv_mma.cu",
            "gemv_plain",
            activation="int16 limbs",
            needs_hopper=True,
            access="mma",
        ),
        _dp4a("dp4a_separate", "INT8, quantized by a kernel", "A launch quantizes x; four products an instruction."),
        _dp4a("dp4a_fused", "INT8, quantized in the prologue", "Every block quantizes x for itself: no launch."),
        _dp4a(
            "dp4a_limbs", "Two INT8 limbs", "x as 256 · high + low: 16 bits of x, twice the products.", "int16 limbs"
        ),
        _triton("triton_naive", "Triton, a lane a row", "The first rung in ten lines of Python.", "naive"),
        _triton("triton_coalesced", "Triton, a warp a row", "The second rung: only the indices change.", "coalesced"),
        _triton("triton_best", "Triton, several rows", "Rows share x; K is split over warps.", "rows"),
    )
}
"""Every rung by its name, in the order in which a learner meets them."""


@dataclass(frozen=True)
class Shape:
    """How a kernel is launched: blocks, threads a block, bytes of dynamic shared memory a block."""

    grid: int
    threads: int
    shared_bytes: int


def launch_shape(name: str, n: int, k: int, sms: int) -> Shape:
    """How one of the six kernels of gemv_NAME.cu is launched for an (n, k) matrix on a GPU of that many SMs."""
    index, access = functions(), RUNGS[name].access
    warps, rows = index[f"{access}_warps"](), index[f"{access}_rows"]()
    if access == "ring":
        shared = index["x_bytes"](k) + index["ring_slot"](warps)
        return Shape(min(sms, index["ring_tiles"](n)), 32 * (warps + 1), shared)
    tiles = -(-n // (warps * rows * (32 if access == "naive" else 1)))
    if access == "rows":
        return Shape(min(sms * index["rows_blocks"](), tiles), 32 * warps, index["x_bytes"](k))
    return Shape(tiles, 32 * warps, 0)


def load(name: str, words: Tensor, scales: Tensor) -> Gemv:
    """The product of one matrix by a rung: takes x float16 (k,), returns y float32 (n,), can be captured in a graph.

    words int32 (n, k / 8) in `value_shuffle` and scales float16 (n, k / 128), on a GPU; a rung that reads another order
    keeps a copy. NanoqwenError names a rung, shape, dtype or device that it cannot take, here and at every call;
    ToolchainError where there is no GPU or no compiler.
    """
    if name not in RUNGS:
        raise NanoqwenError(f"rung {name!r}: expected one of {', '.join(RUNGS)}")
    if name == "mma":
        from lab_engine.gemv_mma import load_plain

        return load_plain(words, scales)
    if name.startswith("dp4a"):
        from lab_engine.gemv_dp4a import load as load_dp4a

        return load_dp4a(name, words, scales)
    if name.startswith("triton"):
        from lab_engine.kernels.gemv_triton import load as load_triton

        return load_triton(name, words, scales)
    return _load(RUNGS[name], words, scales)


def check_matrix(words: Tensor, scales: Tensor) -> tuple[int, int]:
    """The (n, k) of words int32 (n, k / 8) and scales float16 (n, k / 128), both contiguous; else NanoqwenError."""
    import torch

    if scales.ndim != 2 or 0 in scales.shape:
        raise NanoqwenError(f"scales: found {tuple(scales.shape)}, expected (n, k / {GROUP}), neither of them 0")
    n, k = scales.shape[0], scales.shape[1] * GROUP
    _check("words", words, (n, k // 8), torch.int32, words)
    _check("scales", scales, (n, k // GROUP), torch.float16, words)
    return n, k


def check_x(x: Tensor, k: int, words: Tensor) -> None:
    """NanoqwenError unless x is float16 (k,), contiguous, aligned to 16 bytes and where the words are."""
    import torch

    _check("x", x, (k,), torch.float16, words)


def reference(words: Tensor, scales: Tensor, x: Tensor) -> Tensor:
    """The product in float64, by unpacking: words `value_shuffle` int32, scales float16, x floating (k,) -> (n,)."""
    from lab_engine.gemv_token import product
    from lab_engine.weights import Int4Matrix

    return product([Int4Matrix(words, scales)], x)


def linear_words(words: Tensor) -> Tensor:
    """Turn int32 `value_shuffle` words of any shape into `linear` words. Example: 0x75316420 -> 0x76543210."""
    import torch

    from lab_engine.nanoqwen_file import LAYOUTS

    linear = torch.zeros_like(words)
    for place, weight in enumerate(LAYOUTS["value_shuffle"]):
        linear |= (words >> (4 * place) & 0xF) << (4 * weight)
    return linear


def _load(rung: Rung, words: Tensor, scales: Tensor) -> Gemv:
    import torch

    n, k = check_matrix(words, scales)
    kernels, shape = Kernels(rung.source), launch_shape(rung.name, n, k, multiprocessors())
    own = linear_words(words) if rung.layout == "linear" else words

    def gemv(x: Tensor) -> Tensor:
        check_x(x, k, words)
        y = torch.empty(n, dtype=torch.float32, device=x.device)
        arguments = (own, scales, x, y, n, k)
        kernels.launch(rung.kernel, shape.grid, shape.threads, *arguments, shared_bytes=shape.shared_bytes)
        return y

    return gemv


def _check(name: str, tensor: Tensor, shape: tuple[int, ...], dtype: object, words: Tensor) -> None:
    if tuple(tensor.shape) != shape or tensor.dtype != dtype or tensor.device != words.device:
        found = f"{tuple(tensor.shape)} {tensor.dtype} on {tensor.device}"
        raise NanoqwenError(f"{name}: found {found}, expected {shape} {dtype} on {words.device}")
    if not tensor.is_contiguous():
        raise NanoqwenError(f"{name}: expected contiguous memory; pass {name}.contiguous()")
    if name != "scales" and tensor.data_ptr() % ALIGNMENT:
        past = tensor.data_ptr() % ALIGNMENT
        raise NanoqwenError(f"{name}: starts {past} bytes past a multiple of {ALIGNMENT}; pass {name}.clone()")
