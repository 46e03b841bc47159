"""The .nanoqwen file: one model in one file that the machine maps instead of reading.

    bytes 0-23   preamble: b"NANOQWEN", u32 version, u32 header length, u64 XXH3-64 of the header (little-endian)
    then         the header, UTF-8 JSON: config, quantization, sections
    then         the sections, each at a multiple of 4096; the file ends with the last section's last byte

A matrix has two sections: `….weight` (INT4 words) and `….scales` (F16); norms and biases are F32; the tokenizer
is one JSON section. Structure is checked at opening, because that is cheap; content only by `verify`, because
that reads everything. Sources: the GGUF and safetensors format descriptions, which this borrows from.
"""

from __future__ import annotations

import difflib
import json
import math
import mmap
import os
import reprlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from lab_engine.config import GROUP, ModelConfig
from lab_engine.errors import ConfigError, FileFormatError, NanoqwenError

MAGIC = b"NANOQWEN"
VERSION = 1
PREAMBLE = struct.Struct("<8sIIQ")
ALIGNMENT = 4096
MAX_HEADER_BYTES = 1 << 20
QUANTIZATION = {"bits": 4, "group": GROUP, "symmetric": True}
LAYOUTS: dict[str, tuple[int, ...]] = {
    "linear": (0, 1, 2, 3, 4, 5, 6, 7),
    "value_shuffle": (0, 2, 4, 6, 1, 3, 5, 7),
}
"""For each nibble layout: nibble i (bits 4i to 4i + 3) of a word holds weight LAYOUTS[name][i] of its eight."""
TOKENIZER = "tokenizer"
SECTIONS_PER_LAYER = 19
"""7 matrices of two sections each, 2 norms, 3 biases."""

NUMPY_DTYPES: dict[str, np.dtype[Any]] = {
    "INT4": np.dtype("<i4"),
    "F16": np.dtype("<f2"),
    "F32": np.dtype("<f4"),
    "JSON": np.dtype("u1"),
}
"""How each section dtype is stored: INT4 as 32-bit words of eight."""


@dataclass(frozen=True)
class Section:
    """One run of bytes of the file. shape counts elements (INT4: weights); offset and length are bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    length: int
    xxh3: str
    layout: str | None = None


def section_length(dtype: str, shape: tuple[int, ...]) -> int:
    """Bytes of a section: half a byte an INT4 weight, else elements times the element's size."""
    elements = math.prod(shape)
    return elements // 2 if dtype == "INT4" else elements * NUMPY_DTYPES[dtype].itemsize


def scales_name(name: str) -> str:
    """The section that holds the scales of a matrix: `x.weight` has `x.scales`."""
    return name.removesuffix(".weight") + ".scales"


def tensor_shapes(config: ModelConfig) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Every tensor section that a model of this config has, in file order: name -> (dtype, shape).

    Names are those of the Hugging Face checkpoint; a matrix `x.weight` is followed by its `x.scales`.
    """
    hidden, intermediate = config.hidden_size, config.intermediate_size
    matrices = {
        "self_attn.q_proj": (config.q_size, hidden),
        "self_attn.k_proj": (config.kv_size, hidden),
        "self_attn.v_proj": (config.kv_size, hidden),
        "self_attn.o_proj": (hidden, config.q_size),
        "mlp.gate_proj": (intermediate, hidden),
        "mlp.up_proj": (intermediate, hidden),
        "mlp.down_proj": (hidden, intermediate),
    }
    shapes: dict[str, tuple[str, tuple[int, ...]]] = {}

    def add_matrix(name: str, rows: int, k: int) -> None:
        shapes[f"{name}.weight"] = ("INT4", (rows, k))
        shapes[f"{name}.scales"] = ("F16", (rows, k // GROUP))

    add_matrix("model.embed_tokens", config.vocab_size, hidden)
    for layer in range(config.num_layers):
        prefix = f"model.layers.{layer}."
        shapes[f"{prefix}input_layernorm.weight"] = ("F32", (hidden,))
        shapes[f"{prefix}post_attention_layernorm.weight"] = ("F32", (hidden,))
        for name, (rows, k) in matrices.items():
            add_matrix(prefix + name, rows, k)
            if name[-6:] in ("q_proj", "k_proj", "v_proj"):
                shapes[f"{prefix}{name}.bias"] = ("F32", (rows,))
    shapes["model.norm.weight"] = ("F32", (hidden,))
    if not config.tie_embeddings:
        add_matrix("lm_head", config.vocab_size, hidden)
    return shapes


class NanoqwenFile:
    """A mapped model file. Arrays are views of the mapping: copy-on-write, so the file never changes."""

    def __init__(self, path: Path) -> None:
        """Map and check the structure; FileFormatError names the field or section that is wrong."""
        self.path = path
        try:
            if path.exists() and not (path.is_file() or path.is_dir()):  # opening a pipe would wait for its writer
                raise FileFormatError(f"{path}: is no regular file; expected a .nanoqwen file on disk")
            with path.open("rb") as file:
                self.size = os.fstat(file.fileno()).st_size
                if self.size < PREAMBLE.size:
                    found = f"found {self.size} bytes, expected {PREAMBLE.size}"
                    raise FileFormatError(f"{path}: preamble: {found}; cut off?")
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        except OSError as error:
            raise FileFormatError(f"{path}: cannot be opened ({error.strerror})") from None
        try:
            self.header_length = PREAMBLE.unpack_from(self._map)[2]
            beginning = self._map[: PREAMBLE.size + min(self.header_length, MAX_HEADER_BYTES)]  # a slice reads
            self.version, self.header = parse_header(beginning)
            self.config, self.sections = _check_header(self.header, self.size, PREAMBLE.size + self.header_length)
        except (FileFormatError, ConfigError) as error:
            raise FileFormatError(f"{path}: {error}") from None

    def section(self, name: str) -> Section:
        """The section of this name; NanoqwenError where the file has none."""
        if name not in self.sections:
            near = difflib.get_close_matches(name, self.sections, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise NanoqwenError(f"section {name!r}: {self.path.name} has none of this name{hint}")
        return self.sections[name]

    def array(self, name: str) -> np.ndarray[Any, Any]:
        """The section as a view of the mapping: INT4 as int32 words (rows, k // 8), others in their shape."""
        section = self.section(name)
        shape = section.shape
        if section.dtype == "INT4":
            shape = (*shape[:-1], shape[-1] // 8)
        dtype = NUMPY_DTYPES[section.dtype]
        return np.frombuffer(self._map, dtype, math.prod(shape), section.offset).reshape(shape)

    def tokenizer_spec(self) -> dict[str, Any]:
        """The tokenizer section as JSON; FileFormatError where its bytes are damaged."""
        try:
            spec = json.loads(self.array(TOKENIZER).tobytes())
        except (ValueError, RecursionError):
            raise FileFormatError(f"{self.path}: section tokenizer is not JSON; run inspect --verify") from None
        if not isinstance(spec, dict):
            raise FileFormatError(f"{self.path}: section tokenizer holds no JSON object")
        return spec

    def checksums(self) -> Iterator[tuple[Section, bool]]:
        """Each section with whether its bytes have the checksum of the header. Reads the whole file."""
        with memoryview(self._map) as view:
            for section in self.sections.values():
                with view[section.offset : section.offset + section.length] as content:
                    yield section, xxhash.xxh3_64_hexdigest(content) == section.xxh3

    def verify(self) -> list[str]:
        """Names of the sections whose bytes do not have the checksum of the header."""
        return [section.name for section, intact in self.checksums() if not intact]


def parse_header(data: bytes) -> tuple[int, dict[str, Any]]:
    """Version and JSON header from the first bytes of a file (bytes after the header are ignored).

    Refuses, in this order: fewer than 24 bytes, another magic, another version, a header length of 0 or over
    1 MiB, a cut header, a wrong checksum, text that is not a JSON object.
    """
    if len(data) < PREAMBLE.size:
        raise FileFormatError(f"preamble: found {len(data)} bytes, expected {PREAMBLE.size}; cut off?")
    magic, version, length, checksum = PREAMBLE.unpack_from(data)
    if magic != MAGIC:
        raise FileFormatError(f"magic: found {magic!r}, expected {MAGIC!r}; not a .nanoqwen file")
    if version != VERSION:
        raise FileFormatError(f"version: found {version}, expected {VERSION}; convert the model again")
    if not 0 < length <= MAX_HEADER_BYTES:
        raise FileFormatError(f"header length: found {length}, expected 1 to {MAX_HEADER_BYTES}")
    text = data[PREAMBLE.size : PREAMBLE.size + length]
    if len(text) < length:
        raise FileFormatError(f"header: found {len(text)} bytes, expected {length}; cut off?")
    if (found := xxhash.xxh3_64_intdigest(text)) != checksum:
        raise FileFormatError(f"header checksum: found {found:016x}, expected {checksum:016x}; damaged?")
    try:
        header = json.loads(text.decode("utf-8"), object_pairs_hook=_unique_keys)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"header: not JSON ({error})") from None
    if not isinstance(header, dict):
        raise FileFormatError(f"header: found a JSON {type(header).__name__}, expected an object")
    return version, header


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"key {reprlib.repr(key)} stands twice")
        found[key] = value
    return found


def _check_header(header: dict[str, Any], size: int, header_end: int) -> tuple[ModelConfig, dict[str, Section]]:
    """The config and sections of a header, after every structural check; size is the file's, in bytes."""
    if header.get("quantization") != QUANTIZATION:
        found = reprlib.repr(header.get("quantization"))
        raise FileFormatError(f"quantization: found {found}, expected {QUANTIZATION}")
    config = ModelConfig.from_dict(header.get("config", {}))
    entries = header.get("sections")
    if not isinstance(entries, dict):
        raise FileFormatError("sections: missing, expected an object of sections by name")
    if config.num_layers * SECTIONS_PER_LAYER > len(entries):  # before tensor_shapes lists every one of them
        raise FileFormatError(f"config num_layers: found {config.num_layers}, but there are {len(entries)} sections")
    expected = tensor_shapes(config)
    if set(entries) != {*expected, TOKENIZER}:
        missing, extra = {*expected, TOKENIZER} - set(entries), set(entries) - {*expected, TOKENIZER}
        found = f"missing {sorted(missing)[:3]}, not expected {reprlib.repr(sorted(extra)[:3])}"
        raise FileFormatError(f"sections: {found}")
    sections = {name: _read_section(name, entry) for name, entry in entries.items()}
    _check_places(sections, size, header_end)
    if sections[TOKENIZER].dtype != "JSON":
        raise FileFormatError(f"section {TOKENIZER}: dtype: found {sections[TOKENIZER].dtype}, expected JSON")
    for name, (dtype, shape) in expected.items():
        if (sections[name].dtype, sections[name].shape) != (dtype, shape):
            found = f"{sections[name].dtype} {list(sections[name].shape)}"
            raise FileFormatError(f"section {name}: found {found}, expected {dtype} {list(shape)} by the config")
    return config, sections


def _read_section(name: str, entry: Any) -> Section:
    def refuse(field: str, expected: str) -> FileFormatError:
        found = entry.get(field) if isinstance(entry, dict) else entry
        return FileFormatError(f"section {name}: {field}: found {reprlib.repr(found)}, expected {expected}")

    if not isinstance(entry, dict) or entry.get("dtype") not in tuple(NUMPY_DTYPES):
        raise refuse("dtype", f"one of {', '.join(NUMPY_DTYPES)}")
    shape = entry.get("shape")
    if not isinstance(shape, list) or not all(type(n) is int and 0 < n < 1 << 40 for n in shape):
        raise refuse("shape", "a list of whole numbers above 0")
    if len(shape) not in (1, 2):  # before any product of them
        raise refuse("shape", "one or two numbers")
    for field in ("offset", "length"):
        if type(entry.get(field)) is not int or not 0 <= entry[field] < 1 << 63:
            raise refuse(field, "a whole number of bytes")
    if entry["offset"] % ALIGNMENT:
        raise refuse("offset", f"a multiple of {ALIGNMENT}")
    if entry["length"] != section_length(entry["dtype"], tuple(shape)):
        raise refuse("length", f"{section_length(entry['dtype'], tuple(shape))}, by its dtype and shape")
    if not isinstance(entry.get("xxh3"), str):
        raise refuse("xxh3", "a checksum of 16 hexadecimal digits")
    layout = entry.get("layout")
    if layout not in (tuple(LAYOUTS) if entry["dtype"] == "INT4" else (None,)):
        raise refuse("layout", f"one of {', '.join(LAYOUTS)}" if entry["dtype"] == "INT4" else "none")
    return Section(name, entry["dtype"], tuple(shape), entry["offset"], entry["length"], entry["xxh3"], layout)


def _check_places(sections: dict[str, Section], size: int, header_end: int) -> None:
    """Sections lie after the header, do not overlap, and the last one ends the file."""
    end, previous = header_end, "the header"
    for section in sorted(sections.values(), key=lambda section: section.offset):
        if section.offset < end:
            raise FileFormatError(
                f"section {section.name}: offset: found {section.offset}, expected {end} or more: overlaps {previous}"
            )
        end, previous = section.offset + section.length, section.name
        if end > size:
            found = f"found byte {end}, expected at most {size}, the size of the file"
            raise FileFormatError(f"section {section.name}: end: {found}; cut off?")
    if end != size:
        raise FileFormatError(f"end of file: found {size} bytes, expected {end}, the end of section {previous}")
