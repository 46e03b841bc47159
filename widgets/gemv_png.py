"""The roofline's PNG: the picture of gemv.js on a wide page, drawn by matplotlib from the engine's numbers."""

import math
from collections.abc import Sequence
from itertools import pairwise

from lab_engine.gemv import ACTIVATION_BYTES, BITS, GROUPS, UNPACK_OPS, GemvTime
from widgets.figures import Canvas, text_width
from widgets.gemv_text import PARTS, byte_rows, longest_part, micros, off_words
from widgets.gemv_view import EDGES, OPS, RATES, STAGES, Rung, Scene
from widgets.words import significant

MARGIN, WIDTH = 16, 868
LEFT, RIGHT, TOP, HEIGHT = MARGIN + 36, MARGIN + 460, MARGIN + 24, 250
BOTTOM = TOP + HEIGHT
SIDE = RIGHT + 32
END = MARGIN + WIDTH
LADDER = BOTTOM + 78
ROW = 20
HUES = {"memory": "c1", "instructions": "c3", "arithmetic": "c2", "edge": "c4"}
WAYS = {"shift_mask": "I2F", "prmt": "prmt", "lop3": "lop3", "int8": "int8"}
Point = tuple[float, float]


def roofline_png(scene: Scene) -> bytes:
    """Roof, points, choices, time and bytes; below them the ladder, in two columns."""
    rows = math.ceil(len(scene.rungs) / 2)
    canvas = Canvas(WIDTH + 2 * MARGIN, LADDER + (24 + rows * ROW if rows else -8) + MARGIN)
    _frame(canvas, scene)
    _limits(canvas, scene)
    _points(canvas, scene)
    _choices(canvas, scene)
    _times(canvas, scene)
    _bytes(canvas, scene)
    if rows:
        _ladder(canvas, scene, rows)
    return canvas.png()


def _x(ops: float) -> float:
    share = math.log(OPS[1] / ops) / math.log(OPS[1] / OPS[0]) if ops > 0 else 1.0
    return LEFT + min(1.0, max(0.0, share)) * (RIGHT - LEFT)


def _y(rate: float) -> float:
    share = math.log(RATES[1] / rate) / math.log(RATES[1] / RATES[0])
    return TOP + min(1.0, max(0.0, share)) * HEIGHT


def _frame(canvas: Canvas, scene: Scene) -> None:
    canvas.text(MARGIN, MARGIN + 8, "TB/s that move", "s mu")
    for rate in (5, 2, 1, 0.5, 0.2, 0.1):
        canvas.line(LEFT, _y(rate), RIGHT, _y(rate), "axis" if rate == RATES[0] else "rule")
        canvas.text(LEFT - 8, _y(rate), f"{rate:g}", "e s mu")
    for ops in (8, 4, 2, 1, 0.5, 0.25):
        canvas.line(_x(ops), BOTTOM, _x(ops), BOTTOM + 4, "axis")
        canvas.text(_x(ops), BOTTOM + 12, f"{ops:g}", "e s mu" if ops == OPS[0] else "c s mu")
    more = ", or half of all" if scene.rungs else ""
    canvas.text(LEFT, BOTTOM + 30, f"integer instructions a weight{more}", "s mu")
    canvas.text(RIGHT, BOTTOM + 30, "fewer →", "e s mu")
    for way, ops in UNPACK_OPS.items():
        canvas.line(_x(ops), BOTTOM - 6, _x(ops), BOTTOM, "axis")
        canvas.text(_x(ops), BOTTOM - 14, WAYS[way], "c s mu")


def _curve(scene: Scene, edge: bool) -> list[Point]:
    time = scene.now
    places = [OPS[1] * (OPS[0] / OPS[1]) ** (at / 96) for at in range(97)]
    if time.instructions:
        knee = max(time.memory, time.arithmetic) / time.instructions * scene.ops
        places += [knee] if OPS[0] < knee < OPS[1] else []
    points = []
    for ops in sorted(places, reverse=True):
        one = scene.time(ops)
        points.append((_x(ops), _y(scene.rate(one.seconds - (0 if edge else one.edge)))))
    return points


def _segments(canvas: Canvas, points: Sequence[Point], classes: str) -> None:
    for (x1, y1), (x2, y2) in list(pairwise(points))[:: 2 if "dash" in classes else 1]:
        canvas.line(x1, y1, x2, y2, classes)


def _limits(canvas: Canvas, scene: Scene) -> None:
    time, chip = scene.now, scene.chip
    if scene.edge:
        _segments(canvas, _curve(scene, edge=True), "axis dash")
    _segments(canvas, _curve(scene, edge=False), "strong")
    flat = max(time.memory, time.arithmetic)
    rate = scene.rate(flat)
    if time.arithmetic > time.memory:
        reading = chip.bandwidth / 1e12
        canvas.line(LEFT, _y(reading), RIGHT, _y(reading), "axis dash")
        if _y(rate) - _y(reading) > 22:
            canvas.text(RIGHT, _y(reading) - 10, f"reading: {significant(reading)} TB/s", "e s mu")
        flops = chip.fp16_flops if scene.activation == "fp16" else chip.int8_flops
        canvas.text(RIGHT, _y(rate) - 12, f"multiplying: {significant(flops / 1e12)} TFLOP/s", "e b")
    else:
        canvas.text(RIGHT, _y(rate) - 12, f"reading: {significant(rate)} TB/s", "e b")
    if scene.unpacks:
        _unpacking_label(canvas, scene, flat / time.instructions * scene.ops, _y(rate) + 4)


def _unpacking_label(canvas: Canvas, scene: Scene, knee: float, y: float) -> None:
    room = _x(knee) - LEFT - 40
    rate = f"unpacking: {significant(scene.chip.int_rate / 1e12)} T instr./s"
    label = next((words for words in (rate, "unpacking") if text_width(words) < room), None)
    if knee < OPS[1] and label:
        canvas.text(LEFT + 6, y, label, "b")


def _points(canvas: Canvas, scene: Scene) -> None:
    time, chosen = scene.now, scene.chosen
    for rung in scene.shown_rungs:
        if rung is not chosen:
            _rung(canvas, scene, rung, "paper")
    x, y = _x(scene.ops if scene.unpacks else 0), _y(scene.rate(time.seconds))
    if chosen:
        canvas.circle(x, y, 7, "empty")
        _rung(canvas, scene, chosen, "tag")
        return
    _drop(canvas, x, y, _y(scene.rate(time.seconds - time.edge)))
    canvas.circle(x, y, 7, "tag")
    words = f"{micros(time.seconds)} µs"
    beside_left = x + 14 + text_width(words) > RIGHT
    canvas.text(x - 13 if beside_left else x + 13, y + 15, words, f"{'e ' if beside_left else ''}b ink ca")


def _drop(canvas: Canvas, x: float, y: float, roof: float) -> None:
    if y - roof > 10:
        canvas.line(x, y - 8, x, roof, "sel dash")


def _rung(canvas: Canvas, scene: Scene, rung: Rung, classes: str) -> None:
    x, y = _x(rung.slots), _y(scene.rate(scene.seconds(rung)))
    if classes == "tag":
        without_edge = scene.time(rung.slots)
        _drop(canvas, x, y, _y(scene.rate(without_edge.seconds - without_edge.edge)))
    canvas.circle(x, y, 8, classes)
    if classes == "paper":
        canvas.circle(x, y, 8, "empty")
    if scene.rate(scene.seconds(rung)) < RATES[0]:
        canvas.text(x + 11, y - 8, "↓", "s b")
    canvas.text(x, y, str(rung.number), "c s b ontag" if classes == "tag" else "c s b")


def _choices(canvas: Canvas, scene: Scene) -> None:
    edges = [f"{us:g}" for us in EDGES]
    rows = [
        [("GPU", list(scene.gpus), scene.gpu)],
        [("stage", list(STAGES), scene.stage)],
        [
            ("bits", [str(bits) for bits in BITS], str(scene.bits)),
            ("group", [str(g) for g in GROUPS], str(scene.group)),
        ],
        [("x", list(ACTIVATION_BYTES), scene.activation), ("edge, µs", edges, f"{scene.edge:g}")],
    ]
    for at, row in enumerate(rows):
        y, x = MARGIN + 28 * at, float(SIDE)
        for place, (label, options, chosen) in enumerate(row):
            x += 14 if place else 0
            canvas.text(x, y + 12, label, "s mu")
            x += text_width(label, "s") + 4 if place else 40
            for option in options:
                wide = text_width(option, "s") + 12
                on = option == chosen
                canvas.rect(x, y, wide, 24, "ca fill" if on else "empty")
                canvas.text(x + wide / 2, y + 12, option, "c s b ink ca" if on else "c s")
                x += wide + 4
            x -= 4


def _times(canvas: Canvas, scene: Scene) -> None:
    time, y = scene.now, MARGIN + 124
    canvas.text(SIDE, y + 8, "Time", "b")
    canvas.text(END, y + 8, f"{micros(time.seconds)} µs", "e b")
    for at, (part, word) in enumerate([*PARTS.items(), ("edge", "edge")]):
        _time_row(canvas, time, part, word, y + 20 + at * ROW)


def _time_row(canvas: Canvas, time: GemvTime, part: str, word: str, y: float) -> None:
    room, value = END - SIDE - 84 - 64, getattr(time, part)
    start = (time.seconds - time.edge) / time.seconds * room if part == "edge" else 0
    bold = "b" if part == longest_part(time) else ""
    canvas.line(SIDE, y, END, y)
    canvas.text(SIDE, y + 10, word, bold)
    canvas.rect(SIDE + 84 + start, y + 5, value / time.seconds * room, 10, f"{HUES[part]} solid")
    canvas.text(END, y + 10, micros(value), f"e {bold}")


def _bytes(canvas: Canvas, scene: Scene) -> None:
    y = MARGIN + 242
    canvas.text(SIDE, y + 8, "Bytes", "b")
    canvas.text(END, y + 8, f"{significant(scene.now.bytes.total / 1e6)} MB", "e b")
    for at, (name, count, share) in enumerate(byte_rows(scene)):
        top = y + 20 + at * ROW
        canvas.line(SIDE, top, END, top)
        canvas.text(SIDE, top + 10, name)
        canvas.text(END - 72, top + 10, count, "e")
        canvas.text(END, top + 10, share, "e mu")


def _ladder(canvas: Canvas, scene: Scene, rows: int) -> None:
    wide = (WIDTH - 24) // 2
    heads = ("integer", "all", "model, µs", "recorded, µs", "off")
    for column in range(2):
        x = MARGIN + column * (wide + 24)
        canvas.text(x + 24, LADDER + 8, "kernel", "s mu")
        for end, head in zip(_ends(x + wide), heads, strict=True):
            canvas.text(end, LADDER + 8, head, "e s mu")
    for at, rung in enumerate(scene.rungs):
        x, y = MARGIN + at // rows * (wide + 24), LADDER + 20 + at % rows * ROW
        if rung is scene.chosen:
            canvas.rect(x, y, wide, ROW, "ca tint")
        canvas.line(x, y, x + wide, y)
        canvas.text(x + 18, y + 10, str(rung.number), "e s b")
        look = "b" if rung is scene.chosen else "" if scene.on_ladder else "mu"
        canvas.text(x + 24, y + 10, rung.name, look)
        for end, value in zip(_ends(x + wide), _ladder_values(scene, rung), strict=True):
            canvas.text(end, y + 10, value, f"e {look}")


def _ends(right: float) -> list[float]:
    return [right - 252, right - 204, right - 140, right - 56, right]


def _ladder_values(scene: Scene, rung: Rung) -> list[str]:
    counts = [significant(rung.integer, 2), significant(rung.total, 2)]
    if not scene.on_ladder:
        return [*counts, "–", "–", "–"]
    recorded, model = scene.recorded(rung), scene.time(rung.slots).seconds
    found = [micros(recorded), off_words(model, recorded)] if recorded else ["–", "–"]
    return [*counts, micros(model), *found]
