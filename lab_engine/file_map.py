"""What every byte of a .nanoqwen file is, and which 4 KiB pages of the mapping a read touches. No torch here.

Row r of a section is the r-th of its shape[0] equal pieces: k / 2 bytes of an INT4 matrix (rows, k), one number of a
vector, one byte of the tokenizer. A matrix's scales lie in a section of their own. Counts are of pages that the bytes
lie on; what the kernel fetches besides them is measured by file_pages.py.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from lab_engine.config import GROUP, ModelConfig
from lab_engine.errors import NanoqwenError
from lab_engine.nanoqwen_file import (
    LAYOUTS,
    PREAMBLE,
    NanoqwenFile,
    Section,
    scales_name,
    section_length,
    tensor_shapes,
)

PAGE = 4096
"""Bytes of a page; also the alignment of a section, so no page holds bytes of two sections."""
GROUP_BYTES = GROUP // 2
SCALE_BYTES = 2
PREAMBLE_FIELDS = (("magic", 8), ("version", 4), ("header length", 4), ("checksum", 8))

_SPACE = re.compile(r"[ \t\r\n]*")


def pages_touched(offset: int, length: int) -> range:
    """Numbers of the 4 KiB pages that hold the bytes. Example: bytes 4032 to 4223 lie on pages 0 and 1."""
    return range(offset // PAGE, -(-(offset + length) // PAGE)) if length else range(0)


@dataclass(frozen=True)
class Region:
    """A run of bytes of the file and what it is; offset and length in bytes.

    kind of a region of the file: preamble, header, padding, or the dtype of a section; of a part: entry, row, group,
    scale.
    """

    offset: int
    length: int
    kind: str
    name: str

    @property
    def stop(self) -> int:
        """The byte after the last one."""
        return self.offset + self.length

    @property
    def pages(self) -> range:
        """Numbers of the pages that it lies on."""
        return pages_touched(self.offset, self.length)


def regions(file: NanoqwenFile) -> tuple[Region, ...]:
    """The whole file in order: every byte belongs to exactly one region."""
    found = list(preamble_regions())
    found.append(Region(PREAMBLE.size, file.header_length, "header", "header"))
    for section in sorted(file.sections.values(), key=lambda section: section.offset):
        end = found[-1].stop
        if end < section.offset:
            found.append(Region(end, section.offset - end, "padding", f"padding before {section.name}"))
        found.append(Region(section.offset, section.length, section.dtype, section.name))
    return tuple(found)


def preamble_regions() -> Iterator[Region]:
    """The four fields of the first 24 bytes."""
    offset = 0
    for name, length in PREAMBLE_FIELDS:
        yield Region(offset, length, "preamble", name)
        offset += length


def header_entries(header: bytes) -> tuple[Region, ...]:
    """Where the JSON of each member lies in the file, key and value; a section's is named after the section.

    header: the bytes after the preamble. "config" and "quantization" are one entry each, "sections" one a section.
    """
    text = header.decode("latin-1")  # one letter a byte; all of JSON's own signs are ASCII
    entries = []
    for name, start, value, stop in _members(text, 0):
        inner = _members(text, value) if name == "sections" else [(name, start, value, stop)]
        entries += [Region(PREAMBLE.size + a, b - a, "entry", key) for key, a, _, b in inner]
    return tuple(entries)


def _members(text: str, at: int) -> Iterator[tuple[str, int, int, int]]:
    """Name, start, start of the value, and end of each member of the JSON object that begins at `at`."""
    decoder = json.JSONDecoder()

    def skip(at: int) -> int:
        space = _SPACE.match(text, at)
        return space.end() if space else at

    at = skip(skip(at) + 1)
    while text[at] != "}":
        name, end = decoder.raw_decode(text, at)
        value = skip(skip(end) + 1)
        _, stop = decoder.raw_decode(text, value)
        yield name, at, value, stop
        at = skip(stop)
        at = skip(at + 1) if text[at] == "," else at


def row_region(section: Section, row: int) -> Region:
    """The bytes of a row; NanoqwenError for a row that the section does not have."""
    _check("row", row, section.shape[0], section.name)
    length = section.length // section.shape[0]
    return Region(section.offset + row * length, length, "row", f"row {row}")


def group_region(section: Section, row: int, group: int) -> Region:
    """The 64 bytes of nibbles of a group of 128 weights of an INT4 row."""
    if section.dtype != "INT4":
        raise NanoqwenError(f"section {section.name}: found {section.dtype}, expected INT4; only a matrix has groups")
    _check("group", group, section.shape[1] // GROUP, f"a row of {section.name}")
    offset = row_region(section, row).offset + group * GROUP_BYTES
    return Region(offset, GROUP_BYTES, "group", f"group {group}")


def scale_region(scales: Section, row: int, group: int) -> Region:
    """The 2 bytes of a group's scale, in the section of scales that belongs to its matrix."""
    _check("group", group, scales.shape[1], f"a row of {scales.name}")
    return Region(row_region(scales, row).offset + group * SCALE_BYTES, SCALE_BYTES, "scale", f"scale of group {group}")


def _check(what: str, found: int, count: int, of: str) -> None:
    if not 0 <= found < count:
        raise NanoqwenError(f"{what}: found {found}, expected 0 to {count - 1}, the {what}s of {of}")


def pages_per_row(row_bytes: int) -> tuple[int, ...]:
    """Pages that row 0, 1, 2, … of a section touches, until the pattern repeats.

    Example: rows of 192 bytes (k = 384) repeat after 64 rows; rows 21 and 42 touch 2 pages, the others 1.
    """
    period = PAGE // math.gcd(PAGE, row_bytes)
    return tuple(len(pages_touched(row * row_bytes, row_bytes)) for row in range(period))


@dataclass(frozen=True)
class Nibble:
    """Half a byte of a group: q = n - 8 and value = q * scale. place counts the word's nibbles from bit 0.

    weight is the column in the row: the input that this weight multiplies.
    """

    place: int
    weight: int
    n: int
    q: int
    value: float


@dataclass(frozen=True)
class ByteMeaning:
    """One byte of nibbles, in its word and with its group's scale; offsets are bytes of the file."""

    offset: int
    value: int
    word_offset: int
    word: int
    scale_offset: int
    scale: float
    low: Nibble
    high: Nibble


def byte_meaning(file: NanoqwenFile, name: str, row: int, group: int, byte: int) -> ByteMeaning:
    """What byte 0 to 63 of a group means. Two neighbours of the row share a byte only in the layout `linear`.

    Raises NanoqwenError for what is no matrix of the file, and for a row, group or byte that it does not have.
    """
    _check("byte", byte, GROUP_BYTES, "a group")
    section = file.section(name)
    start, at = group_region(section, row, group).offset, group * GROUP_BYTES + byte
    scales = file.section(scales_name(name))
    row_bytes = file.array(name)[row].view(np.uint8)
    value, (scale,) = int(row_bytes[at]), struct.unpack("<e", file.array(scales.name)[row, group].tobytes())
    order = LAYOUTS[str(section.layout)]

    def nibble(half: int) -> Nibble:
        place, n = byte % 4 * 2 + half, value >> 4 * half & 0xF
        return Nibble(place, group * GROUP + byte // 4 * 8 + order[place], n, n - 8, (n - 8) * scale)

    return ByteMeaning(
        offset=start + byte,
        value=value,
        word_offset=start + byte // 4 * 4,
        word=int.from_bytes(row_bytes[at // 4 * 4 : at // 4 * 4 + 4].tobytes(), "little"),
        scale_offset=scale_region(scales, row, group).offset,
        scale=scale,
        low=nibble(0),
        high=nibble(1),
    )


def sections_of_a_step(config: ModelConfig) -> tuple[str, ...]:
    """Sections that a decode step reads from end to end; a tied embedding is among them, as the output head."""
    names = tensor_shapes(config)
    return tuple(name for name in names if config.tie_embeddings or not name.startswith("model.embed_tokens."))


@dataclass(frozen=True)
class StepPages:
    """Pages of 4 KiB that a decode step touches. vectors are norms and biases, embedding_row is the token's own row."""

    matrices: int
    scales: int
    vectors: int
    embedding_row: int

    @property
    def total(self) -> int:
        """All of them; each page is counted once."""
        return self.matrices + self.scales + self.vectors + self.embedding_row


def step_pages(config: ModelConfig, token: int = 0) -> StepPages:
    """Pages that one decode step touches, from the shapes alone: every section begins on a page of its own.

    Where the embedding is not tied to the head, the step also reads the row of its token and the row's scales.
    Example: the shapes of Qwen2.5-Coder-7B touch 890,441 pages with token 0.
    """
    shapes = tensor_shapes(config)
    lengths = {name: section_length(*shapes[name]) for name in sections_of_a_step(config)}
    counts = dict.fromkeys(("INT4", "F16", "F32"), 0)
    for name, length in lengths.items():
        counts[shapes[name][0]] += len(pages_touched(0, length))
    own_row = 0 if config.tie_embeddings else _embedding_row_pages(config, token)
    return StepPages(counts["INT4"], counts["F16"], counts["F32"], own_row)


def _embedding_row_pages(config: ModelConfig, token: int) -> int:
    _check("token", token, config.vocab_size, "this model")
    row, scales = config.hidden_size // 2, config.hidden_size // GROUP * SCALE_BYTES
    return len(pages_touched(token * row, row)) + len(pages_touched(token * scales, scales))
