"""One product on this machine's processor, in three formats: bytes, time, and what the model says."""

from lab_engine.bench.machine import LoadMeter
from lab_engine.config import QWEN2_5_CODER
from lab_engine.gemv import gemv_shapes, this_cpu
from lab_engine.gemv_cpu import FormatTime, time_formats
from widgets.evidence import Table
from widgets.live_table import LiveTable
from widgets.machine import HERE
from widgets.words import percent

STAGE = "o"
COLUMNS = ("weights", "PyTorch's kernel", "MB", "ms", "ms by the model", "GB/s", "of the bandwidth here", "error")


def gemv_here() -> LiveTable:
    """Multiply `o` of the 7B by a vector on this machine, each time with another copy that no cache holds.

    The model knows one limit here: bytes over the highest read rate that was seen, in a dot product or in a product.
    """
    load, cpu = LoadMeter(), this_cpu()
    n, k = gemv_shapes(QWEN2_5_CODER["7B"])[STAGE]
    found = time_formats(n, k)
    busy = load.read()["other_cores"]
    bandwidth = max(cpu.bandwidth, *(one.bytes / one.seconds for one in found))
    missing = "" if len(found) == 3 else " A format without a fast kernel for this processor is left out."
    note = (
        f"{n} × {k}; {cpu.name}; reads {bandwidth / 1e9:.1f} GB/s at best. Other programs took {busy:.1f} cores. "
        f"Error: against float64 with the same INT4 weights; INT8 rounds weights and x once more.{missing}"
    )
    table = Table("One product here", COLUMNS, tuple(_row(one, bandwidth) for one in found), HERE, note)
    return LiveTable(table, "One product on this machine, in three formats: in the picture")


def _row(one: FormatTime, bandwidth: float) -> tuple[str, ...]:
    rate = one.bytes / one.seconds
    times = (f"{1e3 * seconds:.2f}" for seconds in (one.seconds, one.bytes / bandwidth))
    share = f"{100 * rate / bandwidth:.0f} %"
    return one.name, one.how, f"{one.bytes / 1e6:.1f}", *times, f"{rate / 1e9:.1f}", share, percent(one.error, 2)
