"""The roofline in words and letters: the state sentence, the numbers beside the picture, a small picture."""

import math

from lab_engine.gemv import GemvTime
from widgets.gemv_view import OPS, RATES, Rung, Scene
from widgets.words import byte_count, percent, signed, significant

PARTS = {"memory": "reading", "instructions": "unpacking", "arithmetic": "multiplying"}
"""What overlaps, in the words of the picture."""
ROWS, COLUMNS, BAR = 9, 48, 36


def micros(seconds: float) -> str:
    """Seconds as µs with three digits: `3.82`, `1050`."""
    return significant(seconds * 1e6)


def longest_part(time: GemvTime) -> str:
    """The longest of reading, unpacking and multiplying; on a tie the first."""
    return max(PARTS, key=lambda part: getattr(time, part))


def limit_words(time: GemvTime) -> str:
    """`edge`, `reading`, `unpacking` or `multiplying`: what takes longest."""
    part = longest_part(time)
    return "edge" if time.edge > getattr(time, part) else PARTS[part]


def time_words(time: GemvTime) -> str:
    """`limit edge: 3.82 µs = 1.42 + 2.40 edge`: what the GPU is busy with, and the edge on top."""
    work = f"{micros(time.seconds - time.edge)} + {micros(time.edge)} edge"
    return f"limit {limit_words(time)}: {micros(time.seconds)} µs = {work}"


def format_words(scene: Scene) -> str:
    """`INT4 g128 × fp16, batch 1`."""
    weights = f"INT{scene.bits} g{scene.group}" if scene.unpacks else "FP16"
    return f"{weights} × {scene.activation}, batch {scene.batch}"


def roofline_sentence(scene: Scene) -> str:
    """`o on H200 · INT4 g128 × fp16, batch 1 · 0.63 instr. · limit …`; of a rung what was recorded."""
    where, rung = f"{scene.stage} on {scene.gpu}", scene.chosen
    if rung:
        return " · ".join([f"{rung.number} {rung.name}: {where}", *_rung_words(scene, rung)])
    return " · ".join(
        [
            where,
            format_words(scene),
            f"{significant(scene.ops, 2)} instr." if scene.unpacks else "nothing to unpack",
            time_words(scene.now),
            share_words(scene, scene.now.seconds),
        ]
    )


def _rung_words(scene: Scene, rung: Rung) -> list[str]:
    recorded, model = scene.recorded(rung), scene.time(rung.slots).seconds
    counts = f"{significant(rung.integer, 2)} integer of {significant(rung.total, 2)} instr."
    told = f"model {micros(model)} µs{f' ({off_words(model, recorded)})' if recorded else ''}"
    found = [f"recorded {micros(recorded)} µs", told] if recorded else [told]
    return [counts, *found, share_words(scene, recorded or model)]


def off_words(model: float, recorded: float) -> str:
    """How far the model is off: `−12 %`."""
    off = round(100 * (model / recorded - 1))
    return f"{'+' if off > 0 else ''}{signed(off)} %"


def share_words(scene: Scene, seconds: float) -> str:
    """`37 % of 4.68 TB/s`."""
    bandwidth = scene.chip.bandwidth / 1e12
    return f"{percent(scene.rate(seconds) / bandwidth)} of {significant(bandwidth)} TB/s"


def counter_lines(scene: Scene) -> list[str]:
    """What the counters of the GPU say of the chosen kernel, in the two lines below the roofline."""
    if not scene.chosen:
        return ["choose a kernel: what kept it busy, and what did it wait for?"]
    first, *more = scene.chosen.counters
    return [
        f"{scene.chosen.number} {scene.chosen.name}: {first}",
        *(f"{one} (gate_up, Nsight Compute)" for one in more),
    ]


def byte_rows(scene: Scene) -> list[tuple[str, str, str]]:
    """What moves, how much, its share: weights, scales, x, y."""
    moved = scene.now.bytes
    named = {"weights": moved.weights, "scales": moved.scales, "x": moved.activation, "y": moved.output}
    return [(name, byte_count(count), percent(count / moved.total, 2)) for name, count in named.items()]


def roofline_text(scene: Scene) -> str:
    """The roof, the chosen point, where the time goes, the bytes, the ladder, the chosen kernel's counters."""
    return "\n".join([*_plot(scene), "", *_bars(scene), "", *_bytes(scene), *_ladder(scene)])


def _plot(scene: Scene) -> list[str]:
    grid = [[" "] * COLUMNS for _ in range(ROWS)]
    for column in range(COLUMNS):
        ops = OPS[1] * (OPS[0] / OPS[1]) ** (column / (COLUMNS - 1))
        time = scene.time(ops)
        grid[_row(scene.rate(time.seconds))][column] = "."
        grid[_row(scene.rate(time.seconds - time.edge))][column] = "="
    share = math.log(OPS[1] / scene.ops) / math.log(OPS[1] / OPS[0]) if scene.unpacks else 1.0
    grid[_row(scene.rate(scene.now.seconds))][round(share * (COLUMNS - 1))] = "O"
    lines = [f"{_rate(row)} |{''.join(letters).rstrip()}" for row, letters in enumerate(grid)]
    axis = "8" + "0.25".rjust(COLUMNS - 1)
    return [
        "TB/s (= roof, . with the edge, O here)",
        *lines,
        f"     +{'-' * COLUMNS}",
        f"      {axis}  instr. a weight",
    ]


def _row(rate: float) -> int:
    share = math.log(RATES[1] / rate) / math.log(RATES[1] / RATES[0])
    return round(min(1.0, max(0.0, share)) * (ROWS - 1))


def _rate(row: int) -> str:
    return f"{RATES[1] * (RATES[0] / RATES[1]) ** (row / (ROWS - 1)):4.1f}"


def _bars(scene: Scene) -> list[str]:
    time, scale = scene.told, BAR / scene.told.seconds
    rows = [(word, getattr(time, part), 0.0) for part, word in PARTS.items()]
    rows.append(("edge", time.edge, time.seconds - time.edge))
    bars = [
        f"{name:<12}{micros(value):>9} µs  {' ' * round(start * scale)}{'#' * round(value * scale)}".rstrip()
        for name, value, start in rows
    ]
    return [*bars, f"{'together':<12}{micros(time.seconds):>9} µs"]


def _bytes(scene: Scene) -> list[str]:
    return ["  ".join(f"{name} {count} ({share})" for name, count, share in byte_rows(scene))]


def _ladder(scene: Scene) -> list[str]:
    if not scene.shown_rungs:
        return []
    lines = ["", "     rung           integer    all  model µs  recorded µs"]
    for rung in scene.shown_rungs:
        recorded, model = scene.recorded(rung), micros(scene.time(rung.slots).seconds)
        found = micros(recorded) if recorded else "–"
        counts = f"{significant(rung.integer, 2):>7}{significant(rung.total, 2):>7}"
        lines.append(f"{rung.number:>4} {rung.name:<15}{counts}{model:>10}{found:>13}")
    chosen = scene.chosen
    return [*lines, "", f"{chosen.name} on gate_up: {', '.join(chosen.counters)}"] if chosen else lines
