"""What the map of a .nanoqwen file says about the place that is chosen: in a sentence, and line by line.

static/nanoqwen_bytes.js says the same words.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from lab_engine.file_map import (
    GROUP_BYTES,
    PAGE,
    ByteMeaning,
    Nibble,
    Region,
    pages_per_row,
    row_region,
    scale_region,
)
from lab_engine.nanoqwen_file import PREAMBLE, scales_name
from widgets.nanoqwen_file_view import HEADER, FileView, Place, chosen, stretch_of
from widgets.words import hex_word, signed, significant, span

NOUNS = {"INT4": "row", "F16": "row", "F32": "number", "JSON": "byte", HEADER: "part"}


@dataclass(frozen=True)
class Meaning:
    """A title and lines of words; code is text of the file itself."""

    title: str
    lines: tuple[str, ...]
    code: bool = False


def label(name: str) -> str:
    """A section's name in short: `layer 0 mlp.gate_proj.weight`."""
    return name.replace("model.layers.", "layer ").replace(".", " ", 1) if name.startswith("model.layers.") else name


def row_words(view: FileView, place: Place) -> str:
    """`row 21`, `number 5`, `byte 7`, and a header's part by its name."""
    if place.section == HEADER:
        return label(view.parts[place.row].name)
    return f"{NOUNS[view.whole(place.section).kind]} {place.row}"


def pages_words(pages: range) -> str:
    """`page 284` or `42 pages 284–325`."""
    return f"page {pages[0]:,}" if len(pages) == 1 else f"{len(pages):,} pages {grouped_span(pages[0], pages[-1])}"


def bytes_words(region: Region) -> str:
    """`byte 7` or `bytes 1,163,264–1,335,295`."""
    return f"byte{'s' if region.length > 1 else ''} {grouped_span(region.offset, region.stop - 1)}"


def grouped_span(first: int, last: int) -> str:
    """`7` or `1,163,264–1,335,295`: positions in the file, with commas between the thousands."""
    return f"{first:,}" if first == last else f"{first:,}–{last:,}"


def sentence(view: FileView, place: Place) -> str:
    """The state: what is chosen, its bytes, its pages, what it means."""
    region = chosen(view, place)
    where = [bytes_words(region), pages_words(region.pages)]
    if place.level == "file":
        return " · ".join([label(place.section), _kind_words(view, place.section), *where])
    if place.level == "section":
        value = row_value(view, place)
        return " · ".join([label(place.section), row_words(view, place), *where, *([value] if value else [])])
    found = view.byte(place)
    path = [label(place.section), f"row {place.row}", f"group {place.group}"]
    if place.level == "row":
        return " · ".join([*path, *where, f"scale {significant(found.scale, 4)}"])
    start = " · ".join([*path[1:], f"byte {place.byte} = {hex_word(found.value, 1)}"])
    if place.level == "group":
        low, high = found.low, found.high
        return f"{start} · weights {low.weight} and {high.weight} · codes {signed(low.q)} and {signed(high.q)}"
    return f"{start} · {_weight_words(found.low)} · {_weight_words(found.high)}"


def caption(view: FileView, place: Place) -> str:
    """What the second bar of the picture magnifies."""
    stretch = stretch_of(view, place)
    pages = len(stretch.pages)
    on_pages = f"on {pages:,} page{'s' if pages > 1 else ''}"
    if place.level == "file":
        return f"{stretch.name}: {stretch.length:,} bytes {on_pages}"
    if place.level != "section":
        return f"row {place.row}: {stretch.length:,} bytes {on_pages}{'; thick: the border' if pages > 1 else ''}"
    whole, rows = view.whole(place.section), view.rows(place.section)
    if place.section == HEADER:
        return f"{whole.length:,} bytes, then {stretch.length - whole.length:,} of padding, {on_pages}"
    if len(view.file.sections[place.section].shape) == 1:
        return f"{rows:,} {'numbers of 4 bytes' if whole.kind == 'F32' else 'bytes of text'} {on_pages}"
    pattern = pages_per_row(whole.length // rows)
    more = sum(pattern[row % len(pattern)] > min(pattern) for row in range(rows))
    lie = f"{more:,} of them lie{'s' if more == 1 else ''} on {min(pattern) + 1}"
    return f"{rows:,} rows of {whole.length // rows:,} bytes {on_pages}; {lie}"


def _kind_words(view: FileView, name: str) -> str:
    if name == HEADER:
        return f"preamble {PREAMBLE.size} bytes, JSON {view.file.header_length:,}"
    section = view.file.sections[name]
    return f"{section.dtype} {' × '.join(map(str, section.shape))}"


def row_value(view: FileView, place: Place) -> str:
    """What a row's bytes are, where that is one short value."""
    region = view.row(place.section, place.row)
    kind = view.whole(place.section).kind
    if kind == "F32":
        return significant(float(view.file.array(place.section)[place.row]), 4)
    if kind == "JSON":
        return _letter(view.data[region.offset])
    if region.kind == "preamble":
        content = view.data[region.offset : region.stop]
        return content.decode("ascii") if region.name == "magic" else _number(region.name, content)
    return ""


def _number(name: str, content: bytes) -> str:
    value = int.from_bytes(content, "little")
    return hex_word(value, 8) if name == "checksum" else f"{value:,}"


def _letter(byte: int) -> str:
    return hex_word(byte, 1) + (f' "{chr(byte)}"' if 32 <= byte < 127 else "")


def _weight_words(nibble: Nibble) -> str:
    return f"weight {nibble.weight}: {signed(nibble.q)} × scale = {significant(nibble.value, 4)}"


# Bytes and their meaning, side by side --------------------------------------------------------------------------------


def meaning(view: FileView, place: Place) -> Meaning:
    """What the chosen bytes mean, in up to five lines."""
    if place.level == "file":
        return _file_meaning(view, place.section)
    if place.level == "section":
        if place.section == HEADER:
            return _part_meaning(view, place)
        return _row_meaning(view, place)
    return {"row": _group_meaning, "group": _pair_meaning, "byte": _byte_meaning}[place.level](view, place)


def _file_meaning(view: FileView, name: str) -> Meaning:
    if name == HEADER:
        padding = view.file.sections[view.names[1]].offset - view.header.stop
        lines = (
            f"{PREAMBLE.size} bytes of preamble: magic, version, header length, checksum",
            f"{view.file.header_length:,} bytes of JSON: config, quantization, {len(view.names) - 1} sections",
            f"{padding:,} bytes of padding follow, up to the first section",
            "opening the file reads them, a step needs none of them",
        )
        return Meaning("Preamble and header", lines)
    entry = view.entries[name]
    return Meaning(f"Its entry in the header, {bytes_words(entry)}", (_text(view, entry),), code=True)


def _text(view: FileView, region: Region) -> str:
    return view.data[region.offset : region.stop].decode("utf-8", "replace")


def _part_meaning(view: FileView, place: Place) -> Meaning:
    part = view.parts[place.row]
    title = f"{label(part.name)}: {part.length:,} bytes"
    if part.kind == "entry":
        return Meaning(title, (_text(view, part),), code=True)
    if part.kind == "padding":
        lines = (
            f"from the header's end, {part.offset:,}, to the first section, {part.stop:,}",
            f"{part.stop:,} = {part.stop // PAGE} × {PAGE:,}: a section begins on a page of its own",
        )
        return Meaning(title, lines)
    value = row_value(view, place)
    words = {
        "magic": (f'the letters "{value}"; another file begins with others',),
        "version": (
            f"u32, lowest byte first: {view.hex(part)} = {value}",
            "a reader refuses a version it does not know",
        ),
        "header length": (f"u32, lowest byte first: {view.hex(part)} = {value}", "at most 1 MiB; the JSON ends there"),
        "checksum": (
            f"u64, lowest byte first: {value}",
            f"XXH3-64 of the {view.file.header_length:,} bytes of JSON",
            "it stands outside what it covers: no number covers itself",
        ),
    }
    return Meaning(title, words[part.name])


def _row_meaning(view: FileView, place: Place) -> Meaning:
    section, row = view.file.sections[place.section], view.row(place.section, place.row)
    words = row_words(view, place)
    lines = [f"{section.offset:,} + {place.row} × {row.length:,} = {row.offset:,}", _border_words(row)]
    if section.dtype == "INT4":
        scales = row_region(view.scales(section.name), place.row)
        lines.append(f"its {section.shape[1] // 128} scales: {bytes_words(scales)}, {pages_words(scales.pages)}")
        both = len(view.whole(section.name).pages), len(view.whole(scales_name(section.name)).pages)
        lines.append(f"the whole matrix: {both[0]:,} pages of nibbles, {both[1]:,} of scales")
    elif section.dtype == "F16":
        values = [float(value) for value in view.file.array(section.name)[place.row][:4]]
        more = " …" if section.shape[1] > 4 else ""
        lines.append(f"fp16: {', '.join(significant(value, 4) for value in values)}{more}")
    elif section.dtype == "F32":
        lines.append(f"float32, lowest byte first: {view.hex(row)} = {row_value(view, place)}")
    else:
        lines.append(f"{row_value(view, place)} of the text")
    lines.append(f"a step touches {view.step_pages:,} of the file's {view.pages:,} pages")
    return Meaning(f"{words[0].upper()}{words[1:]}: {row.length:,} byte{'s' if row.length > 1 else ''}", tuple(lines))


def _border_words(row: Region) -> str:
    if len(row.pages) == 1:
        return f"page {row.pages[0]:,} alone"
    return f"{pages_words(row.pages)}: a border {row.pages[1] * PAGE - row.offset:,} bytes into it"


def _group_meaning(view: FileView, place: Place) -> Meaning:
    row, region, found = view.row(place.section, place.row), chosen(view, place), view.byte(place)
    scale = scale_region(view.scales(place.section), place.row, place.group)
    lines = (
        f"{row.offset:,} + {place.group} × {GROUP_BYTES} = {region.offset:,}: two weights a byte",
        f"scale: {view.hex(scale)} = {significant(found.scale, 4)}, {bytes_words(scale)}",
        f"the nibbles lie on {pages_words(region.pages)}, the scale on page {scale.pages[0]:,}",
        "weight = code × scale, and a code is −8 to 7",
    )
    first = place.group * 128
    return Meaning(f"Group {place.group}: weights {span(first, first + 127)} of row {place.row}", lines)


def _pair_meaning(view: FileView, place: Place) -> Meaning:
    found = view.byte(place)
    word = Region(found.word_offset, 4, "word", "word")
    lines = (
        f"word {place.byte // 4}: {view.hex(word)} = {hex_word(found.word)}",
        *(f"{half}: n = {n.n}, code n − 8 = {signed(n.q)}, weight {n.weight}" for half, n in _halves(found)),
        f"scale {significant(found.scale, 4)}, {_address(found.scale_offset)}",
    )
    return Meaning(f"Byte {place.byte} = {hex_word(found.value, 1)}, {_address(found.offset)}", lines)


def _address(offset: int) -> str:
    return f"at {offset:,}, page {offset // PAGE:,}"


def _halves(found: ByteMeaning) -> Sequence[tuple[str, Nibble]]:
    return ("low nibble", found.low), ("high nibble", found.high)


def _byte_meaning(view: FileView, place: Place) -> Meaning:
    found, layout = view.byte(place), view.file.sections[place.section].layout
    scale = significant(found.scale, 4)
    lines = (
        f"{hex_word(found.value, 1)} = {found.value} = {found.high.n} × 16 + {found.low.n}",
        *(
            f"{half}: {n.n} − 8 = {signed(n.q)}; {signed(n.q)} × {scale} = {significant(n.value, 4)}"
            for half, n in _halves(found)
        ),
        f"{layout}: nibbles {found.low.place} and {found.high.place} "
        f"hold weights {found.low.weight % 8} and {found.high.weight % 8} of eight",
    )
    return Meaning(f"Byte {place.byte} = {hex_word(found.value, 1)}, {_address(found.offset)}", lines)
