"""FP16 against INT8 as a PNG: the picture of gemv_int8.js on a wide page, drawn by matplotlib."""

import math
from collections.abc import Callable

from lab_engine.gemv_int8 import FP16, Int8Trace, StageTimes
from widgets.figures import Canvas, text_width
from widgets.gemv_int8_text import MOST, NAMES, PARTS, against_words, longest, segments
from widgets.words import signed, significant

MARGIN, WIDTH = 16, 868
END = MARGIN + WIDTH
KEY, BARS, ROW, BAR = MARGIN + 40, MARGIN + 68, 36, 20
BAR_LEFT, BAR_RIGHT = MARGIN + 148, END - 200
COLUMNS = (END - 136, END - 68, END)
PLOT, LEFT, RIGHT = MARGIN + 236, MARGIN + 52, END - 72
TOP, BOTTOM = PLOT + 44.0, PLOT + 194.0
HEIGHT = PLOT + 250 + MARGIN
HUES = {"launch": "c4", "quantize": "c2", "read": "c1", "unpack": "c3"}
INT8 = [name for name in NAMES if name != FP16]
Place = Callable[[float], float]


def int8_png(trace: Int8Trace, stage_name: str, launch: float) -> bytes:
    """Stage, key, a bar a variant; below them how much longer than FP16 each takes over the cost of a launch."""
    canvas, stage = Canvas(WIDTH + 2 * MARGIN, HEIGHT), trace.stages[stage_name]
    _stages(canvas, trace, stage_name)
    _key(canvas)
    for at, name in enumerate(NAMES):
        _variant(canvas, stage, name, launch, BARS + at * ROW)
    _plot(canvas, trace, stage, launch)
    return canvas.png()


def _stages(canvas: Canvas, trace: Int8Trace, chosen: str) -> None:
    canvas.text(MARGIN, MARGIN + 12, "stage", "s mu")
    x = float(MARGIN + 40)
    for stage in trace.stages:
        wide, on = text_width(stage, "s") + 12, stage == chosen
        canvas.rect(x, MARGIN, wide, 24, "ca fill" if on else "empty")
        canvas.text(x + wide / 2, MARGIN + 12, stage, "c s b ink ca" if on else "c s")
        x += wide + 4


def _key(canvas: Canvas) -> None:
    x = float(MARGIN)
    for part, words in PARTS.items():
        canvas.rect(x, KEY + 2, 12, 12, f"{HUES[part]} fill")
        canvas.text(x + 18, KEY + 8, words, "s mu")
        x += text_width(words, "s") + 32
    for end, head in zip(COLUMNS, ("µs", "to FP16", "error"), strict=True):
        canvas.text(end, KEY + 8, head, "e s mu")


def _variant(canvas: Canvas, stage: StageTimes, name: str, launch: float, y: float) -> None:
    title, words = NAMES[name]
    fastest = name == stage.fastest(launch)
    canvas.line(MARGIN, y, END, y)
    canvas.text(MARGIN, y + 11, f"{title}{': fastest' if fastest else ''}", "b" if fastest else "")
    canvas.text(MARGIN, y + 26, words, "s mu")
    x, scale = float(BAR_LEFT), (BAR_RIGHT - BAR_LEFT) / longest(stage)
    for part, us in segments(stage, name, launch):
        canvas.rect(x, y + (ROW - BAR) / 2, us * scale, BAR, f"{HUES[part]} fill")
        if us * scale > text_width(significant(us), "s") + 8:
            canvas.text(x + us * scale / 2, y + ROW / 2, significant(us), f"c s ink {HUES[part]}")
        x += us * scale
    time, error = significant(stage.work[name].time(launch)), significant(stage.errors[name], 2)
    for end, value in zip(COLUMNS, (time, against_words(stage, name, launch), error), strict=True):
        canvas.text(end, y + ROW / 2, value, "e b" if fastest else "e")


def _more(stage: StageTimes, name: str, launch: float) -> float:
    return stage.work[name].time(launch) - stage.work[FP16].time(launch)


def _x(launch: float) -> float:
    return LEFT + launch / MOST * (RIGHT - LEFT)


def _round_step(extent: float) -> float:
    """1, 2 or 5 times a power of ten, so that few steps cover it."""
    size = 10.0 ** math.floor(math.log10(extent / 3))
    return next(times for times in (1, 2, 5, 10) if times * size >= extent / 3) * size


def _axis(stage: StageTimes) -> tuple[Place, list[float]]:
    """The place of a difference, and a few round ticks."""
    values = [0.0, *(_more(stage, name, launch) for name in INT8 for launch in (0, MOST))]
    step = _round_step(max(values) - min(values))
    low, high = math.floor(min(values) / step), math.ceil(max(values) / step)

    def y(value: float) -> float:
        return BOTTOM - (value / step - low) / (high - low) * (BOTTOM - TOP)

    return y, [tick * step for tick in range(low, high + 1)]


def _plot(canvas: Canvas, trace: Int8Trace, stage: StageTimes, launch: float) -> None:
    y, ticks = _axis(stage)
    canvas.text(MARGIN, PLOT + 8, "µs more than FP16", "b")
    canvas.text(END, PLOT + 8, "below 0: faster than FP16", "e s mu")
    for tick in ticks:
        canvas.line(LEFT, y(tick), RIGHT, y(tick), "strong" if tick == 0 else "rule")
        canvas.text(LEFT - 8, y(tick), f"{'+' if tick > 0 else ''}{signed(f'{tick:.6g}')}", "e s mu")
    for whole in range(int(MOST) + 1):
        canvas.line(_x(whole), BOTTOM, _x(whole), BOTTOM + 4, "axis")
        canvas.text(_x(whole), BOTTOM + 12, str(whole), "c s mu")
    for (name, us), (shift, side) in zip(trace.launches.items(), ((-2, "e"), (2, ""), (0, "c")), strict=True):
        canvas.line(_x(us), TOP, _x(us), BOTTOM, "axis dash")
        canvas.text(_x(us) + shift, BOTTOM + 28, name, f"{side} s")
    canvas.text(LEFT, BOTTOM + 46, "cost of a launch, µs; every kernel adds it", "s mu")
    _lines(canvas, stage, launch, y)
    _playhead(canvas, stage, launch, y)


def _lines(canvas: Canvas, stage: StageTimes, launch: float, y: Place) -> None:
    for name in INT8:
        dash = " dash" if name == "dp4a_limbs" else ""
        canvas.line(LEFT, y(_more(stage, name, 0)), RIGHT, y(_more(stage, name, MOST)), f"strong{dash}")
    places = _spread([y(_more(stage, name, MOST)) for name in NAMES], 14, TOP, BOTTOM)
    for name, place in zip(NAMES, places, strict=True):
        canvas.text(RIGHT + 8, place, NAMES[name][0], "b" if name == stage.fastest(launch) else "")


def _playhead(canvas: Canvas, stage: StageTimes, launch: float, y: Place) -> None:
    words = f"launch {significant(launch)} µs"
    wide = text_width(words, "s") + 14
    left = min(RIGHT - wide, max(LEFT, _x(launch) - wide / 2))
    canvas.line(_x(launch), TOP - 4, _x(launch), BOTTOM, "sel")
    canvas.rect(left, TOP - 24, wide, 20, "tag")
    canvas.text(left + wide / 2, TOP - 14, words, "c s b ontag")
    for name in INT8:
        canvas.circle(_x(launch), y(_more(stage, name, launch)), 4, "tag")
    if 0 < stage.crossover < MOST:
        canvas.circle(_x(stage.crossover), y(0), 7, "empty")
        words = f"even at {significant(stage.crossover)} µs"
        wide = text_width(words, "s") + 8
        left = min(RIGHT - wide, max(LEFT, _x(stage.crossover) - wide / 2))
        canvas.rect(left, y(0) - 26, wide, 16, "paper")
        canvas.text(left + wide / 2, y(0) - 18, words, "c s")


def _spread(places: list[float], gap: float, low: float, high: float) -> list[float]:
    """The places, moved apart where two are closer than gap; all stay between low and high."""
    order = sorted(range(len(places)), key=places.__getitem__)
    found = list(places)
    for at, one in enumerate(order):
        found[one] = max(found[one], found[order[at - 1]] + gap if at else low)
    for at, one in enumerate(reversed(order)):
        found[one] = min(found[one], found[order[len(order) - at]] - gap if at else high)
    return found
