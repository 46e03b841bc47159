"""What opening, reading and copying a .nanoqwen file costs on this machine, now, as LiveTables.

Their text/plain is the same everywhere. A machine that cannot measure something says why in the table's note.
"""

import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from lab_engine.bench.files import write_sparse_file
from lab_engine.bench.models import QWEN_7B, byte_tokenizer
from lab_engine.device_copy import WAYS, time_copies
from lab_engine.errors import NanoqwenError
from lab_engine.file_comparison import ReadCost
from lab_engine.file_map import Region
from lab_engine.file_pages import time_opening, touch
from lab_engine.nanoqwen_file import NanoqwenFile
from lab_engine.recordings import Recording
from widgets.evidence import Table
from widgets.live_table import LiveTable
from widgets.machine import HERE
from widgets.playground import Badge

_RUNS = 5


def pages_table(path: Path, reads: Mapping[str, Region]) -> LiveTable:
    """What the kernel brings when bytes of a cold copy of the file are read, with its read-ahead and without."""
    rows, note = [], ""
    try:
        for name, region in reads.items():
            for ahead in (True, False):
                found = touch(path, region.offset, region.length, read_ahead=ahead)
                counts = (f"{len(pages):,}" for pages in (found.needed, found.cached, found.mapped))
                rows.append((name, "yes" if ahead else "no", *counts))
        note = f"The file has {found.num_pages:,} pages of {found.page_bytes:,} bytes."
    except NanoqwenError as error:
        note = str(error)
    columns = ("bytes that are read", "read-ahead", "pages needed", "from the disk", "into the process")
    text = "Pages that the kernel brought here: in the picture"
    return LiveTable(Table("Pages that the kernel brought here", columns, tuple(rows), HERE, note), text)


def opening_table(path: Path, name: str, row: int) -> LiveTable:
    """Times to open the file and to read one row, cold and warm; and to open a file of the 7B's size."""
    rows, note = [], ""
    try:
        for state, times in zip(("cold", "warm"), time_opening(path, name, row), strict=True):
            label = f"{path.name}, {path.stat().st_size / 1e6:.1f} MB, {state}"
            rows.append((label, f"{times.open_ms:.2f}", f"{1e3 * times.row_ms:.0f}"))
    except NanoqwenError as error:
        note = str(error)
    rows.append(_open_7b())
    text = "Times to open a file here: in the picture"
    columns = ("file", "open, ms", "first row, µs")
    return LiveTable(Table("Times to open a file here", columns, tuple(rows), HERE, note), text)


def _open_7b() -> tuple[str, str, str]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sparse.nanoqwen"
        try:
            write_sparse_file(path, QWEN_7B, byte_tokenizer())
        except OSError as error:
            return f"a file in the 7B's shapes: {error.strerror}", "–", "–"
        size, opening, reading = path.stat().st_size, [], []
        for _ in range(_RUNS):
            start = time.perf_counter()
            file = NanoqwenFile(path)
            opened = time.perf_counter()
            file.array("model.layers.0.mlp.gate_proj.weight")[5].copy()
            opening.append(opened - start)
            reading.append(time.perf_counter() - opened)
    label = f"in the 7B's shapes, {size / 1e9:.2f} GB, sparse, warm"
    return label, f"{1e3 * statistics.median(opening):.2f}", f"{1e6 * statistics.median(reading):.0f}"


def comparison_table(costs: Sequence[ReadCost]) -> LiveTable:
    """The readers that file_comparison.py measured, one a row."""
    rows = tuple(
        (
            cost.reader,
            f"{cost.num_bytes / 1e6:.2f}",
            f"{1e3 * cost.open_seconds:.2f}",
            f"{1e6 * cost.row_seconds:.0f}",
            f"{cost.resident_bytes / 1e6:.2f}",
        )
        for cost in costs
    )
    columns = ("file and way of reading", "MB", "open, ms", "first row, µs", "more memory, MB")
    note = "Memory after opening and one row, pages of the file included; each way in a process of its own."
    text = "Two formats, three ways of reading, here: in the picture"
    return LiveTable(Table("Two formats, three ways of reading, here", columns, rows, HERE, note), text)


def device_copy_table(path: Path) -> LiveTable:
    """How long the file takes to this machine's GPU, in the ways of device_copy.py; without a GPU, why not."""
    rows, badge = tuple((way, *["–"] * 4) for way in WAYS), None
    try:
        found = time_copies(path, _RUNS)
        rows = tuple(_copy_row(copy.way, copy.num_bytes, copy.num_copies, 1e3 * copy.median_seconds) for copy in found)
        badge, note = HERE, f"To {torch.cuda.get_device_name()}; the file is in the page cache."
    except NanoqwenError as error:
        note = f"Not measured: {error}."
    table = Table("The copy to the GPU here", _COPY_COLUMNS, rows, badge, note)
    return LiveTable(table, "The copy to the GPU here: in the picture; it needs an NVIDIA GPU")


def recorded_copy_table(recording: Recording) -> Table:
    """The same copies on an H200, of a file in the shapes of the 7B."""
    data = recording.data
    rows = tuple(_copy_row(way, data["bytes"], one["copies"], one["ms"]) for way, one in data["ways"].items())
    link = f"PCIe generation {data['pcie']['generation']} × {data['pcie']['lanes']}"
    note = f"Medians of {data['repeats']}; {data['file']}, all of it in the page cache; {link}."
    badge = Badge("recorded", recording.badge_source)
    return Table("The copy to an H200", _COPY_COLUMNS, rows, badge, note)


_COPY_COLUMNS = ("from", "copies", "MB", "ms", "GB/s")


def _copy_row(way: str, num_bytes: int, num_copies: int, ms: float) -> tuple[str, ...]:
    return way, f"{num_copies:,}", f"{num_bytes / 1e6:,.2f}", f"{ms:.2f}", f"{num_bytes / ms / 1e6:.1f}"
