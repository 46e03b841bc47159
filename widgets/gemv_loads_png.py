"""The warp's loads as a PNG: the picture of gemv_loads.js on a wide page, drawn from the engine's trace."""

import textwrap

from lab_engine.gemv_loads import LANES, LINE_BYTES, SECTOR_BYTES, LaneLoad, Request
from widgets.figures import Canvas
from widgets.gemv_loads_text import SHOWN, Scene

MARGIN, WIDTH = 16, 868
LANE_TOP, LANE, SECTORS, TALL, SHORT, NEXT_REQUEST = 24, 28, 76, 72, 22, 50
BAR, STRIP, FORMULA, FORMULA_ROW, FORMULA_X, TOTAL, HEIGHT = 192, 236, 286, 18, 60, 338, 400
MIN_SLOTS, NUMBER_ROOM, NOTE_LETTERS = 16, 17, 130

Columns = dict[int, tuple[int, int]]
"""Left edge and width of every sector of a request, in px; a gap parts sectors that are no neighbours."""


def loads_png(scene: Scene) -> bytes:
    """Every state has the same size."""
    canvas = Canvas(WIDTH + 2 * MARGIN, HEIGHT + 2 * MARGIN)
    canvas.text(MARGIN, _y(10), scene.title(), "b")
    canvas.text(MARGIN + WIDTH, _y(10), scene.pattern_words(), "e mu")
    _lanes(canvas, scene)
    requests = scene.trace.requests
    for number, request in enumerate(requests[:SHOWN]):
        top, height = SECTORS + number * NEXT_REQUEST, SHORT if len(requests) > 1 else TALL
        _sectors(canvas, scene, request, top, height)
    _wires(canvas, scene)
    _bar(canvas, scene)
    _strip(canvas, scene)
    for row, (name, words) in enumerate(scene.formulas()):
        canvas.text(MARGIN, _y(FORMULA + row * FORMULA_ROW), name, "mu")
        canvas.text(MARGIN + FORMULA_X, _y(FORMULA + row * FORMULA_ROW), words, "m b" if row == 1 else "m")
    canvas.line(MARGIN, _y(TOTAL), MARGIN + WIDTH, _y(TOTAL))
    canvas.text(MARGIN, _y(TOTAL + 16), scene.total_words(), "b")
    for row, words in enumerate(textwrap.wrap(scene.note, NOTE_LETTERS)):
        canvas.text(MARGIN, _y(TOTAL + 34 + 16 * row), words, "mu")
    return canvas.png()


def _y(y: float) -> float:
    return MARGIN + y


def _columns(sectors: tuple[int, ...]) -> Columns:
    slots = max(MIN_SLOTS, len(sectors))
    edges = [MARGIN + round(at * WIDTH / slots) for at in range(slots + 1)]
    after = (*sectors[1:], sectors[-1] + 1)
    return {
        sector: (edges[at], edges[at + 1] - edges[at] - (0 if following == sector + 1 else 3))
        for at, (sector, following) in enumerate(zip(sectors, after, strict=True))
    }


def _stretch(columns: Columns, shift: int, load: LaneLoad) -> tuple[float, float]:
    """Left and right edge of what a lane reads."""

    def x(address: int, more: int) -> float:
        left, width = columns[address // SECTOR_BYTES]
        return left + (address % SECTOR_BYTES + more) * width / SECTOR_BYTES

    return x(load.start + shift, 0), x(load.start + shift + load.size - 1, 1)


def _hue(scene: Scene, load: LaneLoad) -> str:
    return "c3" if scene.data["bulk"] else f"c{load.lane // 8 + 1}"


def _lane_edge(lane: int) -> int:
    return MARGIN + round(lane * WIDTH / LANES)


def _lanes(canvas: Canvas, scene: Scene) -> None:
    y = _y(LANE_TOP)
    if scene.data["bulk"]:
        canvas.rect(MARGIN, y, WIDTH, LANE, "c3 fill")
        canvas.text(MARGIN + WIDTH / 2, y + LANE / 2, scene.producer_words(), "c")
        return
    for lane in range(LANES):
        left, width = _lane_edge(lane) + 1, _lane_edge(lane + 1) - _lane_edge(lane) - 2
        loads = scene.trace.lane(lane)
        canvas.rect(left, y, width, LANE, f"{_hue(scene, loads[0])} fill" if loads else "hatch")
        if not loads:
            canvas.rect(left + 4, y + 6, width - 8, LANE - 12, "paper")
        weight = " b" if lane == scene.lane else ""
        canvas.text(left + width / 2, y + LANE / 2, str(lane), f"c s{weight}" if loads else f"c s mu{weight}")
    chosen = _lane_edge(scene.lane)
    canvas.rect(chosen, y - 1, _lane_edge(scene.lane + 1) - chosen, LANE + 2, "sel")


def _wires(canvas: Canvas, scene: Scene) -> None:
    top, bottom = _y(LANE_TOP + LANE), _y(SECTORS)
    if scene.data["bulk"]:
        for x in (MARGIN + 1, MARGIN + WIDTH - 1):
            canvas.line(x, top, x, bottom, "axis")
        return
    request = scene.trace.requests[0]
    columns = _columns(request.sectors)
    for load in sorted(request.loads, key=lambda load: load.lane == scene.lane):
        from_x = (_lane_edge(load.lane) + _lane_edge(load.lane + 1)) / 2
        to_x = sum(_stretch(columns, scene.shift, load)) / 2
        canvas.path([(from_x, top), (to_x, bottom)], "ca" if load.lane == scene.lane else _hue(scene, load))


def _sectors(canvas: Canvas, scene: Scene, request: Request, top: int, height: int) -> None:
    columns, y = _columns(request.sectors), _y(top)
    for start_x, width in columns.values():
        canvas.rect(start_x, y, width, height, "hatch")
    for load in request.loads:
        left, right = _stretch(columns, scene.shift, load)
        canvas.rect(left, y, right - left, height, f"{_hue(scene, load)} fill")
        if not scene.data["bulk"] and right - left >= NUMBER_ROOM:
            canvas.text(
                (left + right) / 2, y + height / 2, str(load.lane), f"c s{' b' if load.lane == scene.lane else ''}"
            )
    for start_x, width in columns.values():
        if not scene.data["bulk"]:
            canvas.rect(start_x, y, width, height, "empty")
    for load in request.loads:
        if load.lane == scene.lane and not scene.data["bulk"]:
            left, right = _stretch(columns, scene.shift, load)
            canvas.rect(left - 1, y - 1, right - left + 2, height + 2, "sel")
    _brackets(canvas, request, columns, y + height + 4)
    said, start = scene.request_words(request)
    canvas.text(MARGIN, y + height + 18, said, "s mu")
    canvas.text(MARGIN + WIDTH, y + height + 18, start, "e s mu")


def _brackets(canvas: Canvas, request: Request, columns: Columns, y: float) -> None:
    """One under the sectors of each 128-byte line."""
    for line in request.lines:
        mine = [columns[sector] for sector in request.sectors if sector * SECTOR_BYTES // LINE_BYTES == line]
        left, right = mine[0][0] + 1.5, sum(mine[-1]) - 1.5
        canvas.line(left, y + 4, right, y + 4, "axis")
        for x in (left, right):
            canvas.line(x, y, x, y + 4, "axis")


def _bar(canvas: Canvas, scene: Scene) -> None:
    trace = scene.trace
    canvas.text(MARGIN, _y(BAR), scene.bar_words(), "b")
    canvas.text(MARGIN + WIDTH, _y(BAR), f"{scene.used} used", "e b big")
    canvas.rect(MARGIN, _y(BAR + 12), WIDTH, 12, "hatch")
    canvas.rect(MARGIN, _y(BAR + 12), round(WIDTH * trace.efficiency), 12, "ca fill")


def _strip(canvas: Canvas, scene: Scene) -> None:
    row_bytes, y = scene.k // 2, _y(STRIP + 12)
    start, stop = (round(byte * WIDTH / row_bytes) for byte in scene.in_row())
    name, part = scene.row_words()
    canvas.text(MARGIN, _y(STRIP), name)
    canvas.text(MARGIN + WIDTH, _y(STRIP), part, "e mu")
    canvas.rect(MARGIN, y, start, 14, "c4 tint")
    canvas.rect(MARGIN, y, WIDTH, 14, "empty")
    canvas.rect(MARGIN + min(start, WIDTH - 2), y, max(2, stop - start), 14, "ca fill")
    stride = scene.data["stride"]
    for byte in range(stride, row_bytes, stride) if scene.trace.iterations <= 40 else ():
        x = MARGIN + round(byte * WIDTH / row_bytes)
        canvas.line(x, y + 14, x, y + 19, "axis")
