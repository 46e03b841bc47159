"""The inner loop of every rung of the GEMV's ladder: instructions a weight, recorded and compiled here; its listing."""

from lab_engine.errors import NanoqwenError
from lab_engine.gemv import H200
from lab_engine.gemv_ladder import RUNGS
from lab_engine.gemv_sass import CLASSES, rung_loop
from lab_engine.int4 import BYTES_PER_WEIGHT
from lab_engine.recordings import Recording
from widgets.evidence import Table
from widgets.live_table import LiveTable
from widgets.machine import HERE
from widgets.playground import Badge
from widgets.source import Source

ISSUE_LANES = 128
"""Lanes for which an SM issues in a clock: four schedulers, a warp each (CUDA C++ Programming Guide, 9.0)."""

_KINDS = ("total", *CLASSES, "other")


def instructions_table(recording: Recording) -> Table:
    """Instructions a weight by class, in the code that was timed on the H200, in the order of the ladder."""
    rows = tuple(
        (name, *(f"{rung['sass']['per_weight'][kind]:.2f}" for kind in _KINDS))
        for name, rung in recording.data["rungs"].items()
    )
    columns = ("rung", "all", *CLASSES, "other")
    rate = recording.data["read_bytes_per_second"]
    note = (
        f"One turn of the inner loop over the weights that it takes. Memory brings {rate / 1e12:.2f} TB/s: "
        f"while it brings a weight, the SMs issue {issue_room(recording):.2f} instructions and finish at most half as "
        "many integer ones."
    )
    return Table("Instructions a weight", columns, rows, Badge("recorded", recording.badge_source), note)


def issue_room(recording: Recording) -> float:
    """Instructions that all SMs issue in the time in which the highest read bandwidth brings a weight, scale included.

    Of integer ones an SM finishes 64 a clock, half of ISSUE_LANES.
    """
    clock = recording.provenance.clocks_mhz["sm"] * 1e6
    weights = recording.data["read_bytes_per_second"] / BYTES_PER_WEIGHT
    return float(H200.sms * ISSUE_LANES * clock / weights)


def loop_source(recording: Recording, name: str) -> Source:
    """The recorded machine code of a rung's inner loop, an address before each instruction."""
    if name not in recording.data["rungs"]:
        raise NanoqwenError(f"rung {name!r}: expected one of {', '.join(recording.data['rungs'])}")
    lines = recording.data["rungs"][name]["sass"]["loop"]
    return Source("\n".join(f"{line['address']:04x}  {line['text']}" for line in lines))


def code_here(recording: Recording) -> LiveTable:
    """Compile every CUDA rung on this machine, which needs no GPU, and count again; Triton's take twice as long."""
    rows: list[tuple[str, ...]] = []
    missing: list[str] = []
    for name in (rung.name for rung in RUNGS.values() if rung.source.endswith(".cu")):
        try:
            loop = rung_loop(name)
        except NanoqwenError as error:
            missing.append(f"{name}: {error}")
            continue
        recorded = recording.data["rungs"][name]["sass"]["per_weight"]["total"]
        counts = (str(loop.weights), str(len(loop.lines)), f"{loop.per_weight['total']:.2f}", f"{recorded:.2f}")
        rows.append((name, *counts))
    note = "Another version of a compiler may unroll a loop differently, or save an instruction."
    if missing:
        note = f"Not compiled here: {missing[0]}" + f" (and {len(missing) - 1} more)" * (len(missing) > 1)
    columns = ("rung", "weights a lane and turn", "instructions", "a weight, here", "a weight, on the H200")
    table = Table("The inner loops, compiled here", columns, tuple(rows), HERE if rows else None, note)
    return LiveTable(table, "The inner loops compiled here: in the picture")
