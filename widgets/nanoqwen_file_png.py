"""The file map's PNG, drawn by matplotlib from the same bytes: what static/nanoqwen_file.js shows on a wide page."""

import re
from collections.abc import Iterator, Sequence

from lab_engine.file_map import GROUP_BYTES, PAGE, Region, group_region, scale_region
from widgets.nanoqwen_file_text import path_words
from widgets.nanoqwen_file_view import DUMP, LEVELS, FileView, Place, dump_start, stretch_of
from widgets.nanoqwen_file_words import caption, grouped_span, label, meaning
from widgets.nanoqwen_levels_png import (
    BAR_HIGH,
    BAR_Y,
    HIGH,
    LINE,
    STRETCH_Y,
    TEXTS_Y,
    WIDTH,
    Picture,
    draw_level,
    fill,
    text_width,
)
from widgets.token_text import LETTER

KINDS = {"INT4": "nibbles", "F16": "scales", "F32": "norms, biases", "JSON": "text", "padding": "padding"}


def file_png(view: FileView, place: Place) -> bytes:
    """The level's picture between the path and the bytes with their meaning; all levels have one size."""
    picture = Picture(view, place)
    _path(picture)
    _bars(picture)
    draw_level(picture)
    _hex(picture)
    _meaning(picture)
    return picture.canvas.png()


def _path(picture: Picture) -> None:
    names, at, x = path_words(picture.view, picture.place), LEVELS.index(picture.place.level), 0.0
    for number, name in enumerate(names):
        classes = "b" if number == at else "mu" if number > at else ""
        wide = text_width(name, classes)
        picture.text(x, 10, name, classes)
        if number == at:
            picture.line(x, 20, x + wide, 20, "sel")
        if number + 1 < len(names):
            picture.text(x + wide + 8, 10, "›", "mu")
        x += wide + 22


# The two bars ---------------------------------------------------------------------------------------------------------


def _bars(picture: Picture) -> None:
    view, scale = picture.view, WIDTH / picture.view.file.size
    stretch = stretch_of(view, picture.place)
    for group in view.groups():
        picture.rect(group.offset * scale, BAR_Y, max(1, group.length * scale), BAR_HIGH, fill(group.kind))
    _group_labels(picture, scale)
    picture.line(stretch.offset * scale, BAR_Y + BAR_HIGH + 2, 0, STRETCH_Y, "axis")
    picture.line(stretch.stop * scale, BAR_Y + BAR_HIGH + 2, WIDTH, STRETCH_Y, "axis")
    if picture.deep:
        own = scale_region(view.scales(picture.place.section), picture.place.row, picture.place.group)
        picture.rect(own.offset * scale - 1, BAR_Y - 2, 3, BAR_HIGH + 4, "c2 solid")
        further = f"its scale: {own.offset - picture.chosen.offset:,} bytes further on, page {own.pages[0]:,}"
        picture.text(WIDTH, 97, further, "e s ink c2")
    if picture.place.level == "file":
        _key(picture)
    marked = stretch if picture.place.level == "file" else picture.chosen
    wide = max(3, marked.length * scale)
    picture.rect(min(marked.offset * scale, WIDTH - wide), BAR_Y - 2, wide, BAR_HIGH + 4, "sel")
    _stretch(picture, stretch)
    picture.text(0, 97, caption(view, picture.place), "s mu")


def _group_labels(picture: Picture, scale: float) -> None:
    """The chosen group's name in any case, another where it fits over its stretch and touches none."""
    offset, groups = picture.view.whole(picture.place.section).offset, picture.view.groups()
    own = next(group for group in groups if offset < group.stop)

    def place(group: Region, classes: str) -> tuple[float, float]:
        wide = text_width(group.name, classes)
        left = max(0, min(WIDTH - wide, (group.offset + group.length / 2) * scale - wide / 2))
        return left, left + wide

    first, last = place(own, "b")
    picture.text(first, 30, own.name, "s b")
    for group in groups:
        left, right = place(group, "")
        if group != own and group.length * scale > right - left and (right + 6 < first or left - 6 > last):
            picture.text(left, 30, group.name, "s mu")


def _key(picture: Picture) -> None:
    """What the hues of the bars and of the pages mean."""
    x = float(WIDTH)
    for kind, words in reversed(KINDS.items()):
        x -= text_width(words)
        picture.text(x, 97, words, "s mu")
        picture.rect(x - 14, 92, 10, 10, fill(kind))
        x -= 26


def _stretch(picture: Picture, stretch: Region) -> None:
    scale, place = WIDTH / stretch.length, picture.place
    for part, name in _parts(picture, stretch):
        x, wide = (part.offset - stretch.offset) * scale, part.length * scale
        picture.rect(x, STRETCH_Y, wide, HIGH, fill(part.kind))
        short = next((one for one in (name, name.removesuffix(".weight")) if len(one) * 7 + 8 <= wide), "")
        picture.text(x + wide / 2, STRETCH_Y + HIGH / 2, short, "c s")
    if picture.deep or (place.level == "section" and PAGE * scale >= 5):
        for border in range((stretch.offset // PAGE + 1) * PAGE, stretch.stop, PAGE):
            x, over = (border - stretch.offset) * scale, 4 if picture.deep else 0
            picture.line(x, STRETCH_Y - over, x, STRETCH_Y + HIGH + over, "strong" if picture.deep else "axis")
    marked = _open_group(picture) if picture.deep else picture.chosen
    wide = max(3, marked.length * scale)
    picture.rect(min((marked.offset - stretch.offset) * scale, WIDTH - wide), STRETCH_Y, wide, HIGH, "sel")


def _parts(picture: Picture, stretch: Region) -> Iterator[tuple[Region, str]]:
    """What the second bar shows side by side, with the words inside."""
    view, place = picture.view, picture.place
    if picture.deep:
        for at in range(stretch.length // GROUP_BYTES):
            region = group_region(view.file.sections[place.section], place.row, at)
            yield Region(region.offset, region.length, "INT4", region.name), region.name
        return
    names = [name for name in view.names if stretch.offset <= view.whole(name).offset < stretch.stop]
    for name in names:
        whole, after = view.whole(name), view.after(name)
        short = re.sub(r"^layer \d+ (self_attn\.|mlp\.)?|^model\.", "", label(name))
        yield whole, short if place.level == "file" else ""
        if whole.stop < after:
            yield Region(whole.stop, after - whole.stop, "padding", "padding"), ""


def _open_group(picture: Picture) -> Region:
    """The group that is open at the deep levels."""
    return group_region(picture.view.file.sections[picture.place.section], picture.place.row, picture.place.group)


# Bytes and their meaning ----------------------------------------------------------------------------------------------


def _hex(picture: Picture) -> None:
    view, start = picture.view, dump_start(picture.view, picture.place)
    stop = min(start + DUMP, view.file.size)
    picture.text(0, TEXTS_Y + 8, f"Bytes {grouped_span(start, stop - 1)} in hex", "b")
    whole = picture.chosen.offset <= start and picture.chosen.stop >= stop
    for at in range(start, stop, 16):
        y, end = TEXTS_Y + 20 + LINE * (at - start) // 16, min(at + 16, stop)
        picture.text(0, y + LINE / 2, f"{at:,}", "s mu")
        inside = range(max(at, picture.chosen.offset), min(end, picture.chosen.stop))
        if inside and not whole:
            picture.rect(72 + ((inside[0] - at) * 3 - 0.5) * LETTER, y, 3 * LETTER * len(inside), LINE, "ca fill")
        for byte in range(at, end):
            classes = "m" if byte in inside else "m mu"
            picture.text(72 + (byte - at) * 3 * LETTER, y + LINE / 2, f"{view.data[byte]:02x}", classes)


def _meaning(picture: Picture) -> None:
    found = meaning(picture.view, picture.place)
    picture.text(456, TEXTS_Y + 8, found.title, "b")
    lines: Sequence[str] = found.lines
    if found.code:
        columns = int((WIDTH - 456) / LETTER)
        lines = [lines[0][at : at + columns] for at in range(0, len(lines[0]), columns)][:5]
    for at, line in enumerate(lines):
        picture.text(456, TEXTS_Y + 20 + LINE * (at + 0.5), line, "m" if found.code else "")
