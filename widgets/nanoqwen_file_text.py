"""The file map in plain letters, for a terminal, a diff and a reader without pictures: the same on every machine."""

import re
import textwrap
from collections.abc import Iterator

from widgets.nanoqwen_file_view import DUMP, LEVELS, FileView, Place, chosen, dump_start
from widgets.nanoqwen_file_words import label, meaning, row_words
from widgets.words import byte_count

STRIP, WIDTH = 64, 68


def file_text(view: FileView, place: Place) -> str:
    """The file as a strip of letters with the chosen bytes marked, the path, 64 bytes in hex, their meaning."""
    return "\n".join([*_strip_rows(view, place), "", *_path_row(view, place), "", *_dump_rows(view, place), "",
                      *_meaning_rows(view, place)])  # fmt: skip


def _strip_rows(view: FileView, place: Place) -> Iterator[str]:
    size, region = view.file.size, chosen(view, place)
    starts = [view.whole(name).offset for name in view.names]
    letters, marks = "", ""
    for at in range(STRIP):
        first, last = at * size // STRIP, (at + 1) * size // STRIP
        letters += _letter(view.names[sum(start <= (first + last) // 2 for start in starts) - 1])
        marks += "^" if region.offset < last and region.stop > first else " "
    yield f"file     [{letters}]"
    yield f"          {marks}".rstrip()
    yield f"         a letter is {byte_count(size // STRIP)}: h header, e embedding, 0 1 2 … layers, t tokenizer"


def _letter(name: str) -> str:
    layer = re.match(r"model\.layers\.(\d+)", name)
    return layer[1][-1] if layer else name.removeprefix("model.")[0]


def path_words(view: FileView, place: Place) -> list[str]:
    """The names from the file down to where one could zoom in."""
    deep = [f"group {place.group}", f"byte {place.byte}"] if view.matrix(place.section) else []
    return ["file", label(place.section), row_words(view, place), *deep]


def _path_row(view: FileView, place: Place) -> list[str]:
    at = LEVELS.index(place.level)
    names = [f"[{name}]" if number == at else name for number, name in enumerate(path_words(view, place))]
    return _named("path", textwrap.wrap(" > ".join(names), WIDTH))


def _dump_rows(view: FileView, place: Place) -> list[str]:
    start = dump_start(view, place)
    lines = range(start, min(start + DUMP, view.file.size), 16)
    return _named("bytes", [f"{at:>9,}  {view.data[at : min(at + 16, start + DUMP)].hex(' ')}" for at in lines])


def _meaning_rows(view: FileView, place: Place) -> list[str]:
    found = meaning(view, place)
    return _named("meaning", [piece for line in (found.title, *found.lines) for piece in textwrap.wrap(line, WIDTH)])


def _named(name: str, lines: list[str]) -> list[str]:
    return [f"{name if number == 0 else '':<9}{line}" for number, line in enumerate(lines)]
