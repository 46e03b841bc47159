"""The tour's PNG: the four panels of tour.js on a wide page, drawn by matplotlib from the same data."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lab_engine.kv_pages import PAGE_SLOTS
from widgets.figures import Canvas
from widgets.token_text import LETTER, text_columns, text_pieces
from widgets.tour_data import shares, step_bytes
from widgets.words import byte_count, percent

Data = Mapping[str, Any]
Step = Mapping[str, Any]

LEFT, GAP, RIGHT, MARGIN = 300, 24, 544, 16
STAGES_HEIGHT, PAGES_HEIGHT = 212, 188
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
    pieces = text_pieces([token["text"] for token in data["tokens"]], text_columns(LEFT))
    top = MARGIN + max(32 + 16 * (1 + pieces[-1][1]), STAGES_HEIGHT) + GAP
    canvas = Canvas(LEFT + GAP + RIGHT + 2 * MARGIN, top + PAGES_HEIGHT + MARGIN)
    right = MARGIN + LEFT + GAP
    _text(_Panel(canvas, MARGIN, MARGIN, LEFT), data, step, pieces, look == "text")
    _stages(_Panel(canvas, right, MARGIN, RIGHT), data, step, look == "stages")
    _next(_Panel(canvas, MARGIN, top, LEFT), step, look == "next")
    _pages(_Panel(canvas, right, top, RIGHT), data, step, look == "pages")
    return canvas.png()


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


SLOTS_Y, SLOT_HEIGHT, BARS_HEIGHT = 104, 20, 44


def _pages(panel: _Panel, data: Data, step: Step, here: bool) -> None:
    note = f"{data['numPages'] - len(step['pageTable'])} of {data['numPages']} page ids free"
    panel.heading(3, "KV pages: what is read and where it is written", note, here)
    width = (panel.width - 8 * (data["pages"] - 1)) / data["pages"]
    for page in range(data["pages"]):
        x = page * (width + 8)
        if page < len(step["pageTable"]):
            _page(panel, step, page, x, width / PAGE_SLOTS)
        else:
            panel.text(x + width / 2, 30, f"page {page}: not taken yet", "c s mu")
            panel.line(x, 40, x + width, 40, "axis dash")
            panel.rect(x, SLOTS_Y, width, SLOT_HEIGHT, "empty dash")
    _written(panel, step, width, width / PAGE_SLOTS)


def _page(panel: _Panel, step: Step, page: int, x: float, slot: float) -> None:
    end, page_id, here = x + PAGE_SLOTS * slot, step["pageTable"][page], page == step["page"]
    free = max(0, (page + 1) * PAGE_SLOTS - step["start"] - step["fed"])
    attention = step["attention"][page * PAGE_SLOTS : (page + 1) * PAGE_SLOTS]
    panel.text((x + end) / 2, 30, f"page {page} → id {page_id}", "c b" if here else "c")
    panel.line(x, 40, end, 40, "sel" if here else "axis")
    panel.text((x + end) / 2, 51, f"attention {percent(sum(attention))}", "c s ink c3")
    for at in range(PAGE_SLOTS):
        panel.rect(x + at * slot, SLOTS_Y, slot, SLOT_HEIGHT, "c1 fill" if at < PAGE_SLOTS - free else "hatch")
    for at, share in enumerate(attention):
        high = BARS_HEIGHT * share / max(step["attention"])
        panel.rect(x + at * slot + 1, SLOTS_Y - high, slot - 2, high, "c3 solid")
    if page_id in step["taken"]:
        _taken_tag(panel, end, free * slot)


def _taken_tag(panel: _Panel, end: float, free: float) -> None:
    for word, width in (("taken now", 80), ("taken", 52)):
        if width + 4 < free:
            panel.rect(end - width - 2, SLOTS_Y, width, SLOT_HEIGHT, "tag")
            panel.text(end - 2 - width / 2, SLOTS_Y + SLOT_HEIGHT / 2, word, "c s b ontag")
            return


def _written(panel: _Panel, step: Step, width: float, slot: float) -> None:
    first, last = (step["page"] * (width + 8) + step[name] * slot for name in ("firstSlot", "slot"))
    panel.rect(first, SLOTS_Y, last + slot - first, SLOT_HEIGHT, "sel")
    panel.text(last + slot / 2, 134, str(step["slot"]), "c s b ink ca")
    tag_width = 142.0
    left = max(0.0, min(panel.width - tag_width, last + slot / 2 - tag_width / 2))
    panel.rect(left, 148, tag_width, 20, "tag")
    panel.text(left + tag_width / 2, 158, step["bytes"], "c s b ontag")
    strongest = step["strongest"]
    panel.text(0, 180, f"tallest bar: token {strongest}, {percent(step['attention'][strongest])}", "s mu")
    panel.text(panel.width, 180, step["address"], "e s mu")


def _next(panel: _Panel, step: Step, here: bool) -> None:
    panel.heading(4, "Next token", f"margin {step['margin']:.2f}", here)
    for row, one in enumerate(step["top"]):
        y, bold = 28 + 22 * row, " b" if one["chosen"] else ""
        panel.text(0, y + 11, one["label"][:15], f"m{bold} ink ca" if bold else "m")
        panel.rect(124, y + 4, max(1, one["share"] * (panel.width - 168)), 14, "tag" if bold else "c4 fill")
        panel.text(panel.width, y + 11, percent(one["share"]), f"e{bold}")
    panel.line(124, 28, 124, 138, "axis")
    panel.text(0, 148, "margin: best logit less the second best", "s mu")
