"""The products of a decode step in their final form: how fast they were on an H200, and the ladder on the GPU here."""

from lab_engine import gemv_gpu
from lab_engine.gemv_ladder import RUNGS
from lab_engine.recordings import Recording
from widgets.evidence import Table
from widgets.gemv_view import counters
from widgets.live_table import LiveTable
from widgets.machine import HERE
from widgets.playground import Badge

STAGES = ("qkv", "o", "gate_up", "down", "lm_head")


def forms_table(recording: Recording, bandwidth: float) -> Table:
    """Microseconds of every stage as a node of a CUDA graph, plain and dependent, and the rate of the dependent one.

    bandwidth: bytes a second that a reading brings at best.
    """
    forms, peer = recording.data["forms"], recording.data["peer"]
    rows = []
    for stage in STAGES:
        form = forms[stage]
        plain, dependent = form["plain"]["us"], form["dependent"]["us"]
        rate = form["bytes"] / dependent / 1e6
        rows.append(
            (
                stage,
                f"{form['bytes'] / 1e6:.2f}",
                f"{1e6 * form['bytes'] / bandwidth:.2f}",
                f"{plain:.2f}",
                f"{dependent:.2f}",
                f"{rate:.2f}",
                f"{100 * rate * 1e12 / bandwidth:.0f} %",
                f"{peer[stage]['us']:.2f}",
            )
        )
    columns = (
        "stage",
        "MB",
        "floor, µs",
        "plain, µs",
        "dependent, µs",
        "TB/s, dependent",
        f"of {bandwidth / 1e12:g} TB/s",
        "PyTorch, µs",
    )
    worst = max(form["error"] for form in forms.values())
    note = (
        f"Floor: bytes ÷ {bandwidth / 1e12:g} TB/s (quoted: first experiment). Our times include norm, bias, sums and "
        f"silu, PyTorch's do not. Largest error against float64: {worst:.1e}."
    )
    return Table("The products of the 7B, on the H200", columns, tuple(rows), _badge(recording), note)


def token_table(recording: Recording, bandwidth: float) -> Table:
    """Milliseconds of all products of a token in one CUDA graph: ours, the floor that bytes set, and PyTorch's."""
    data = recording.data
    num_bytes = sum(
        form["bytes"] * (1 if stage == "lm_head" else data["layers"]) for stage, form in data["forms"].items()
    )
    floor, peer = 1e3 * num_bytes / bandwidth, data["peer"]["token"]["ms"]
    times = {
        "ours, dependent launches": data["token"]["dependent"]["ms"],
        "ours, plain graph": data["token"]["plain"]["ms"],
        "PyTorch, products alone": peer,
    }
    rows = [
        (f"floor: {num_bytes / 1e9:.3f} GB ÷ {bandwidth / 1e12:g} TB/s", f"{floor:.3f}", "100 %", f"{peer / floor:.2f}")
    ]
    rows += [(name, f"{ms:.3f}", f"{100 * floor / ms:.0f} %", f"{peer / ms:.2f}") for name, ms in times.items()]
    columns = ("all products of a token", "ms", "floor ÷ time", "PyTorch ÷ time")
    note = f"{data['layers']} layers and lm_head, {data['replays']} replays; attention is not in any of them."
    return Table("A token's products of the 7B, on the H200", columns, tuple(rows), _badge(recording), note)


def profile_table(recording: Recording) -> Table:
    """What the GPU's own counters say of every rung on gate_up: memory, issue slots, and what warps wait for most.

    A rung that was not profiled has dashes.
    """
    rows = []
    for name, rung in recording.data["rungs"].items():
        rows.append((name, *counters(rung)))
    columns = ("rung", "memory busy", "clocks with an instruction", "a warp waits mostly for")
    note = "gate_up, one launch each, by Nsight Compute. Memory busy: of the most that its pins can carry."
    return Table("What the counters say", columns, tuple(rows), _badge(recording), note)


def gpu_here() -> LiveTable:
    """Run the ladder on this machine's GPU, on the 7B's `down`: each rung's error, microseconds and rate."""
    rows: list[tuple[str, ...]] = []
    note = "The 7B's down, 3584 × 18944, timed as on the H200. The error is relative, against float64."
    try:
        bench = gemv_gpu.LadderBench()
        rows = [_row(bench, name) for name in RUNGS]
    except Exception as error:  # noqa: BLE001 - an old GPU or a full one fails in many ways; the lab goes on
        note = f"Not run here: {error}".splitlines()[0]
    columns = ("rung", "error", "µs", "GB/s", "why not")
    table = Table("The ladder, here", columns, tuple(rows), HERE if rows else None, note)
    return LiveTable(table, "The ladder on this machine's GPU: in the picture")


def _row(bench: gemv_gpu.LadderBench, name: str) -> tuple[str, ...]:
    try:
        error, us, rate = bench.run(name)
    except Exception as problem:  # noqa: BLE001 - Hopper's instructions, a missing Triton: the next rung may run
        return name, "–", "–", "–", f"{problem}".splitlines()[0][:60]
    return name, f"{error:.1e}", f"{us:.1f}", f"{rate / 1e9:,.0f}", ""


def _badge(recording: Recording) -> Badge:
    return Badge("recorded", recording.badge_source)
