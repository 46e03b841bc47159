"""The left part of the roofline's PNG: limits as lines, the model's point, the ladder's kernels; as gemv_roof.js."""

import math
from collections.abc import Sequence
from itertools import pairwise

from lab_engine.gemv import UNPACK_OPS
from widgets.figures import Canvas, text_width
from widgets.gemv_text import counter_lines, micros
from widgets.gemv_view import OPS, RATES, Rung, Scene
from widgets.words import significant

MARGIN = 16
LEFT, RIGHT, TOP, HEIGHT = MARGIN + 36, MARGIN + 460, MARGIN + 24, 250
BOTTOM = TOP + HEIGHT
WAYS_HEIGHT = 34
WAYS = {"shift_mask": "I2F", "prmt": "prmt", "lop3": "lop3", "int8": "int8"}
Point = tuple[float, float]


def draw_roof(canvas: Canvas, scene: Scene) -> None:
    """Axes, limits, points, and the counters of the chosen kernel."""
    _frame(canvas)
    _limits(canvas, scene)
    _points(canvas, scene)
    for at, words in enumerate(counter_lines(scene)):
        canvas.text(MARGIN, BOTTOM + 50 + 15 * at, words, "s" if scene.chosen else "s mu")


def _x(ops: float) -> float:
    share = math.log(OPS[1] / ops) / math.log(OPS[1] / OPS[0]) if ops > 0 else 1.0
    return LEFT + min(1.0, max(0.0, share)) * (RIGHT - LEFT)


def _y(rate: float) -> float:
    share = math.log(RATES[1] / rate) / math.log(RATES[1] / RATES[0])
    return TOP + min(1.0, max(0.0, share)) * HEIGHT


def _frame(canvas: Canvas) -> None:
    canvas.text(MARGIN, MARGIN + 8, "TB/s that move", "s mu")
    for rate in (5, 2, 1, 0.5, 0.2, 0.1):
        canvas.line(LEFT, _y(rate), RIGHT, _y(rate), "axis" if rate == RATES[0] else "rule")
        canvas.text(LEFT - 8, _y(rate), f"{rate:g}", "e s mu")
    for ops in (8, 4, 2, 1, 0.5, 0.25):
        canvas.line(_x(ops), BOTTOM, _x(ops), BOTTOM + 4, "axis")
        canvas.text(_x(ops), BOTTOM + 12, f"{ops:g}", "e s mu" if ops == OPS[0] else "c s mu")
    canvas.text(LEFT, BOTTOM + 30, "integer instructions a weight, or half of all", "s mu")
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
    x, y = _x(scene.ops if scene.unpacks else 0), _y(scene.rate(time.seconds))
    words = f"{micros(time.seconds)} µs"
    side, wide = (-1 if x + 14 + text_width(words) > RIGHT else 1), text_width(words)
    taken: list[Point] = [(x, y)]
    if not chosen:
        taken += [(x + side * (13 + part * wide), y + 15) for part in (0, 0.33, 0.67, 1)]
        _drop(canvas, x, y - 8, _y(scene.rate(time.seconds - time.edge)))
        canvas.text(x + 13 * side, y + 15, words, f"{'e ' if side < 0 else ''}b ink ca")
    places = _places(scene, taken)
    for rung, point, place in places:
        _leader(canvas, scene, rung, point, place)
    for rung, _, place in places:
        _kernel(canvas, rung, place, rung is chosen)
    canvas.circle(x, y, 7, "empty" if chosen else "tag")


def _places(scene: Scene, taken: list[Point]) -> list[tuple[Rung, Point, Point]]:
    """The kernels, their points, and where their numbers stand: as kernelPlaces of gemv.js."""
    found = []
    for rung in scene.shown_rungs:
        x, y = point = _x(rung.slots), _y(scene.rate(scene.seconds(rung)))
        low = y > BOTTOM - WAYS_HEIGHT
        y = BOTTOM - WAYS_HEIGHT if low else y
        while any(math.hypot(x - left, y - top) < 20 for left, top in taken):
            y += -4 if low else 4
        taken.append((x, y))
        found.append((rung, point, (x, y)))
    return found


def _drop(canvas: Canvas, x: float, y: float, roof: float) -> None:
    if y - roof > 2:
        canvas.line(x, y, x, roof, "sel dash")


def _leader(canvas: Canvas, scene: Scene, rung: Rung, point: Point, place: Point) -> None:
    chosen = rung is scene.chosen
    if chosen:
        without_edge = scene.time(rung.slots)
        _drop(canvas, *point, _y(scene.rate(without_edge.seconds - without_edge.edge)))
    if abs(place[1] - point[1]) < 1:
        return
    canvas.line(*point, *place, "axis")
    if scene.rate(scene.seconds(rung)) < RATES[0]:
        canvas.text(point[0] + 12, place[1], "↓", "s b")
    else:
        canvas.circle(*point, 3, "ca solid" if chosen else "c4 solid")


def _kernel(canvas: Canvas, rung: Rung, place: Point, chosen: bool) -> None:
    canvas.circle(*place, 9, "tag" if chosen else "paper")
    if not chosen:
        canvas.circle(*place, 9, "empty")
    canvas.text(*place, str(rung.number), "c s b ontag" if chosen else "c s b")
