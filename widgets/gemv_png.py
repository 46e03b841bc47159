"""The roofline's PNG: the picture of gemv.js on a wide page, drawn by matplotlib from the engine's numbers."""

import math

from lab_engine.gemv import ACTIVATION_BYTES, BITS, GROUPS, GemvTime
from widgets.figures import Canvas, text_width
from widgets.gemv_roof_png import BOTTOM, MARGIN, RIGHT, draw_roof
from widgets.gemv_text import PARTS, byte_rows, longest_part, micros, off_words
from widgets.gemv_view import EDGES, STAGES, Rung, Scene
from widgets.words import significant

WIDTH, SIDE, LADDER, ROW = 868, RIGHT + 32, BOTTOM + 78, 20
END = MARGIN + WIDTH
HUES = {"memory": "c1", "instructions": "c3", "arithmetic": "c2", "edge": "c4"}


def roofline_png(scene: Scene) -> bytes:
    """Roof, points, choices, time and bytes; below them the ladder, in two columns."""
    rows = math.ceil(len(scene.rungs) / 2)
    canvas = Canvas(WIDTH + 2 * MARGIN, LADDER + 24 + rows * ROW + MARGIN)
    draw_roof(canvas, scene)
    _choices(canvas, scene)
    _times(canvas, scene)
    _bytes(canvas, scene)
    _ladder(canvas, scene, rows)
    return canvas.png()


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
    time, y = scene.told, MARGIN + 124
    canvas.text(SIDE, y + 8, "Time by the model", "b")
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
    heads = ("instr.", "model, µs", "H200, µs", "off")
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
    return [right - 176, right - 112, right - 48, right]


def _ladder_values(scene: Scene, rung: Rung) -> list[str]:
    slots = significant(rung.slots, 2)
    if not scene.on_ladder:
        return [slots, "–", "–", "–"]
    recorded, model = scene.recorded(rung), scene.time(rung.slots).seconds
    found = [micros(recorded), off_words(model, recorded)] if recorded else ["–", "–"]
    return [slots, micros(model), *found]
