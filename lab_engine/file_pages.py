"""What the kernel really does when a mapped file is touched, measured in this process on Linux. No torch here.

file_map.py counts the pages that bytes lie on. The kernel fetches more: read-ahead brings neighbours into the page
cache, and a fault maps cached neighbours into the process besides the page that was asked for. Everything here works on
a temporary copy, whose pages nobody else holds, so that they can be dropped from the page cache.
Cold means: not in this kernel's page cache. A disk, or the host of a virtual machine, may have a cache of its own.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import shutil
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lab_engine.errors import NanoqwenError
from lab_engine.file_map import row_region
from lab_engine.nanoqwen_file import NanoqwenFile

_PRESENT = 1 << 63  # of an entry of /proc/self/pagemap; see Documentation/admin-guide/mm/pagemap.rst
_PAGEMAP = Path("/proc/self/pagemap")


@dataclass(frozen=True)
class TouchedPages:
    """Pages of a cold file after some of its bytes were read through a fresh mapping; numbers count from its start.

    needed: the pages that hold the bytes. cached: in the page cache, so read from the disk. mapped: in this process's
    page table. page_bytes is the machine's page size; milliseconds is how long the read took.
    """

    page_bytes: int
    num_pages: int
    needed: tuple[int, ...]
    cached: tuple[int, ...]
    mapped: tuple[int, ...]
    milliseconds: float


def touch(path: Path, offset: int, length: int, read_ahead: bool = True) -> TouchedPages:
    """Read bytes of a cold copy of the file through a fresh mapping, and look which pages that brought.

    read_ahead=False asks the kernel for none (MADV_RANDOM). NanoqwenError for bytes that the file does not have, and
    where this machine cannot tell.
    """
    with _cold_copy(path) as copy, copy.open("rb") as file:
        size = copy.stat().st_size
        if offset < 0 or length < 1 or offset + length > size:
            raise NanoqwenError(
                f"bytes {offset} to {offset + length}: {path} has {size}, expected one of them at least"
            )
        mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        try:
            if not read_ahead:
                mapping.madvise(mmap.MADV_RANDOM)
            start = time.perf_counter()
            _ = mapping[offset : offset + length]
            milliseconds = 1e3 * (time.perf_counter() - start)
            page = mmap.PAGESIZE
            return TouchedPages(
                page_bytes=page,
                num_pages=-(-len(mapping) // page),
                needed=tuple(range(offset // page, -(-(offset + length) // page))),
                cached=_cached_pages(mapping),
                mapped=_mapped_pages(mapping),
                milliseconds=milliseconds,
            )
        finally:
            mapping.close()


@dataclass(frozen=True)
class OpenTimes:
    """Milliseconds from a path to a checked NanoqwenFile, and from there to the values of one row; medians.

    disk_faults counts the page faults that waited for the disk in both together.
    """

    open_ms: float
    row_ms: float
    disk_faults: int


def time_opening(path: Path, name: str, row: int, rounds: int = 5) -> tuple[OpenTimes, OpenTimes]:
    """(cold, warm): open the file and read one row of a section, its pages dropped from the page cache or all there.

    NanoqwenError for a section or row that the file does not have, and where this machine cannot drop pages.
    """
    _check_machine()
    row_region(NanoqwenFile(path).section(name), row)
    cold, warm = [], []
    with _cold_copy(path) as copy:
        for _ in range(rounds):
            _drop(copy)
            cold.append(_open_and_read(copy, name, row))
            copy.read_bytes()
            warm.append(_open_and_read(copy, name, row))
    return _medians(cold), _medians(warm)


def _open_and_read(path: Path, name: str, row: int) -> OpenTimes:
    faults, start = _disk_faults(), time.perf_counter()
    file = NanoqwenFile(path)
    opened = time.perf_counter()
    file.array(name)[row].copy()
    end = time.perf_counter()
    return OpenTimes(1e3 * (opened - start), 1e3 * (end - opened), _disk_faults() - faults)


def _disk_faults() -> int:
    import resource  # Unix has it

    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt


def _medians(times: list[OpenTimes]) -> OpenTimes:
    return OpenTimes(
        statistics.median(one.open_ms for one in times),
        statistics.median(one.row_ms for one in times),
        statistics.median_low(one.disk_faults for one in times),
    )


def count_cached(path: Path) -> tuple[int, int]:
    """(pages of the file that are in the page cache, all its pages); NanoqwenError where this machine cannot tell."""
    _check_machine()
    try:
        with path.open("rb") as file:
            if not os.fstat(file.fileno()).st_size:  # nothing to map
                return 0, 0
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as mapping:
                return len(_cached_pages(mapping)), -(-len(mapping) // mmap.PAGESIZE)
    except OSError as error:
        raise NanoqwenError(f"pages of a mapping: {path}: {error.strerror}") from None


def _check_machine() -> None:
    if sys.platform != "linux" or not _PAGEMAP.exists():
        raise NanoqwenError(f"pages of a mapping: not available here: found {sys.platform}, expected Linux with /proc")


@contextmanager
def _cold_copy(path: Path) -> Iterator[Path]:
    """A copy of the file in the folder for temporary files, with none of its pages in the page cache."""
    _check_machine()
    try:
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / path.name
            shutil.copyfile(path, copy)
            _drop(copy)
            yield copy
    except OSError as error:
        where = error.filename or f"a copy of {path} in the folder for temporary files (TMPDIR)"  # fsync names none
        raise NanoqwenError(f"pages of a mapping: {where}: {error.strerror}") from None


def _drop(path: Path) -> None:
    """Write the file's pages to the disk and drop them from the page cache; NanoqwenError where they stay."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if left := count_cached(path)[0]:
        raise NanoqwenError(
            f"a cold file: not available here: {left} pages of {path} stay in memory; set TMPDIR to a folder on a disk"
        )


def _cached_pages(mapping: mmap.mmap) -> tuple[int, ...]:
    """Pages of the mapped file that are in the page cache, by mincore(2)."""
    pages = (ctypes.c_ubyte * -(-len(mapping) // mmap.PAGESIZE))()
    address, size = ctypes.c_void_p(_address(mapping)), ctypes.c_size_t(len(mapping))
    if ctypes.CDLL(None, use_errno=True).mincore(address, size, pages):
        raise NanoqwenError(f"pages of a mapping: not available here: mincore: {os.strerror(ctypes.get_errno())}")
    return tuple(number for number, state in enumerate(pages) if state & 1)


def _mapped_pages(mapping: mmap.mmap) -> tuple[int, ...]:
    """Pages of the mapping that are present in this process's page table."""
    with _PAGEMAP.open("rb", buffering=0) as table:
        table.seek(_address(mapping) // mmap.PAGESIZE * 8)
        entries = table.read(-(-len(mapping) // mmap.PAGESIZE) * 8)
    return tuple(number for number, (entry,) in enumerate(struct.iter_unpack("<Q", entries)) if entry & _PRESENT)


def _address(mapping: mmap.mmap) -> int:
    """Where the mapping lies in this process."""
    return ctypes.addressof(ctypes.c_char.from_buffer(mapping))
