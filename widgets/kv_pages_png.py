"""The pages' PNG: the parts of kv_pages.js on a wide page, drawn by matplotlib from the engine's frame."""

from lab_engine.kv_pages import PAGE_SLOTS
from lab_engine.kv_trace import Frame, Holder
from widgets.figures import Canvas, text_width
from widgets.kv_pages_text import counters, event_words, no_place_words
from widgets.kv_pages_view import ROWS, SLOT_BYTES, Place, Scene, holders, valid_slots

MARGIN = 16
WIDTH = 868
CELL, ROW, CELLS = 20, 24, MARGIN + 68
TOP = MARGIN + 32
POOL, PITCH, PAGE_WIDTH, PAGE_HEIGHT = MARGIN + 412, 57.5, 54, 102
BAR, TWO_ROWS = 14, 32
COUNTERS = TOP + 44 + len(ROWS) * ROW + 16
LENS = COUNTERS + 60


def hue(name: str) -> str:
    """The hue of an owner; from the fourth on the letter alone tells."""
    return {"A": "c1", "B": "c2", "C": "c3"}.get(name, "c4")


def kv_png(scene: Scene) -> bytes:
    """What the last action did, page tables, pool, counters, the slots of the chosen page."""
    canvas = Canvas(WIDTH + 2 * MARGIN, LENS + 96 + MARGIN)
    action, effect = event_words(scene.frame)
    refused = " ink cw" if scene.frame.error else ""
    canvas.text(MARGIN, MARGIN + 10, action, f"b{refused}")
    canvas.text(MARGIN + 20 + text_width(action), MARGIN + 10, effect, refused)
    _tables(canvas, scene)
    _pool(canvas, scene)
    _counters(canvas, scene.frame)
    if scene.one and scene.place:
        _lens(canvas, scene, scene.one, scene.place)
    else:
        canvas.rect(MARGIN, LENS + 20, WIDTH, 40, "empty")
        words = f"{scene.name}: {no_place_words(scene)}" if scene.name else "no sequence is chosen"
        canvas.text(MARGIN, LENS + 8, "Chosen page", "b")
        canvas.text(MARGIN + WIDTH / 2, LENS + 40, words, "c mu")
    return canvas.png()


def _slot_bar(canvas: Canvas, x: float, y: float, slot: float, height: float, valid: int, owner: str) -> None:
    canvas.rect(x, y, slot * valid, height, f"{hue(owner)} solid")
    if valid < PAGE_SLOTS:
        canvas.rect(x + slot * valid, y, slot * (PAGE_SLOTS - valid), height, "hatch")


def _tables(canvas: Canvas, scene: Scene) -> None:
    canvas.text(MARGIN, TOP + 8, "Page tables", "b")
    canvas.text(CELLS + 16 * CELL, TOP + 8, "page id in each cell, filled slots below it", "e s mu")
    canvas.text(CELLS - 8, TOP + 32, "tokens", "e s mu")
    for page in range(16):
        canvas.text(CELLS + (page + 0.5) * CELL, TOP + 32, str(page), "c s mu")
    for row, name in enumerate(ROWS):
        y = TOP + 42 + row * ROW
        one = next((one for one in scene.frame.sequences if one.name == name), None)
        if one:
            _table_row(canvas, scene, one, y)
        else:
            canvas.text(MARGIN + 10, y + 12, name, "c s mu")
            if name in scene.frame.freed:
                canvas.text(CELLS, y + 12, "freed", "s mu")
        if name == scene.name:
            canvas.rect(MARGIN, y + 2, 20, 20, "sel")


def _table_row(canvas: Canvas, scene: Scene, one: Holder, y: float) -> None:
    canvas.rect(MARGIN, y + 2, 20, 20, f"{hue(one.name)} fill")
    canvas.text(MARGIN + 10, y + 12, one.name, f"c b ink {hue(one.name)}")
    canvas.text(CELLS - 8, y + 12, str(one.length), "e b" if one.name == scene.name else "e")
    for page, page_id in enumerate(one.page_table):
        x = CELLS + page * CELL
        chosen = scene.place and scene.place.page_id == page_id
        canvas.rect(x, y + 2, CELL - 1, 20, "empty")
        canvas.text(x + (CELL - 1) / 2, y + 9, str(page_id), "c s m")
        _slot_bar(canvas, x + 1, y + 17, (CELL - 3) / PAGE_SLOTS, 4, valid_slots(one, page), one.name)
        if chosen:
            canvas.rect(x, y + 2, CELL - 1, 20, "sel")


def _pool(canvas: Canvas, scene: Scene) -> None:
    counts = scene.frame.ref_counts
    canvas.text(POOL, TOP + 8, f"Pool: {len(counts)} page ids", "b")
    canvas.text(MARGIN + WIDTH, TOP + 8, "×2: held twice", "e s mu")
    for page_id, count in enumerate(counts):
        x, y = POOL + page_id % 8 * PITCH, TOP + 24 + page_id // 8 * (PAGE_HEIGHT + 8)
        (_used_page if count else _free_page)(canvas, scene, page_id, x, y)


def _free_page(canvas: Canvas, scene: Scene, page_id: int, x: float, y: float) -> None:
    frame = scene.frame
    canvas.rect(x, y, PAGE_WIDTH, PAGE_HEIGHT, "empty")
    canvas.text(x + 5, y + 11, str(page_id), "m mu")
    words = ["free", *(["next"] if frame.free_ids[0] == page_id else [])]
    for at, word in enumerate([*words, *(["returned"] if page_id in frame.returned else [])]):
        canvas.text(x + PAGE_WIDTH / 2, y + 36 + 16 * at, word, "c s" if word == "returned" else "c s mu")


def _used_page(canvas: Canvas, scene: Scene, page_id: int, x: float, y: float) -> None:
    held = holders(scene.frame, page_id)
    middle, slot, bar = x + PAGE_WIDTH / 2, (PAGE_WIDTH - 6) / PAGE_SLOTS, y + PAGE_HEIGHT - BAR - 4
    _owners(canvas, [one.name for one in held], x, y)
    canvas.text(x + 5, y + 11, str(page_id), "m b")
    if len(held) > 1:
        canvas.text(x + PAGE_WIDTH - 5, y + 11, f"×{len(held)}", "e b")
    canvas.text(middle, y + 54, f"page {held[0].page}", "c s")
    canvas.text(middle, y + 70, _change(scene.frame, page_id), "c s b")
    for at, one in enumerate(held):
        _slot_bar(canvas, x + 3, bar + at * BAR / len(held), slot, BAR / len(held), one.valid, one.name)
    if scene.place and scene.place.page_id == page_id:
        canvas.rect(x, y, PAGE_WIDTH, PAGE_HEIGHT, "sel")
        canvas.rect(x + 3 + scene.place.slot * slot, bar - 3, slot, BAR + 6, "tag")


def _owners(canvas: Canvas, names: list[str], x: float, y: float) -> None:
    """The page in its holder's hue; a shared one parted among its holders, at most four side by side."""
    if len(names) == 1:
        canvas.rect(x, y, PAGE_WIDTH, PAGE_HEIGHT, f"{hue(names[0])} fill")
        canvas.text(x + PAGE_WIDTH / 2, y + 32, names[0], f"c b ink {hue(names[0])}")
        return
    rows = [names[:4], *([names[4:]] if len(names) > 4 else [])]
    ends = [0, TWO_ROWS, PAGE_HEIGHT] if len(rows) > 1 else [0, PAGE_HEIGHT]
    for down, row in enumerate(rows):
        width = PAGE_WIDTH / len(row)
        for at, name in enumerate(row):
            canvas.rect(x + at * width, y + ends[down], width, ends[down + 1] - ends[down], f"{hue(name)} tint")
            top = (25 if len(rows) > 1 else 32) + 14 * down
            canvas.text(x + (at + 0.5) * width, y + top, name, f"c b ink {hue(name)}")
    canvas.rect(x, y, PAGE_WIDTH, PAGE_HEIGHT, "empty")


def _change(frame: Frame, page_id: int) -> str:
    if any(page_id == copy for _, copy in frame.copied):
        return "copied"
    return "taken" if page_id in frame.taken else ""


def _counters(canvas: Canvas, frame: Frame) -> None:
    canvas.line(MARGIN, COUNTERS, MARGIN + WIDTH, COUNTERS, "rule")
    for share, (label, value, note) in zip((0, 0.22, 0.42, 0.66), counters(frame), strict=True):
        x = MARGIN + share * WIDTH
        canvas.text(x, COUNTERS + 12, label, "s mu")
        canvas.text(x, COUNTERS + 28, value, "b")
        canvas.text(x, COUNTERS + 43, note, "s mu")


def _lens(canvas: Canvas, scene: Scene, one: Holder, place: Place) -> None:
    names = ", ".join(holder.name for holder in holders(scene.frame, place.page_id))
    where = "K of layer 0, KV head 0 of the shipped model: 16 slots of 256 bytes"
    own, wide, y = valid_slots(one, place.page), WIDTH / PAGE_SLOTS, LENS + 20
    canvas.text(MARGIN, LENS + 8, f"Page id {place.page_id}: page {place.page} of {names}", "b")
    canvas.text(MARGIN + WIDTH, LENS + 8, where, "e s mu")
    for slot in range(PAGE_SLOTS):
        x = MARGIN + slot * wide
        canvas.rect(x, y, wide, 36, f"{hue(one.name)} fill" if slot < own else "hatch")
        canvas.text(x + wide / 2, y + 46, str(slot), "c s mu")
        if slot < own:
            canvas.text(x + wide / 2, y + 18, str(place.page * PAGE_SLOTS + slot), "c b")
    if own < PAGE_SLOTS - 1:
        words, middle = f"{PAGE_SLOTS - own} without a token", MARGIN + (own + PAGE_SLOTS) / 2 * wide
        canvas.rect(middle - text_width(words, "s") / 2 - 4, y + 9, text_width(words, "s") + 8, 18, "paper")
        canvas.text(middle, y + 18, words, "c s")
    left = MARGIN + place.slot * wide
    canvas.rect(left, y, wide, 36, "sel")
    tag = f"bytes {place.first_byte}–{place.first_byte + SLOT_BYTES - 1}"
    sum_words = f"= id {place.page_id} × {PAGE_SLOTS * SLOT_BYTES} + slot {place.slot} × {SLOT_BYTES}"
    at = max(MARGIN, min(MARGIN + WIDTH - 132, left + wide / 2 - 66))
    canvas.rect(at, y + 56, 132, 20, "tag")
    canvas.text(at + 66, y + 66, tag, "c s b ontag")
    beside_left = at + 140 + text_width(sum_words) > MARGIN + WIDTH
    canvas.text(at - 8 if beside_left else at + 140, y + 66, sum_words, "e" if beside_left else "")
