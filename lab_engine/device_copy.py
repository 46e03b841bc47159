"""How long the bytes of a .nanoqwen file take to a GPU's memory, in three ways. torch is imported when one is timed.

A GPU reads host memory by itself only where the pages are pinned: where the kernel has promised not to move them. From
other pages, such as those of a mapped file, the driver first copies the bytes to pinned pages of its own.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lab_engine.errors import NanoqwenError
from lab_engine.nanoqwen_file import NanoqwenFile

if TYPE_CHECKING:
    from torch import Tensor

WAYS = ("the mapping, just opened", "the mapping, read before", "pinned memory")
"""Whose pages this process touches for the first time; whose pages it has touched; one block of pinned memory.

From a mapping every section is copied by itself, from pinned memory all sections at once.
"""


@dataclass(frozen=True)
class CopyTimes:
    """One of WAYS: the bytes that were copied, the copies that they took, and the seconds of every repeat."""

    way: str
    num_bytes: int
    num_copies: int
    seconds: tuple[float, ...]

    @property
    def median_seconds(self) -> float:
        """The median of all repeats."""
        return statistics.median(self.seconds)


def time_copies(path: Path, repeats: int = 5) -> tuple[CopyTimes, ...]:
    """Copy all sections of the file to the GPU in each of WAYS, and compare what arrived with the file.

    One copy a way is not counted: it allocates the GPU's memory. The file was read before, so its pages are in the page
    cache if they fit. NanoqwenError where PyTorch finds no NVIDIA GPU, or where other bytes arrived.
    """
    import torch

    if not torch.cuda.is_available():
        raise NanoqwenError("PyTorch finds no NVIDIA GPU here")
    mapped = _sections(path)
    pinned = torch.cat(mapped).pin_memory()
    sources: tuple[Callable[[], list[Tensor]], ...] = (lambda: _sections(path), lambda: mapped, lambda: [pinned])
    return tuple(_time(way, source, repeats, pinned) for way, source in zip(WAYS, sources, strict=True))


def _sections(path: Path) -> list[Tensor]:
    """The bytes of each section of the file, in a mapping of their own."""
    import torch

    file = NanoqwenFile(path)
    return [torch.from_numpy(file.array(name)).reshape(-1).view(torch.uint8) for name in file.sections]


def _time(way: str, source: Callable[[], list[Tensor]], repeats: int, expected: Tensor) -> CopyTimes:
    import torch

    _, copied = _copy(source())
    if not torch.equal(torch.cat(copied).cpu(), expected):
        raise NanoqwenError(f"{way}: the bytes on the GPU are not those of the file")
    num_copies = len(copied)
    del copied  # its memory on the GPU is used again: the repeats allocate none
    return CopyTimes(way, expected.nbytes, num_copies, tuple(_copy(source())[0] for _ in range(repeats)))


def _copy(tensors: list[Tensor]) -> tuple[float, list[Tensor]]:
    """Seconds until the copies of these tensors are complete, and the copies."""
    import torch

    torch.cuda.synchronize()
    start = time.perf_counter()
    copied = [tensor.cuda() for tensor in tensors]
    torch.cuda.synchronize()
    return time.perf_counter() - start, copied
