"""Eight ways to damage a .nanoqwen file, and the words with which the reader must refuse each.

A damage is a function from the bytes of a good file to the bytes of a broken one. `with_header` gives a file another
header whose length and checksum are right: what is left to find is what the header says. No torch here.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab_engine.errors import FileFormatError
from lab_engine.nanoqwen_file import ALIGNMENT, TOKENIZER, NanoqwenFile, parse_header
from lab_engine.nanoqwen_writer import preamble_and_header

Q = "model.layers.0.self_attn.q_proj.weight"
K = "model.layers.0.self_attn.k_proj.weight"


@dataclass(frozen=True)
class Damage:
    """One broken file: what is done to the bytes of a good one, and the words that its refusal must hold in order."""

    name: str
    what: str
    apply: Callable[[bytes], bytes]
    words: tuple[str, ...]


def with_header(data: bytes, header: dict[str, Any] | bytes) -> bytes:
    """The good file `data` with another header, its length and checksum right, and the same sections.

    A dict is written as JSON, bytes as they are (so a key can stand twice). A header that does not fit before the
    first section moves all sections back by whole pages, and the offsets of a dict with them.
    """
    first = min(entry["offset"] for entry in parse_header(data)[1]["sections"].values())
    shift = 0
    while len(start := preamble_and_header(_moved(header, shift))) > first + shift:
        shift += ALIGNMENT
    return start.ljust(first + shift, b"\0") + data[first:]


def refusal_of(data: bytes) -> str | None:
    """What the reader says about a file of these bytes, without its path; None where it opens."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "damaged.nanoqwen")
        path.write_bytes(data)
        try:
            NanoqwenFile(path)
        except FileFormatError as error:
            return str(error).removeprefix(f"{path}: ")
    return None


def _moved(header: dict[str, Any] | bytes, shift: int) -> dict[str, Any] | bytes:
    """The header with `shift` added to every offset that is a whole number."""
    if isinstance(header, bytes) or not isinstance(header.get("sections"), dict):
        return header
    sections = copy.deepcopy(header["sections"])
    for entry in sections.values():
        if isinstance(entry, dict) and type(entry.get("offset")) is int:
            entry["offset"] += shift
    return {**header, "sections": sections}


def _section_with(data: bytes, name: str, **fields: Any) -> bytes:
    header = parse_header(data)[1]
    header["sections"][name].update(fields)
    return with_header(data, header)


def _past_the_end(data: bytes) -> bytes:
    offset = parse_header(data)[1]["sections"][TOKENIZER]["offset"]
    return _section_with(data, TOKENIZER, offset=offset + ALIGNMENT)


def _overlapping(data: bytes) -> bytes:
    return _section_with(data, K, offset=parse_header(data)[1]["sections"][Q]["offset"])


DAMAGES: tuple[Damage, ...] = (
    Damage(
        "cut at 23 bytes",
        "keep the first 23 bytes",
        lambda data: data[:23],
        ("preamble", "found 23 bytes", "expected 24"),
    ),
    Damage(
        "magic NANOQWEM",
        "write NANOQWEM into bytes 0–7",
        lambda data: b"NANOQWEM" + data[8:],
        ("magic", "found b'NANOQWEM'", "expected b'NANOQWEN'"),
    ),
    Damage(
        "version 999",
        "write 999 into bytes 8–11",
        lambda data: data[:8] + (999).to_bytes(4, "little") + data[12:],
        ("version", "found 999", "expected 1"),
    ),
    Damage(
        "header of 4 GiB",
        "write 2³² − 1 into bytes 12–15, the length of the header",
        lambda data: data[:12] + b"\xff" * 4 + data[16:],
        ("header length", "found 4294967295", "expected 1 to 1048576"),
    ),
    Damage(
        "section past the end",
        "move the last section one page further back",
        _past_the_end,
        (f"section {TOKENIZER}: end", "found byte", "expected at most"),
    ),
    Damage(
        "two tensors overlap",
        "give k_proj of layer 0 the offset of q_proj",
        _overlapping,
        (f"section {K}: offset", "found", "expected", f"overlaps {Q}"),
    ),
    Damage(
        "dtype INT3",
        "say that q_proj of layer 0 is INT3",
        lambda data: _section_with(data, Q, dtype="INT3"),
        (f"section {Q}: dtype", "found 'INT3'", "expected one of INT4, F16, F32, JSON"),
    ),
    Damage(
        "layout tiled",
        "say that the nibbles of q_proj of layer 0 are laid out as tiled",
        lambda data: _section_with(data, Q, layout="tiled"),
        (f"section {Q}: layout", "found 'tiled'", "expected one of linear, value_shuffle"),
    ),
)
"""The eight of lab 02: one for each field that the reader checks. The learner writes a ninth."""
