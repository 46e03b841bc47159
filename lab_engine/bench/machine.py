"""What this machine can do at most, measured here: bytes read a second, operations a second; and who else is busy."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from functools import cache
from statistics import median
from typing import Any

import psutil
import torch

from lab_engine import __version__
from lab_engine.doctor import cpu_name

_BUSY_CORES = 0.1  # other programs that take more than this disturb a measurement


def seconds(work: Callable[[], object], runs: int) -> list[float]:
    """Seconds of each run, after one that is not counted."""
    work()
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return times


def median_seconds(work: Callable[[], object], runs: int = 5) -> float:
    """The median of `seconds`."""
    return median(seconds(work, runs))


@cache
def read_bandwidth() -> float:
    """Bytes a second that all threads together read: the best of 9 dot products of two arrays of 256 MiB."""
    a, b = torch.ones(2, 1 << 26).unbind()
    return (a.nbytes + b.nbytes) / min(seconds(lambda: torch.dot(a, b), 9))


@cache
def matmul_flops(dtype: torch.dtype) -> float:
    """Operations a second (a multiply and an add are two): the best of 9 products of 2048 × 2048 matrices."""
    a, b = torch.randn(2, 2048, 2048).to(dtype).unbind()
    return 2 * 2048**3 / min(seconds(lambda: a @ b, 9))


class LoadMeter:
    """Says how many cores other programs (and other guests of the host) took between its making and `read`."""

    def __init__(self) -> None:
        self._start = self._now()

    @staticmethod
    def _now() -> tuple[float, float, float]:
        system, own = psutil.cpu_times(), psutil.Process().cpu_times()
        idle = system.idle + getattr(system, "iowait", 0.0)
        # guest time is part of user time already
        busy = sum(system) - idle - getattr(system, "guest", 0.0) - getattr(system, "guest_nice", 0.0)
        return time.perf_counter(), busy, sum(own[:4])  # user, system, and those of finished children

    def read(self) -> dict[str, Any]:
        """{"busy": bool, "other_cores": cores on average}."""
        wall, busy, own = (now - start for now, start in zip(self._now(), self._start, strict=True))
        other = max(busy - own, 0.0) / max(wall, 1e-9)
        return {"busy": other > _BUSY_CORES, "other_cores": round(other, 2)}


def device() -> str:
    """The processor, what it can do, and how many threads PyTorch uses on it."""
    capability = torch.backends.cpu.get_cpu_capability()
    return f"{cpu_name()}, {capability}, {torch.get_num_threads()} of {os.cpu_count()} threads"


def gpu() -> str:
    """The first NVIDIA GPU, its SMs, and the CUDA version that PyTorch uses."""
    found = torch.cuda.get_device_properties(0)
    return f"{found.name}, {found.multi_processor_count} SMs, CUDA {torch.version.cuda}"


def versions() -> dict[str, str]:
    """Of everything that a number here depends on."""
    return {"nanoqwen-lab": __version__, "torch": torch.__version__, "python": platform.python_version()}
