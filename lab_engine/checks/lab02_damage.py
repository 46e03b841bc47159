"""Lab 02, damage_file: a ninth way to break a file, which the reader must refuse for a reason of its own."""

import json
import re
import struct
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from lab_engine.checks.case import Args, Case, Mismatch
from lab_engine.checks.exercise import Exercise
from lab_engine.checks.values import describe, number
from lab_engine.checks.verdict import Row
from lab_engine.config import ModelConfig
from lab_engine.damaged_files import DAMAGES, refusal_of, with_header
from lab_engine.nanoqwen_file import NUMPY_DTYPES, PREAMBLE, TOKENIZER, parse_header, section_length, tensor_shapes
from lab_engine.nanoqwen_writer import NanoqwenWriter


def damage_file(data: bytes) -> bytes:
    """A damaged copy of a small .nanoqwen file, which is refused at opening for a ninth reason.

    data: all bytes of a good file. The eight of the lab do not count: a cut preamble, another
    magic, another version, a header length of 0 or over 1 MiB, a section past the end, two
    tensors that overlap, an unknown dtype, an unknown layout. `with_header(data, header)` of
    lab_engine.damaged_files gives the file another header (a dict, or its bytes) with the right
    length and checksum. The reader must refuse what the header says, not its checksum.

    Example: data[:23] does not count; its refusal is `preamble: found 23 bytes, expected 24`.
    """
    _magic, _version, length, _checksum = struct.unpack_from("<8sIIQ", data)
    header = json.loads(data[24 : 24 + length])
    header["sections"]["model.norm.weight"]["shape"] = [0]
    return with_header(data, header)


@dataclass(frozen=True)
class SmallFile:
    """A good file of random weights, made by the writer when it is asked for."""

    layers: int
    tied: bool
    layout: str

    @property
    def data(self) -> bytes:
        """All its bytes."""
        return _small_file(self.layers, self.tied, self.layout)


@cache
def _small_file(layers: int, tied: bool, layout: str) -> bytes:
    config = ModelConfig(128, 256, layers, 2, 1, 64, 40 + layers, 64, 1e6, 1e-6, tied)
    rng = np.random.default_rng(layers)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "small.nanoqwen")
        with NanoqwenWriter(path, config, {}, layout) as writer:
            for name, (dtype, shape) in tensor_shapes(config).items():
                content = rng.bytes(section_length(dtype, shape))
                writer.append(name, np.frombuffer(content, NUMPY_DTYPES[dtype]))
        return path.read_bytes()


@dataclass(frozen=True)
class Damaged:
    """What the function made of a file, and what the reader says of it: None if it opens."""

    data: Any
    refusal: str | None


def _opened(function: Callable[[bytes], Any]) -> Callable[[SmallFile], Any]:
    def run(file: SmallFile) -> Any:
        data = function(file.data)
        if not isinstance(data, bytes | bytearray):
            return data
        return Damaged(bytes(data), refusal_of(bytes(data)))

    return run


def _judge(args: Args, _expected: Any, yours: Any) -> Mismatch | None:
    good = args[0].data
    if not isinstance(yours, Damaged):
        hint = "Return the bytes of the whole file, not a path and not a header alone."
        return Mismatch(f"returned {describe(yours)}; expected bytes, all of a file", hint=hint, about_form=True)
    if yours.data == good:
        return Mismatch("returned the file as it was", hint="bytes never change in place: build new ones, return them.")
    if yours.refusal is None:
        return _accepted(good, yours.data)
    if yours.refusal.startswith("header checksum"):
        return Mismatch(_says(yours), hint=_RENEW)
    for damage in DAMAGES:
        if _reason(refusal_of(damage.apply(good))) == _reason(yours.refusal):
            return Mismatch(_says(yours), hint=f"{_SAME_CHECK}: {damage.name}. What else does the reader check?")
    return None


def _accepted(good: bytes, data: bytes) -> Mismatch:
    sections = parse_header(data)[1]["sections"]
    for name, entry in sections.items():
        content = data[entry["offset"] : entry["offset"] + entry["length"]]
        if xxhash.xxh3_64_hexdigest(content) != entry["xxh3"]:
            return Mismatch(f"the reader opened the file; only verify finds section {name}", hint=_CONTENT)
    if data[: _header_end(data)] == good[: _header_end(good)]:
        return Mismatch("the reader opened the file: the bytes you changed are padding", hint=_PADDING)
    return Mismatch("the reader opened the file: what its header says now is legal", hint=_LEGAL)


def _header_end(data: bytes) -> int:
    return PREAMBLE.size + int(PREAMBLE.unpack_from(data)[2])


def _reason(refusal: str | None) -> str:
    """A refusal without what is another in each file: what was found, names of sections, numbers."""
    text = re.sub(r": found .*, expected ", ": expected ", refusal or "")
    return re.sub(rf"\d+|model\.[\w.]+|lm_head[\w.]*|\b{TOKENIZER}\b", "…", text)


def _says(yours: Any) -> str:
    return f"the reader says: {yours.refusal}"


def _show(args: Args) -> tuple[Row, ...]:
    data = args[0].data
    sections = len(parse_header(data)[1]["sections"])
    counts = (len(data), sections, _header_end(data))
    return (Row("the good file", ("bytes", "sections", "header ends at")), Row("", tuple(map(number, counts))))


_RENEW = (
    "Only the checksum caught it, as it catches any change of the header. `with_header` renews it, so that the reader "
    "must find what is wrong with the structure."
)
_SAME_CHECK = "The check that refuses one of the eight"
_CONTENT = "Content is checked on request, since that reads everything. Damage the structure: what the header says."
_PADDING = "Nobody reads padding. Damage what the header says, or where the file ends."
_LEGAL = "Which promise of the header can you break? Offsets, shapes, names, the end of the file."

CASES = (
    Case("a file of one layer", (SmallFile(1, True, "linear"),), _LEGAL),
    Case("a file of two layers with its own lm_head", (SmallFile(2, False, "value_shuffle"),), _LEGAL),
)


EXERCISE = Exercise(
    lab="02_nanoqwen_file",
    solution=damage_file,
    cases=CASES,
    judge=_judge,
    show=_show,
    first_hints=(
        "Which rule of a good file does none of the eight break? Think of offsets, of shapes, of the file's end.",
        "Read the header with `json.loads(data[24 : 24 + length])`, change an entry of a section, and return "
        "`with_header(data, header)`. Or leave the header as it is and damage the end of the file.",
    ),
    adapt=_opened,
    remark=_says,
)
