"""The loads of a warp: which lane reads which bytes of a packed matrix, and how many bytes memory moves for them.

An (n, k) INT4 matrix is row-major, k / 2 bytes a row, and begins `shift` bytes after a multiple of 128. What the lanes
of a warp ask for in one instruction is a request; it touches whole sectors of 32 bytes, four to a line. The addresses
are those of the kernels: kernels/gemv_index.cuh, evaluated from its text. Without a cache, a request moves all of its
sectors anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lab_engine.errors import NanoqwenError, whole_number
from lab_engine.index_text import IndexFunction, functions

LANES, SECTOR_BYTES, LINE_BYTES = 32, 32, 128
BLOCKS = 132
"""Blocks of the ring's grid: one on each SM of an H200."""

MANY = 1 << 20
"""More rows than a warp reads, so that all rows of the first warp exist."""

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Pattern:
    """A way to read a matrix. name: as in gemv_index.cuh; rungs: who reads so; bulk: one lane asks for all."""

    name: str
    words: str
    rungs: tuple[str, ...]
    bulk: bool = False


PATTERNS = {
    pattern.name: pattern
    for pattern in (
        Pattern("naive", "a thread a row, 4 B", ("naive",)),
        Pattern("naive16", "a thread a row, 16 B", ()),
        Pattern("coalesced", "a warp a row, 16 B", ("coalesced", "lop3", "prmt")),
        Pattern("rows", "several rows a warp, 16 B", ("rows",)),
        Pattern("ring", "bulk copies", ("ring",), bulk=True),
    )
}


@dataclass(frozen=True)
class LaneLoad:
    """What one lane reads: `size` bytes from byte `start` of the packed tensor, `offset` bytes into its row.

    A bulk copy may go on into the rows after it.
    """

    lane: int
    row: int
    start: int
    size: int
    offset: int
    group: int
    """Group of the row whose scale the first weight takes."""
    weight: int
    """First weight, counted in the row; the load brings 2 · size of them."""


@dataclass(frozen=True)
class Request:
    """What the lanes ask for at once. sectors: the numbers of those that it touches, ascending, from address 0."""

    loads: tuple[LaneLoad, ...]
    sectors: tuple[int, ...]

    @property
    def lines(self) -> tuple[int, ...]:
        """The numbers of the 128-byte lines that hold the sectors."""
        return tuple(sorted({sector * SECTOR_BYTES // LINE_BYTES for sector in self.sectors}))

    @property
    def moved(self) -> int:
        """Bytes that memory moves: whole sectors."""
        return len(self.sectors) * SECTOR_BYTES

    @property
    def used(self) -> int:
        """Bytes that the lanes asked for."""
        return sum(load.size for load in self.loads)


@dataclass(frozen=True)
class LoadTrace:
    """One iteration of one warp: a request for each row that a lane reads in it, or for each bulk copy."""

    pattern: str
    iterations: int
    requests: tuple[Request, ...]

    @property
    def moved(self) -> int:
        """Bytes that memory moves for the iteration."""
        return sum(request.moved for request in self.requests)

    @property
    def used(self) -> int:
        """Bytes that the lanes asked for in the iteration."""
        return sum(request.used for request in self.requests)

    @property
    def efficiency(self) -> float:
        """Used over moved; 0 where nothing is read."""
        return self.used / self.moved if self.moved else 0.0

    def lane(self, lane: int) -> tuple[LaneLoad, ...]:
        """What this lane reads, one load a request; empty where it idles."""
        return tuple(load for request in self.requests for load in request.loads if load.lane == lane)


@dataclass(frozen=True)
class Totals:
    """A whole matrix read once without a cache: requests, bytes moved and bytes used."""

    requests: int
    moved: int
    used: int


def trace_loads(
    pattern: str, n: int, k: int, block: int = 0, warp: int = 0, iteration: int = 0, shift: int = 0
) -> LoadTrace:
    """Which lane of warp `warp` of block `block` reads which bytes in iteration `iteration`; of a ring, in round 0.

    Lanes without a row below n, or past the end of their row, read nothing. Raises NanoqwenError for an unknown
    pattern, a k that is no multiple of 128 and numbers that do not exist.
    """
    known = _checked(pattern, n, k, shift)
    block, warp = whole_number("block", block), whole_number("warp", warp, most=warps(pattern) - 1)
    iteration = whole_number("iteration", iteration, most=iterations(pattern, k) - 1)
    rows = [_rows(known, n, block, warp, j) for j in first_rows(pattern, k)]
    reads = [_reads(known, n, k, row, np.array([[iteration]])) for row in rows]
    found = [_request(read, shift) for read in reads]
    return LoadTrace(pattern, iterations(pattern, k), tuple(request for request in found if request.loads))


def warps(pattern: str) -> int:
    """Warps of a block."""
    return int(_index(f"{pattern}_warps"))


def first_rows(pattern: str, k: int) -> range:
    """The j of each request of an iteration, its row counted from the first; a bulk copy may bring several rows."""
    step = _index("ring_copy_rows", k=k) if PATTERNS[pattern].bulk else 1
    return range(0, int(_index(f"{pattern}_rows")), int(step))


def iterations(pattern: str, k: int) -> int:
    """Iterations, or chunks of bulk copies, until a row of k weights is read."""
    return int(_index("ring_chunks" if PATTERNS[pattern].bulk else f"{pattern}_iterations", k=k))


@cache
def whole_matrix(pattern: str, n: int, k: int, shift: int = 0) -> Totals:
    """All requests of all warps.

    A row is a multiple of 64 bytes, so all warps whose rows exist touch equally many sectors: one is counted for all.
    """
    known = _checked(pattern, n, k, shift)
    every = np.arange(iterations(pattern, k))[:, None]
    rows = [_rows(known, MANY, 0, 0, j) for j in first_rows(pattern, k)]
    full, rest = divmod(n, len(np.unique(rows)) * (_index("ring_copy_rows", k=k) if known.bulk else 1))
    counts = np.array([0, 0, 0])
    for times, below in ((full, MANY), (1, rest)):
        for row in rows:
            counts += times * np.array(_count(_reads(known, below, k, row, every), shift))
    return Totals(*(int(count) for count in counts))


@dataclass(frozen=True)
class _Reads:
    """Arrays (iterations, lanes); `active` says which of them are read at all."""

    row: Integers
    start: Integers
    offset: Integers
    size: Integers
    active: NDArray[np.bool_]


def _checked(pattern: str, n: int, k: int, shift: int) -> Pattern:
    if pattern not in PATTERNS:
        raise NanoqwenError(f'pattern is "{pattern}", expected one of: {", ".join(PATTERNS)}')
    whole_number("n", n, 1)
    whole_number("shift", shift)
    if whole_number("k", k, 128) % 128:
        raise NanoqwenError(f"k: found {k}, expected a multiple of 128, one group")
    return PATTERNS[pattern]


def _rows(pattern: Pattern, n: int, block: int, warp: int, j: int) -> Integers:
    """The j-th row of every lane, (1, lanes). A bulk copy has one lane, and row n where its block has no tile left."""
    lane = np.arange(1 if pattern.bulk else LANES)[None, :]
    if not pattern.bulk:
        return np.broadcast_to(_index(f"{pattern.name}_row", block=block, warp=warp, lane=lane, j=j), lane.shape)
    place = {"blocks": BLOCKS, "n": n, "round": 0, "warp": warp}
    tile = _index("ring_tile", block=block, **place)
    mine = tile < _index("ring_first_tile", block=block + 1, **place)
    return np.full((1, 1), _index("ring_row", tile=tile, j=j) if mine else n)


def _reads(pattern: Pattern, n: int, k: int, row: Integers, i: Integers) -> _Reads:
    lane = np.arange(row.shape[1])[None, :]
    places = {"k": k, "lane": lane, "i": i, "chunk": i, "row": row}
    if pattern.bulk:
        size = np.minimum(_index("ring_copy_rows", k=k), n - row) * _index("ring_length", **places)
    else:
        size = _index(f"{pattern.name}_width")
    inside = True if pattern.bulk else _index(f"{pattern.name}_active", **places) == 1
    start = _index(f"{pattern.name}_byte", **places)
    parts = (row, start, start - row * _index("row_bytes", k=k), size, (row < n) & inside)
    return _Reads(*(np.broadcast_to(part, np.broadcast_shapes(i.shape, lane.shape)) for part in parts))


def _sectors(reads: _Reads, shift: int) -> Integers:
    """Sector numbers (iterations, lanes · span), each iteration's in order; −1 where a lane or a place has none."""
    first, last = (reads.start + shift) // SECTOR_BYTES, (reads.start + shift + reads.size - 1) // SECTOR_BYTES
    places = first[..., None] + np.arange(int((last - first).max()) + 1)
    found = np.where((places <= last[..., None]) & reads.active[..., None], places, -1)
    return np.sort(found.reshape(len(found), -1), axis=1)


def _count(reads: _Reads, shift: int) -> tuple[int, int, int]:
    """Requests, bytes moved and bytes used."""
    sectors = _sectors(reads, shift)
    new = np.diff(sectors, axis=1, prepend=-1) > 0
    used = np.where(reads.active, reads.size, 0)
    return int(reads.active.any(axis=1).sum()), SECTOR_BYTES * int(new.sum()), int(used.sum())


def _request(reads: _Reads, shift: int) -> Request:
    loads = tuple(
        LaneLoad(
            lane, int(row), int(start), int(size), int(offset), int(_index("group_of", offset=offset)),
            int(_index("weight_of", offset=offset)),
        )
        for lane, (row, start, size, offset, active) in enumerate(
            zip(reads.row[0], reads.start[0], reads.size[0], reads.offset[0], reads.active[0], strict=True)
        )
        if active
    )  # fmt: skip
    sectors = sorted({int(sector) for sector in _sectors(reads, shift)[0] if sector >= 0})
    return Request(loads, tuple(sectors))


@cache
def _functions() -> Mapping[str, IndexFunction]:
    return functions("gemv_index.cuh")


def _index(name: str, **places: Any) -> Any:
    """A function of the header, with its parameters taken from `places` by their names."""
    function = _functions()[name]
    return function(*(places[parameter] for parameter in function.parameters))
