"""Where the time of a product goes: launch, reading, unpacking and multiplying, quantizing x; FP16 beside INT8.

Kernels that do less are timed beside the whole: an empty one, one that only loads, one that takes x quantized. What
one of them takes more than the one before is a part, so the parts of a variant add up to its whole time.
What breaks it: the GPU overlaps these; a part is what the product takes longer for it, not how long it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from lab_engine.gemv_dp4a import GIVEN, LIMBS, QUANTIZE, SOURCE, Launch, activation_bytes

if TYPE_CHECKING:
    from torch import Tensor

    from lab_engine.weights import Int4Matrix

PARTS = ("launch", "quantize", "read", "unpack")
VARIANTS = ("fp16", *LIMBS)
"""fp16 is the rung `rows`."""


def measure_parts(n: int, k: int) -> dict[str, dict[str, float]]:
    """Microseconds by variant and part for an (n, k) matrix on this machine's GPU; ToolchainError where there is none.

    A time is the median over replays of a CUDA graph of a hundred calls or more, which goes through enough matrices
    to find none in a cache.
    """
    from lab_engine.gemv_gpu import cold_matrices
    from lab_engine.gpu import multiprocessors

    bench = _Bench(Launch(n, k, multiprocessors()), *cold_matrices(n, k))
    launch, read, rows = bench.edge(), bench.read(), bench.rung("rows")
    found = {"fp16": parts_of(launch, read, rows, rows)}
    given = {limbs: bench.given(limbs) for limbs in GIVEN}
    for name, limbs in LIMBS.items():
        second = launch if name == "dp4a_separate" else 0.0
        found[name] = parts_of(launch, read, given[limbs], bench.rung(name), second)
    return found


def parts_of(launch: float, read: float, given: float, total: float, second_launch: float = 0.0) -> dict[str, float]:
    """Times of kernels that do more and more, to parts that add up to `total`.

    launch: an empty kernel; read: one that loads the weights; given: the product with an x that needs no quantizing.
    A time that is longer than one that should include it counts as that one: the difference is below what one can see.

    >>> parts_of(1.0, 5.0, 6.0, 9.0, second_launch=1.0)
    {'launch': 2.0, 'quantize': 2.0, 'read': 4.0, 'unpack': 1.0}
    """
    times = [total, given + second_launch, given, read, launch, 0.0]
    first, read_part, unpack, second, quantize = (
        round(after - before, 3) for before, after in pairwise(list(accumulate(times, min))[::-1])
    )
    return {"launch": round(first + second, 3), "quantize": quantize, "read": read_part, "unpack": unpack}


@dataclass(frozen=True)
class _Bench:
    """Kernels over many matrices of one shape; every method returns microseconds a call."""

    launch: Launch
    matrices: Sequence[Int4Matrix]
    x: Tensor

    def edge(self) -> float:
        """An empty kernel."""
        from lab_engine.gpu import Kernels

        return self._time(lambda _: partial(Kernels("edge.cu").launch, "edge_plain", self.launch.sms, 128))

    def read(self) -> float:
        """The loads of a product, the same for all variants, and nothing else."""
        return self._time(lambda matrix: self._kernel("read_rows", matrix, ()))

    def given(self, limbs: int) -> float:
        """A product that finds x quantized."""
        codes = self._quantized(limbs)
        shared = activation_bytes(self.launch.k, limbs)
        return self._time(lambda matrix: self._kernel(GIVEN[limbs], matrix, (codes,), shared))

    def rung(self, name: str) -> float:
        """A rung of the ladder, all of it."""
        from lab_engine.gemv_ladder import load

        return self._time(lambda matrix: partial(load(name, matrix.words, matrix.scales), self.x))

    def _quantized(self, limbs: int) -> Tensor:
        from lab_engine.gpu import Kernels

        codes = self.x.new_empty(activation_bytes(self.launch.k, limbs) // 2)
        grid, threads = self.launch.quantize_grid, self.launch.threads
        Kernels(SOURCE).launch(QUANTIZE[limbs], grid, threads, self.x, codes, self.launch.k)
        return codes

    def _kernel(
        self, name: str, matrix: Int4Matrix, x: tuple[Tensor, ...], shared_bytes: int = 0
    ) -> Callable[[], object]:
        from lab_engine.gpu import Kernels

        n, k, out = self.launch.n, self.launch.k, matrix.words.new_empty(self.launch.n)
        arguments: tuple[Tensor | int, ...] = (matrix.words, matrix.scales, *x, out, n, k)
        grid, threads = self.launch.grid, self.launch.threads
        return partial(Kernels(SOURCE).launch, name, grid, threads, *arguments, shared_bytes=shared_bytes)

    def _time(self, make: Callable[[Int4Matrix], Callable[[], object]]) -> float:
        from lab_engine.gpu import call_us

        return call_us([make(matrix) for matrix in self.matrices])
