"""The bug desk's PNG: the parts of decoder.js on a wide page, drawn by matplotlib from the same data."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from lab_engine.kv_pages import PAGE_SLOTS
from widgets.figures import Canvas
from widgets.token_text import LETTER, text_pieces

Data = Mapping[str, Any]

COLUMN, GAP, MARGIN = 420, 24, 16
WIDTH = 2 * COLUMN + GAP
ROW, FIRST_ROW, MOST_ROWS = 16, 32, 14
CHART_LEFT, CHART_TOP, CHART_HEIGHT = 48, 28, 96
COLUMNS = int(COLUMN / LETTER)


def desk_png(data: Data, case: Data, step: int) -> bytes:
    """The texts; from step 1 on the chart, from step 2 on the cause. The height is that of the whole."""
    rows = _rows(data)
    chart = MARGIN + FIRST_ROW + rows * ROW + 16
    cause = chart + CHART_TOP + CHART_HEIGHT + 44
    canvas = Canvas(WIDTH + 2 * MARGIN, cause + 24 + MARGIN)
    departs = "the right text" if case["departs"] is None else f"departs at new token {case['departs']}"
    _text(canvas, MARGIN, data, "Right", data["right"], None, rows)
    _text(canvas, MARGIN + COLUMN + GAP, data, f"Broken: {departs}", case["texts"], case["departs"], rows)
    _scale(canvas, chart, data, len(case["differences"]))
    if step > 0:
        _bars(canvas, chart, data, case["differences"])
    if step > 1:
        canvas.text(MARGIN, cause + 8, f"Cause (lab {case['lab']}): {case['cause']}", "b")
    return canvas.png()


def _rows(data: Data) -> int:
    texts = [data["right"], *(case["texts"] for case in data["cases"].values())]
    return min(MOST_ROWS, max(1 + text_pieces([*data["prompt"], *one], COLUMNS)[-1][1] for one in texts))


def _text(
    canvas: Canvas, x: float, data: Data, title: str, texts: Sequence[str], departs: int | None, rows: int
) -> None:
    canvas.text(x, MARGIN + 8, title, "b")
    canvas.line(x, MARGIN + 20, x + COLUMN, MARGIN + 20, "axis")
    prompt = len(data["prompt"])
    first = prompt + len(texts) if departs is None else prompt + departs
    for token, row, column, string in text_pieces([*data["prompt"], *texts], COLUMNS):
        if row >= rows:
            return
        left, y = x + column * LETTER, MARGIN + FIRST_ROW + row * ROW
        if token == first:
            canvas.rect(left, y, len(string) * LETTER, ROW, "cw fill")
        shown = string if token == first else string.replace("↵", "")
        ink = "ink cw" if token >= first else "mu" if token < prompt else ""
        canvas.text(left, y + ROW / 2, shown, f"m {ink}")


def _scale(canvas: Canvas, y: float, data: Data, lengths: int) -> None:
    left, bottom, right = MARGIN + CHART_LEFT, y + CHART_TOP + CHART_HEIGHT, MARGIN + WIDTH
    canvas.text(MARGIN, y + 8, "Largest error of a logit, with the right text in the cache", "b")
    canvas.text(left - 8, bottom + 14, "tokens", "e s mu")
    for decade in range(data["decades"] + 1):
        height = bottom - CHART_HEIGHT * decade / data["decades"]
        canvas.line(left, height, right, height, "rule" if decade else "axis")
        canvas.text(left - 8, height, f"{data['floor'] * 10**decade:g}", "e s mu")
    step = (right - left) / lengths
    for at in range(lengths):
        length, middle = data["promptTokens"] + at, left + (at + 0.5) * step
        if length % PAGE_SLOTS == 0:
            canvas.line(middle, bottom, middle, bottom + 6, "axis")
            canvas.text(middle, bottom + 14, str(length), "c s b")


def _bars(canvas: Canvas, y: float, data: Data, differences: Sequence[float]) -> None:
    left, bottom = MARGIN + CHART_LEFT, y + CHART_TOP + CHART_HEIGHT
    step = (MARGIN + WIDTH - left) / len(differences)
    for at, value in enumerate(differences):
        wrong = value > data["floor"]
        high = CHART_HEIGHT * math.log10(value / data["floor"]) / data["decades"] if wrong else 3
        canvas.rect(left + at * step + 1, bottom - high, step - 2, high, "cw fill" if wrong else "c2 solid")
