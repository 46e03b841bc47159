"""The tour's PNG: the four panels of tour.js on a wide page, drawn by matplotlib from the same data."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lab_engine.kv_pages import PAGE_SLOTS
from widgets.figures import Canvas
from widgets.tour_data import shares, step_bytes
from widgets.words import byte_count, percent

Data = Mapping[str, Any]
Step = Mapping[str, Any]

LEFT, GAP, RIGHT, MARGIN = 300, 24, 544, 16
STAGES_HEIGHT, PAGES_HEIGHT = 212, 176
LETTER = 7.23  # px of a 12 px DejaVu Sans Mono letter
HUE = {"attention": "c3", "embed": "c4"}


@dataclass(frozen=True)
class _Panel:
    """A canvas with its origin moved to a panel's corner."""

    canvas: Canvas
    x: float
    y: float
    width: float

    def rect(self, x: float, y: float, width: float, height: float, classes: str) -> None:
        self.canvas.rect(self.x + x, self.y + y, width, height, classes)

    def line(self, x1: float, y1: float, x2: float, y2: float, classes: str = "rule") -> None:
        self.canvas.line(self.x + x1, self.y + y1, self.x + x2, self.y + y2, classes)

    def text(self, x: float, y: float, string: str, classes: str = "") -> None:
        self.canvas.text(self.x + x, self.y + y, string, classes)

    def heading(self, number: int, title: str, note: str, here: bool) -> None:
        self.canvas.circle(self.x + 8, self.y + 8, 8, "tag" if here else "empty")
        self.text(8, 8, str(number), "c s b ontag" if here else "c s b")
        self.text(24, 8, title, "b")
        self.text(self.width, 8, note, "e s mu")


def tour_png(data: Data, at: int, look: str = "") -> bytes:
    """One pass; `look` names the panel whose number is filled."""
    step = data["steps"][at]
    pieces = text_pieces([token["text"] for token in data["tokens"]], int(LEFT / LETTER))
    top = MARGIN + max(32 + 16 * (1 + pieces[-1][1]), STAGES_HEIGHT) + GAP
    canvas = Canvas(LEFT + GAP + RIGHT + 2 * MARGIN, top + PAGES_HEIGHT + MARGIN)
    right = MARGIN + LEFT + GAP
    _text(_Panel(canvas, MARGIN, MARGIN, LEFT), data, step, pieces, look == "text")
    _stages(_Panel(canvas, right, MARGIN, RIGHT), data, step, look == "stages")
    _next(_Panel(canvas, MARGIN, top, LEFT), step, look == "next")
    _pages(_Panel(canvas, right, top, RIGHT), data, step, look == "pages")
    return canvas.png()


def text_pieces(texts: list[str], columns: int) -> list[tuple[int, int, int, str]]:
    """(token, row, column, string) of every piece on a grid of `columns` letters; ↵ ends a row, as in tour.js."""
    pieces: list[tuple[int, int, int, str]] = []
    row = column = 0
    for token, string in enumerate(texts):
        fresh = True
        for letter in string:
            if column == columns:
                row, column, fresh = row + 1, 0, True
            shown = "↵" if letter == "\n" else letter if letter.isprintable() else " "
            if fresh:
                pieces.append((token, row, column, shown))
            else:
                pieces[-1] = (*pieces[-1][:3], pieces[-1][3] + shown)
            row, column, fresh = (row + 1, 0, True) if letter == "\n" else (row, column + 1, False)
    return pieces


def _text(panel: _Panel, data: Data, step: Step, pieces: list[tuple[int, int, int, str]], here: bool) -> None:
    newest = step["start"] + step["fed"]
    panel.heading(1, "Text", f"{newest} tokens in the cache", here)
    for token, row, column, string in pieces:
        x, y, run = column * LETTER, 32 + 16 * row, len(string) * LETTER
        if token > newest:
            return
        if token == newest:
            panel.rect(x, y, run, 16, "tag")
        elif token >= step["start"]:
            panel.line(x, y + 15, x + run, y + 15, "sel")
        if token == newest:
            panel.text(x, y + 8, string, "m ontag")
        else:
            panel.text(x, y + 8, string.replace("↵", ""), "m mu" if token < data["promptTokens"] else "m")


def _stages(panel: _Panel, data: Data, step: Step, here: bool) -> None:
    read = step_bytes(dict(step))
    total = sum(read.values())
    panel.heading(2, "Bytes read, stage by stage", f"{byte_count(total)} in this pass", here)
    x = 0.0
    for stage, layer, count in step["stages"]:
        width = panel.width * count / total
        panel.rect(x, 42, width, 18, f"{HUE.get(stage, 'c1')} fill")
        if stage in {"qkv", "lm_head"}:
            panel.line(x, 38, x, 60, "axis")
            panel.text(x + 4, 32, stage if layer is None else f"layer {layer}", "s mu")
        x += width
    _stage_table(panel, data, read)


def _stage_table(panel: _Panel, data: Data, read: dict[str, int]) -> None:
    bar_x, bar_end, bytes_x, share_x = 84, panel.width - 172, panel.width - 104, panel.width - 56
    scale = (bar_end - bar_x) / data["largestShare"]
    panel.text(bar_x, 76, "share of the bytes; line: in the 7B", "s mu")
    for x, word in ((bytes_x, "bytes"), (share_x, "here"), (panel.width, "7B")):
        panel.text(x, 76, word, "e s mu")
    for row, (stage, share) in enumerate(shares(read).items()):
        y, other = 86 + 18 * row, data["reference"][stage]
        panel.line(0, y, panel.width, y)
        panel.text(0, y + 9, stage)
        panel.rect(bar_x, y + 4, max(1, share * scale), 10, f"{HUE.get(stage, 'c1')} fill")
        panel.line(bar_x + other * scale, y + 2, bar_x + other * scale, y + 16, "strong")
        panel.text(bytes_x, y + 9, byte_count(read[stage]), "e")
        panel.text(share_x, y + 9, percent(share), "e b")
        panel.text(panel.width, y + 9, percent(other), "e mu")


def _pages(panel: _Panel, data: Data, step: Step, here: bool) -> None:
    free = data["numPages"] - len(step["pageTable"])
    note = f"{free} of {data['numPages']} page ids free"
    panel.heading(3, "KV pages: what is read and where it is written", note, here)
    width = (panel.width - 8 * (data["pages"] - 1)) / data["pages"]
    slot = width / PAGE_SLOTS
    tokens = step["start"] + step["fed"]
    for page, page_id in enumerate(step["pageTable"]):
        x = page * (width + 8)
        attention = step["attention"][page * PAGE_SLOTS : (page + 1) * PAGE_SLOTS]
        panel.text(x + width / 2, 30, f"page {page} → id {page_id}", "c b" if page == step["page"] else "c")
        panel.line(x, 40, x + width, 40, "sel" if page == step["page"] else "axis")
        for at in range(PAGE_SLOTS):
            panel.rect(x + at * slot, 92, slot, 20, "c1 fill" if page * PAGE_SLOTS + at < tokens else "hatch")
        if page_id in step["taken"] and width - tokens % PAGE_SLOTS * slot > 84:
            panel.rect(x + width - 82, 92, 80, 20, "tag")
            panel.text(x + width - 42, 102, "taken now", "c s b ontag")
        for at, share in enumerate(attention):
            high = 48 * share / max(step["attention"])
            panel.rect(x + at * slot + 1, 92 - high, slot - 2, high, "c3 solid")
        panel.text(x + width, 52, f"attention {percent(sum(attention))}", "e s ink c3")
    _written(panel, step, width, slot)


def _written(panel: _Panel, step: Step, width: float, slot: float) -> None:
    x = step["page"] * (width + 8) + step["firstSlot"] * slot
    last = step["page"] * (width + 8) + step["slot"] * slot
    panel.rect(x, 92, last + slot - x, 20, "sel")
    panel.text(last + slot / 2, 122, str(step["slot"]), "c s b ink ca")
    tag_width = 142.0
    left = max(0.0, min(panel.width - tag_width, last + slot / 2 - tag_width / 2))
    panel.rect(left, 136, tag_width, 20, "tag")
    panel.text(left + tag_width / 2, 146, step["bytes"], "c s b ontag")
    strongest = step["strongest"]
    panel.text(0, 168, f"tallest bar: token {strongest}, {percent(step['attention'][strongest])}", "s mu")
    panel.text(panel.width, 168, step["address"], "e s mu")


def _next(panel: _Panel, step: Step, here: bool) -> None:
    panel.heading(4, "Next token", f"margin {step['margin']:.2f}", here)
    for row, one in enumerate(step["top"]):
        y, bold = 28 + 22 * row, " b" if one["chosen"] else ""
        panel.text(0, y + 11, one["label"][:15], f"m{bold} ink ca" if bold else "m")
        panel.rect(124, y + 4, max(1, one["share"] * (panel.width - 168)), 14, "tag" if bold else "c4 fill")
        panel.text(panel.width, y + 11, percent(one["share"]), f"e{bold}")
    panel.line(124, 28, 124, 138, "axis")
    panel.text(0, 148, "margin: best logit less the second best", "s mu")
