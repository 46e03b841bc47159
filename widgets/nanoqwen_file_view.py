"""A .nanoqwen file as the map sees it: its sections with the header as one of them, and what is chosen at a place.

A place is a level and the path below it. A level shows a thing, and which of its parts is chosen: `file` a section,
`section` a row, `row` a group of 128 weights, `group` and `byte` a byte. static/nanoqwen_bytes.js reads the same.
"""

import itertools
import re
from dataclasses import dataclass

from lab_engine.file_map import (
    PAGE,
    ByteMeaning,
    Region,
    byte_meaning,
    group_region,
    header_entries,
    preamble_regions,
    row_region,
    step_pages,
)
from lab_engine.nanoqwen_file import PREAMBLE, NanoqwenFile, Section, scales_name

LEVELS = ("file", "section", "row", "group", "byte")
HEADER = "header"
"""The name of preamble and header together, where a section's is expected."""
DUMP = 64
"""Bytes that are shown in hex."""


@dataclass(frozen=True)
class Place:
    """A level, and the path on which it lies; what is deeper than the level's own parts is where one would zoom in."""

    level: str
    section: str
    row: int
    group: int
    byte: int


class FileView:
    """A small file with its bytes at hand, and with preamble and header as a section of named parts before the others.

    names: HEADER, then the sections in file order. entries: where the header holds each section's JSON.
    """

    def __init__(self, file: NanoqwenFile) -> None:
        self.file = file
        self.data = file.path.read_bytes()
        header_end = PREAMBLE.size + file.header_length
        entries = header_entries(self.data[PREAMBLE.size : header_end])
        sections = sorted(file.sections.values(), key=lambda section: section.offset)
        padding = Region(header_end, sections[0].offset - header_end, "padding", "padding")
        self.names = (HEADER, *(section.name for section in sections))
        self.parts = (*preamble_regions(), *entries, *([padding] if padding.length else []))
        self.entries = {entry.name: entry for entry in entries}
        self.header = Region(0, header_end, HEADER, HEADER)
        self.step_pages = step_pages(file.config).total
        self.pages = -(-file.size // PAGE)

    def whole(self, name: str) -> Region:
        """A section's bytes, or those of preamble and header."""
        if name == HEADER:
            return self.header
        section = self.file.sections[name]
        return Region(section.offset, section.length, section.dtype, name)

    def rows(self, name: str) -> int:
        """How many rows a section has."""
        return len(self.parts) if name == HEADER else self.file.sections[name].shape[0]

    def after(self, name: str) -> int:
        """Where the next section begins, or the file ends: what lies between is padding."""
        at = self.names.index(name) + 1
        return self.whole(self.names[at]).offset if at < len(self.names) else self.file.size

    def groups(self) -> list[Region]:
        """Sections that belong together, with their padding: header, embedding, each layer, the rest one by one."""
        found = []
        for group, members in itertools.groupby(self.names, _group_name):
            names = list(members)
            largest, first = max(map(self.whole, names), key=lambda one: one.length), self.whole(names[0])
            found.append(Region(first.offset, self.after(names[-1]) - first.offset, largest.kind, group))
        return found

    def row(self, name: str, row: int) -> Region:
        """A row's bytes; of the header, a part's."""
        return self.parts[row] if name == HEADER else row_region(self.file.sections[name], row)

    def matrix(self, name: str) -> Section | None:
        """The section if it holds INT4 weights, which have groups to zoom into."""
        section = self.file.sections.get(name)
        return section if section and section.dtype == "INT4" else None

    def scales(self, name: str) -> Section:
        """The section with the scales of a matrix."""
        return self.file.sections[scales_name(name)]

    def byte(self, place: Place) -> ByteMeaning:
        """The chosen byte of nibbles."""
        return byte_meaning(self.file, place.section, place.row, place.group, place.byte)

    def hex(self, region: Region) -> str:
        """A region's bytes, two digits each."""
        return self.data[region.offset : region.stop].hex(" ")


def _group_name(name: str) -> str:
    layer = re.match(r"model\.layers\.(\d+)", name)
    if layer:
        return f"layer {layer[1]}"
    return "embedding" if "embed_tokens" in name else re.sub(r"^model\.|\.(weight|scales)$", "", name)


def chosen(view: FileView, place: Place) -> Region:
    """The bytes of what is chosen at the level."""
    if place.level == "file":
        return view.whole(place.section)
    if place.level == "section":
        return view.row(place.section, place.row)
    group = group_region(view.file.sections[place.section], place.row, place.group)
    return group if place.level == "row" else Region(group.offset + place.byte, 1, "byte", f"byte {place.byte}")


def stretch_of(view: FileView, place: Place) -> Region:
    """The stretch of the file that the second bar magnifies: a group of sections, a section with padding, a row."""
    whole = view.whole(place.section)
    if place.level == "file":
        return next(group for group in view.groups() if whole.offset < group.stop)
    if place.level == "section":
        return Region(whole.offset, view.after(place.section) - whole.offset, whole.kind, place.section)
    return view.row(place.section, place.row)


def dump_start(view: FileView, place: Place) -> int:
    """The first of the 64 bytes that are shown in hex: a long region's own first, else a window that holds it."""
    if place.level in ("row", "group", "byte"):
        return group_region(view.file.sections[place.section], place.row, place.group).offset
    region, start = chosen(view, place), view.whole(place.section).offset
    if region.length >= DUMP:
        return region.offset
    window = DUMP if region.length <= 16 else 16
    return max(0, min(start + (region.offset - start) // window * window, view.file.size - DUMP))


def shown_pages(view: FileView, place: Place, lines: int) -> range:
    """The pages drawn at the level section. They change by four: a step moves the selection, not the picture."""
    pages, start = chosen(view, place).pages, view.whole(place.section).offset // PAGE
    block = max(1, lines - 2)
    first = start + (pages[0] - start) // block * block - 1
    if pages[-1] - first >= lines:
        first = min(pages[0], pages[-1] - lines + 1)
    first = max(0, min(first, view.pages - lines))
    return range(first, min(view.pages, first + lines))
