"""Kernels of kernels/ on this machine's GPU: compiled for it, launched on PyTorch's stream, timed inside a CUDA graph.

A launch may be *dependent* (programmatic dependent launch): the kernel may begin while the one before it in the stream
still runs, and has to wait in its own code, at griddepcontrol.wait, before it reads what that one writes.
What breaks it: a kernel that is launched so and never waits; a graph whose tensors were freed.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from lab_engine.errors import ToolchainError
from lab_engine.sass import compile_cubin

if TYPE_CHECKING:
    from torch import Tensor

REPLAYS = 51
"""Of each graph that a table or a recording times."""
COLD_BYTES = 256 << 20
"""What a graph has to read so that a GPU's L2 holds none of it the next time: several times any L2 of today."""
CALLS = 100
"""In a graph, at least: a call's time holds one of so many shares of what a replay costs."""
STATIC_SHARED_BYTES = 48 * 1024
"""Up to here a block gets dynamic shared memory without being asked twice."""

_LEGACY_STREAM = 1  # CU_STREAM_LEGACY: PyTorch calls its default stream 0, which cuda.core takes for none
_WARM_UPS = 3


def arch() -> str:
    """What this machine's GPU is called by compilers, such as "sm_90a" (Hopper) or "sm_89"."""
    major, minor = _torch().cuda.get_device_capability()
    return f"sm_{major}{minor}{'a' if major >= 9 else ''}"


def multiprocessors() -> int:
    """How many SMs the GPU has."""
    return int(_torch().cuda.get_device_properties(0).multi_processor_count)


class Kernels:
    """The kernels of one file of kernels/, such as "gemv_mma.cu", compiled for this GPU with these macros defined.

    Files are compiled once a process. Raises ToolchainError where PyTorch finds no GPU, or cuda-core is missing.
    """

    def __init__(self, source: str, defines: Mapping[str, int] | None = None) -> None:
        self.source = source
        self._code, self._allowed = _load(source, arch(), tuple(sorted((defines or {}).items())))

    def launch(
        self,
        name: str,
        grid: int,
        threads: int,
        *arguments: Tensor | float | None,
        shared_bytes: int = 0,
        cluster: int = 1,
        dependent: bool = False,
    ) -> None:
        """Launch an `extern "C"` kernel on PyTorch's current stream; works inside torch.cuda.graph.

        A tensor passes its address, None a null pointer, an int an int32 and a float a float32. cluster: blocks that
        run together and reach each other's shared memory; it divides grid.
        """
        from cuda.core import LaunchConfig, Stream, launch

        stream = Stream.from_handle(_torch().cuda.current_stream().cuda_stream or _LEGACY_STREAM)
        config = LaunchConfig(
            grid=grid // cluster,  # in clusters, where there are any
            cluster=cluster if cluster > 1 else None,
            block=threads,
            shmem_size=shared_bytes,
            programmatic_stream_serialization=dependent,
        )
        launch(stream, config, self._kernel(name, shared_bytes), *(_argument(value) for value in arguments))

    def _kernel(self, name: str, shared_bytes: int) -> Any:
        """The kernel, allowed to have that much dynamic shared memory."""
        kernel = self._code.get_kernel(name)
        if shared_bytes > self._allowed.get(name, STATIC_SHARED_BYTES):
            _allow_shared(kernel, shared_bytes, f"{self.source}, kernel {name}")
            self._allowed[name] = shared_bytes
        return kernel


def replay_seconds(run: Callable[[], object], replays: int) -> list[float]:
    """Seconds of each replay of a CUDA graph of `run`, after three that are not counted."""
    torch = _torch()
    run()  # compiles, and chooses algorithms
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(replays + _WARM_UPS + 1)]
    for mark in marks[:-1]:
        mark.record()
        graph.replay()
    marks[-1].record()
    torch.cuda.synchronize()
    return [start.elapsed_time(stop) / 1e3 for start, stop in pairwise(marks[_WARM_UPS:])]


def call_us(calls: Sequence[Callable[[], object]]) -> float:
    """Microseconds a call in a CUDA graph of these calls in turn, which goes through all of them until it has CALLS."""
    rounds = math.ceil(CALLS / len(calls))
    seconds = replay_seconds(lambda: [call() for _ in range(rounds) for call in calls], REPLAYS)
    return median_us(seconds, rounds * len(calls))


def median_us(seconds: Sequence[float], calls: int) -> float:
    """Microseconds a call."""
    return statistics.median(seconds) / calls * 1e6


def median_and_spread(seconds: Sequence[float], calls: int = 1, unit: str = "us", digits: int = 2) -> dict[str, float]:
    """A call, in "us" or "ms": the median over the replays, and the largest less the smallest.

    >>> median_and_spread([28e-6, 56e-6, 42e-6], calls=14)
    {'us': 3.0, 'us_spread': 2.0}
    """
    found = [{"us": 1e6, "ms": 1e3}[unit] * value / calls for value in seconds]
    return {unit: round(statistics.median(found), digits), f"{unit}_spread": round(max(found) - min(found), digits)}


def _torch() -> Any:
    """PyTorch; ToolchainError unless it finds an NVIDIA GPU."""
    import torch

    if not torch.cuda.is_available():
        raise ToolchainError("no NVIDIA GPU found")
    return torch


@cache
def _load(source: str, gpu: str, defines: tuple[tuple[str, int], ...]) -> tuple[Any, dict[str, int]]:
    """The code, and the shared memory that each of its kernels may have: a setting of the code, whoever launches it."""
    cubin = compile_cubin(source, gpu, dict(defines))
    from cuda.core import Device, ObjectCode

    _torch().cuda.init()
    Device().set_current()  # PyTorch's own context: both use the primary one
    return ObjectCode.from_cubin(cubin), {}


def _argument(value: Tensor | float | None) -> Any:
    import numpy as np

    if isinstance(value, int):
        return np.int32(value)
    if isinstance(value, float):
        return np.float32(value)
    return 0 if value is None else value.data_ptr()


def _allow_shared(kernel: Any, shared_bytes: int, what: str) -> None:
    """Let a block have that much, and an SM give all it can to shared memory.

    Kernels that want the SM's memory split differently cannot be on it together: it would run empty between them.
    """
    from cuda.bindings import driver

    names = driver.CUfunction_attribute
    wishes = {
        names.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: shared_bytes,
        names.CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT: 100,  # percent
    }
    for wish, value in wishes.items():
        [error] = driver.cuKernelSetAttribute(wish, value, kernel.handle, driver.CUdevice(0))
        if error != driver.CUresult.CUDA_SUCCESS:
            raise ToolchainError(
                f"{what}: this GPU refuses {shared_bytes} bytes of shared memory a block ({error.name})"
            )
