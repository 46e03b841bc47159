"""The recording `copy`: a file in the 7B's shapes, from the page cache to the GPU's memory, in three ways.

The file is written to the folder for temporary files, with random INT4 words: no page of it is a hole.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab_engine.errors import RecordingError
from tools import h200_machine

if TYPE_CHECKING:
    from lab_engine.device_copy import CopyTimes

SOURCES = ("lab_engine/device_copy.py",)
FILE = "random INT4 words in the shapes of Qwen2.5-Coder-7B"
REPEATS = 15


def record() -> tuple[dict[str, Any], dict[str, int]]:
    """Take the recording on this machine: its data, and the clocks while copies run."""
    from lab_engine.bench.models import QWEN_7B, write_random_file

    h200_machine.check_device()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "random.nanoqwen"
        write_random_file(path, QWEN_7B)
        data = measure(path)
    clocks, link = _under_load()
    return {"file": FILE, "pcie": link, **data}, clocks


def measure(path: Path) -> dict[str, Any]:
    """Bytes, pages and times of one file; RecordingError unless all its pages are still in the page cache."""
    from lab_engine.device_copy import time_copies  # imports xxhash, which `unpack` does without
    from lab_engine.file_pages import count_cached

    found = time_copies(path, REPEATS)
    cached, pages = count_cached(path)
    if cached < pages:
        raise RecordingError(f"{path}: {cached} of {pages} pages are in the page cache; expected all of them")
    return {
        "bytes": found[0].num_bytes,
        "pages": pages,
        "pages_in_page_cache": cached,
        "repeats": REPEATS,
        "ways": {copy.way: _times(copy) for copy in found},
    }


def _times(copy: CopyTimes) -> dict[str, Any]:
    """The median over the repeats; the spread is the largest less the smallest."""
    return {
        "copies": copy.num_copies,
        "ms": round(1e3 * copy.median_seconds, 2),
        "ms_spread": round(1e3 * (max(copy.seconds) - min(copy.seconds)), 2),
        "gb_per_second": round(copy.num_bytes / copy.median_seconds / 1e9, 2),
    }


def _under_load() -> tuple[dict[str, int], dict[str, str]]:
    """The clocks and the PCIe link while copies run; an idle link slows down."""
    import torch

    host = torch.empty(1 << 30, dtype=torch.uint8, pin_memory=True)
    device = torch.empty_like(host, device="cuda")
    for _ in range(500):  # some seconds of work, in which to ask
        device.copy_(host, non_blocking=True)
    clocks, link = h200_machine.clocks_mhz(), h200_machine.pcie_link()
    if torch.cuda.current_stream().query():
        raise RecordingError("clocks: the copies had ended before nvidia-smi answered")
    torch.cuda.synchronize()
    return clocks, link
