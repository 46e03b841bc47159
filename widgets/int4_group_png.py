"""The group's PNG: the parts of int4_group.js on a wide page, drawn by matplotlib from the same data."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from widgets.figures import Canvas
from widgets.int4_group_text import Clip, clip_at, is_moved, rounded
from widgets.words import percent, signed, significant

Data = Mapping[str, Any]

MARGIN = 16
LEFT, COLUMN = MARGIN + 40, 4
RIGHT = LEFT + 128 * COLUMN
SIDE, WIDTH = RIGHT + 108, RIGHT + 108 + 228
LEVELS = (MARGIN + 28, MARGIN + 228)
ERRORS = (MARGIN + 240, MARGIN + 296)
CHAIN = MARGIN + 336
CURVE = (MARGIN + 28, MARGIN + 144)


@dataclass(frozen=True)
class _Axes:
    """Heights of a value, and of an error."""

    reach: float

    def y(self, value: float) -> float:
        top = abs(self.reach) * 8 / 7
        return LEVELS[1] - (value + top) / (2 * top) * (LEVELS[1] - LEVELS[0])

    def error_y(self, error: float) -> float:
        bound = abs(self.reach) / 7
        return ERRORS[1] - (max(-bound, min(bound, error)) + bound) / (2 * bound) * (ERRORS[1] - ERRORS[0])


def group_png(group: Data, step: int, weight: int) -> bytes:
    """Weights on their levels, the error of each, the chosen weight, the error by clip, the numbers."""
    clip, axes = clip_at(group, step), _Axes(group["reach"])
    canvas = Canvas(WIDTH + MARGIN, CHAIN + 36 + MARGIN)
    if clip.codes:
        _levels(canvas, clip, axes)
    _columns(canvas, weight)
    _weights(canvas, group, clip, axes)
    if not clip.codes:
        canvas.rect(LEFT, ERRORS[0], RIGHT - LEFT, ERRORS[1] - ERRORS[0], "cw fill")
        canvas.text(LEFT + 12, sum(ERRORS) / 2, f"refused: {group['refusal']}", "s ink cw")
    handle = axes.y(step / 100 * group["reach"])
    canvas.line(LEFT, handle, RIGHT + 8, handle, "sel")
    canvas.rect(RIGHT + 8, handle - 10, 76, 20, "tag")
    canvas.text(RIGHT + 46, handle, f"↕ clip {step / 100:.2f}", "c s b ontag")
    _chain(canvas, group, clip, weight)
    _curve(canvas, group, step)
    _stats(canvas, group, clip, CURVE[1] + 44)
    return canvas.png()


def _levels(canvas: Canvas, clip: Clip, axes: _Axes) -> None:
    top, bottom = sorted((axes.y(7 * clip.scale), axes.y(-8 * clip.scale)))
    for high, low in ((LEVELS[0], top), (bottom, LEVELS[1])):
        if low - high >= 1:
            canvas.rect(LEFT, high, RIGHT - LEFT, low - high, "hatch")
    spacing = abs(axes.y(clip.scale) - axes.y(0))
    every = next((count for count in (1, 2, 4, 8) if count * spacing >= 12), None)
    canvas.text(LEFT - 8, MARGIN + 8, "code", "e s mu")
    for code in range(-8, 8):
        y = axes.y(code * clip.scale)
        canvas.line(LEFT, y, RIGHT, y, "rule" if code else "axis")
        if every and (code % every == 0 or (code == 7 and every == 1)):
            canvas.text(LEFT - 8, y, signed(code), "e s")
    if every is None:
        canvas.text(LEFT - 8, axes.y(0), "0" if clip.scale else "−8…7", "e s")


def _columns(canvas: Canvas, weight: int) -> None:
    x, y = LEFT + (weight + 0.5) * COLUMN, ERRORS[1] + 8
    canvas.rect(x - 3.5, LEVELS[0], 7, y - LEVELS[0], "sel")
    for index in range(0, 128, 16):
        if abs(index - weight) * COLUMN > 30:
            canvas.text(LEFT + (index + 0.5) * COLUMN, y + 10, str(index), "c s mu")
    canvas.rect(x - 16, y, 32, 20, "tag")
    canvas.text(x, y + 10, str(weight), "c s b ontag")
    canvas.text(RIGHT + 16, y + 10, "weight", "s mu")


def _weights(canvas: Canvas, group: Data, clip: Clip, axes: _Axes) -> None:
    if not clip.codes:
        for index, weight in enumerate(group["weights"]):
            canvas.circle(LEFT + (index + 0.5) * COLUMN, axes.y(weight), 2, "c4 solid")
        return
    zero = axes.error_y(0)
    canvas.text(LEFT - 8, zero, "error", "e s mu")
    canvas.line(LEFT, zero, RIGHT, zero, "axis")
    for half in (-0.5, 0.5):
        canvas.line(LEFT, axes.error_y(half * clip.scale), RIGHT, axes.error_y(half * clip.scale), "axis dash")
    for index, weight in enumerate(group["weights"]):
        x = LEFT + (index + 0.5) * COLUMN
        one = rounded(group, clip, index)
        hue = "cw solid" if one.cut else "c4 solid"
        _bar(canvas, x - 0.5, 1, axes.y(weight), axes.y(one.level), hue)
        _bar(canvas, x - 1, 2, axes.error_y(one.error), zero, hue)
        canvas.circle(x, axes.y(weight), 2, hue if one.cut or one.code else "c4 fill")


def _bar(canvas: Canvas, x: float, width: float, one: float, other: float, classes: str) -> None:
    canvas.rect(x, min(one, other), width, abs(one - other), classes)


def _chain(canvas: Canvas, group: Data, clip: Clip, index: int) -> None:
    cells = [(f"weight {index}", significant(group["weights"][index], 4), "b")]
    if clip.codes:
        one = rounded(group, clip, index)
        ratio = significant(one.weight / clip.scale) if clip.scale else "–"
        cells += [("÷ scale", ratio, ""), ("nearest code", signed(one.code), "b ink ca")]
        cells += [("× scale", significant(one.level, 4), "b"), ("error", significant(one.error), "")]
    for at, (label, value, classes) in enumerate(cells):
        x = LEFT + at * (RIGHT + 84 - LEFT) / 5
        canvas.text(x, CHAIN + 8, label, "s mu")
        canvas.text(x, CHAIN + 26, value, classes)


def _curve(canvas: Canvas, group: Data, step: int) -> None:
    low, high, ticks = _error_axis(group)
    errors = [clip[2] for clip in group["clips"]]
    best = group["best"]
    canvas.text(SIDE, MARGIN + 8, "Error by clip", "b")

    def place(at: int) -> tuple[float, float]:
        height = (
            CURVE[1] - CURVE[0] if errors[at] is None else (errors[at] - low) / (high - low) * (CURVE[1] - CURVE[0])
        )
        return SIDE + 44 + at / 100 * (WIDTH - SIDE - 52), max(CURVE[0], CURVE[1] - height)

    for tick in ticks:
        y = CURVE[1] - (tick - low) / (high - low) * (CURVE[1] - CURVE[0])
        canvas.line(place(0)[0], y, place(100)[0], y, "rule")
        canvas.text(SIDE + 38, y, percent(tick), "e s mu")
    canvas.line(place(0)[0], CURVE[1], place(100)[0], CURVE[1], "axis")
    for at in range(0, 101, 25):
        canvas.line(place(at)[0], CURVE[1], place(at)[0], CURVE[1] + 4, "axis")
        canvas.text(place(at)[0], CURVE[1] + 14, f"{at / 100:g}", "c s mu")
    shown = [at for at in range(101) if errors[at] is not None and errors[at] <= high]
    canvas.path([place(at) for at in shown], "c4")
    canvas.line(place(step)[0], place(step)[1], place(step)[0], CURVE[1], "sel dash")
    canvas.circle(*place(step), 4, "tag")
    if is_moved(group, step):
        canvas.text(WIDTH, MARGIN + 8, f"least {percent(errors[best], 1)} at {best / 100:.2f}", "e s mu")
        canvas.circle(*place(best), 5, "empty")


def _error_axis(group: Data) -> tuple[float, float, list[float]]:
    """The errors around the least one, and ticks of a round number of percents, as in int4_group_data.js."""
    found = [clip[2] for clip in group["clips"] if clip[2] is not None]
    low, high = (0.8 * min(found), min(2 * min(found), 1.0)) if min(found) else (0.0, max(found) or 1.0)
    step = next(percents for percents in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50) if 100 * (high - low) <= 4 * percents)
    ticks = range(math.ceil(100 * low / step - 1e-9), math.floor(100 * high / step + 1e-9) + 1)
    return low, high, [tick * step / 100 for tick in ticks]


def _stats(canvas: Canvas, group: Data, clip: Clip, top: float) -> None:
    rows = [("scale, fp16", f"{significant(clip.scale, 4) if clip.codes else 'inf'} · 0x{clip.bits}", "e")]
    if clip.codes:
        all_rounded = [rounded(group, clip, index) for index in range(len(clip.codes))]
        worst, zeros = all_rounded[clip.worst], clip.codes.count(0)
        rows += [
            ("error, relative rms", percent(clip.error, 1), "e b"),
            ("mean squared error", significant(clip.mse), "e"),
            ("worst", f"{clip.worst}: {significant(worst.weight)} → {significant(worst.level)}", "e"),
            ("code 0", f"{zeros} of {len(clip.codes)}, {percent(zeros / len(clip.codes))}", "e"),
            ("off by over ½ step", f"{sum(one.cut for one in all_rounded)} of {len(clip.codes)}", "e"),
        ]
    for row, (label, value, classes) in enumerate(rows):
        y = top + 22 * row
        canvas.line(SIDE, y, WIDTH, y, "rule")
        canvas.text(SIDE, y + 11, label)
        canvas.text(WIDTH, y + 11, value, classes)
