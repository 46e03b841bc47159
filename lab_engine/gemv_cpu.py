"""The same product in three formats on this machine's processor: INT4 in groups of 128, INT8 by row, dense float32.

All three hold the weights of one INT4 matrix. Copies are multiplied in turn, so that no cache holds the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import cycle

import torch
from torch import Tensor

from lab_engine.backends.torch import PACKED_OPERATORS, TorchBackend, has_packed_kernel
from lab_engine.bench.machine import median_seconds
from lab_engine.config import QWEN2_5_CODER
from lab_engine.gemv_token import random_matrix
from lab_engine.int4 import dequantize_words
from lab_engine.weights import Int4Matrix

COLD_BYTES = 1 << 27
"""Of all copies of a matrix together: more than the last-level cache of most machines."""
_RUNS = 7


@dataclass(frozen=True)
class FormatTime:
    """How one format did. bytes: of the weights and scales that a product reads; seconds: the median of seven.

    error: relative L2 error against the float64 product of the same weights and the same x.
    """

    name: str
    how: str
    bytes: int
    seconds: float
    error: float


def time_formats(n: int, k: int) -> tuple[FormatTime, ...]:
    """Multiply a random matrix (n, k) by a vector in each format; k is a multiple of 128.

    INT4 is left out where PyTorch has no vectorised kernel for this processor, INT8 where it has no integer product.
    """
    generator = torch.Generator().manual_seed(n + k)
    matrix, x = random_matrix(n, k, generator), torch.randn(k, generator=generator)
    dense = dequantize_words(matrix.words, matrix.scales, out=torch.empty(n, k))
    expected = torch.cat([rows.double() @ x.double() for rows in torch.split(dense, 512)])
    found = []
    if has_packed_kernel():
        how = f"{PACKED_OPERATORS[1]}, x in bfloat16"
        found.append(_timed("INT4, groups of 128", how, matrix.num_bytes, _int4(matrix), x, expected))
    if hasattr(torch, "_int_mm"):
        codes, by_row = _quantized(dense)
        moved, multiply = codes.nbytes + by_row.nbytes, _int8(codes, by_row)
        found.append(_timed("INT8, a scale a row", "_int_mm, x in INT8", moved, multiply, x, expected))
    return (*found, _timed("float32", "mv, x in float32", dense.nbytes, _float32(dense), x, expected))


Multiply = Callable[[Tensor], Tensor]


def _copies(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """The tensors and as many copies as make COLD_BYTES, in turn and without end."""
    size = sum(tensor.nbytes for tensor in tensors)
    return cycle([tensors, *(tuple(tensor.clone() for tensor in tensors) for _ in range(COLD_BYTES // size))])


def _int4(weights: Int4Matrix) -> Multiply:
    backend = TorchBackend(QWEN2_5_CODER["0.5B"], torch.bfloat16)  # a product takes no shape from the model
    matrix = backend.load_matrix([weights])
    assert matrix.packed is not None and matrix.scales_and_zeros is not None  # noqa: PT018 - for the type checker
    pairs = _copies(matrix.packed, matrix.scales_and_zeros)

    def multiply(x: Tensor) -> Tensor:
        packed, scales_and_zeros = next(pairs)
        one = replace(matrix, packed=packed, scales_and_zeros=scales_and_zeros)
        return backend.linear(x.bfloat16()[None], one)[0]

    return multiply


def _quantized(dense: Tensor) -> tuple[Tensor, Tensor]:
    """int8 (n, k) and float32 (n): the largest weight of a row becomes 127."""
    scales = dense.abs().amax(dim=1) / 127
    return torch.round(dense / scales[:, None]).to(torch.int8), scales


def _int8(codes: Tensor, scales: Tensor) -> Multiply:
    pairs = _copies(codes, scales)

    def multiply(x: Tensor) -> Tensor:
        weights, by_row = next(pairs)
        step = x.abs().max() / 127
        return torch._int_mm((x / step).round().to(torch.int8)[None], weights.T)[0] * (by_row * step)

    return multiply


def _float32(dense: Tensor) -> Multiply:
    matrices = _copies(dense)
    return lambda x: torch.mv(next(matrices)[0], x)


def _timed(name: str, how: str, moved: int, multiply: Multiply, x: Tensor, expected: Tensor) -> FormatTime:
    error = float((multiply(x).double() - expected).norm() / expected.norm())
    return FormatTime(name, how, moved, median_seconds(lambda: multiply(x), _RUNS), error)
