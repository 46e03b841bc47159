"""Writing a .nanoqwen file piece by piece; nanoqwen_file.py says what the bytes mean.

Offsets are fixed before the first byte, from the config alone; checksums grow with the pieces and go into the header
last. The bytes live under a temporary name until the file is complete.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import xxhash

from lab_engine.config import ModelConfig
from lab_engine.errors import FileFormatError
from lab_engine.nanoqwen_file import (
    ALIGNMENT,
    MAGIC,
    NUMPY_DTYPES,
    PREAMBLE,
    QUANTIZATION,
    TOKENIZER,
    VERSION,
    Section,
    section_length,
    tensor_shapes,
)


class NanoqwenWriter:
    """Writes a file piece by piece: `with NanoqwenWriter(...) as writer: writer.append(name, array)`.

    Pieces of one section must come in order; sections may be interleaved. The bytes go to a temporary file
    beside `path`; it takes its name only when the block ends without an error and every section is full.
    """

    def __init__(self, path: Path, config: ModelConfig, tokenizer_spec: dict[str, Any], layout: str) -> None:
        """Lay out all sections of the config; nothing is written before the `with` block begins."""
        self.path = path
        self._temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        self._tokenizer = np.frombuffer(json.dumps(tokenizer_spec, ensure_ascii=False).encode(), np.uint8)
        self._config = config
        shapes = {**tensor_shapes(config), TOKENIZER: ("JSON", self._tokenizer.shape)}
        self._sections = self._place(shapes, layout)
        self._written = dict.fromkeys(shapes, 0)
        self._hashes = {name: xxhash.xxh3_64() for name in shapes}

    def _place(self, shapes: dict[str, tuple[str, tuple[int, ...]]], layout: str) -> dict[str, Section]:
        """Give every section its offset. Header and offsets depend on each other: repeat until both stand."""
        start = ALIGNMENT
        while True:
            offset, sections = start, {}
            for name, (dtype, shape) in shapes.items():
                length = section_length(dtype, shape)
                nibbles = layout if dtype == "INT4" else None
                sections[name] = Section(name, dtype, shape, offset, length, "0" * 16, nibbles)
                offset = _align(offset + length)
            needed = _align(len(self._beginning(sections)))
            if needed <= start:
                return sections
            start = needed

    def _beginning(self, sections: dict[str, Section]) -> bytes:
        entries = {}
        for name, section in sections.items():
            entries[name] = {k: v for k, v in asdict(section).items() if k != "name" and v is not None}
        return preamble_and_header(
            {"config": self._config.to_dict(), "quantization": QUANTIZATION, "sections": entries}
        )

    def __enter__(self) -> Self:
        """Open the temporary file; FileFormatError where the folder does not take one."""
        if self.path.is_dir():
            raise FileFormatError(f"{self.path}: is a folder; expected the name of a file to write")
        try:
            self._file = self._temporary.open("w+b")
        except OSError as error:
            raise FileFormatError(f"{self.path}: cannot be written ({error.strerror})") from None
        return self

    def append(self, name: str, piece: np.ndarray[Any, Any]) -> None:
        """Write the next piece of a section (any shape of the section's stored dtype)."""
        section = self._sections[name]
        piece = np.ascontiguousarray(piece)
        if piece.dtype != NUMPY_DTYPES[section.dtype] or self._written[name] + piece.nbytes > section.length:
            raise FileFormatError(f"section {name}: piece of {piece.nbytes} bytes of {piece.dtype} does not fit")
        self._file.seek(section.offset + self._written[name])
        self._file.write(piece.data)
        self._hashes[name].update(piece.data)
        self._written[name] += piece.nbytes

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Rename the finished file into place, or remove the unfinished one."""
        try:
            with self._file:
                if error is None:
                    self._finish()
            if error is None:
                self._temporary.replace(self.path)
        except OSError as failure:
            raise FileFormatError(f"{self.path}: cannot be written ({failure.strerror})") from None
        finally:
            self._temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise FileFormatError(f"{self.path}: cannot be written ({error.strerror})") from None

    def _finish(self) -> None:
        self.append(TOKENIZER, self._tokenizer)
        for name, section in self._sections.items():
            if self._written[name] != section.length:
                raise FileFormatError(f"section {name}: {self._written[name]} of {section.length} bytes written")
        sections = {
            name: replace(section, xxh3=self._hashes[name].hexdigest()) for name, section in self._sections.items()
        }
        self._file.seek(0)
        self._file.write(self._beginning(sections))
        self._file.flush()
        os.fsync(self._file.fileno())


def preamble_and_header(header: dict[str, Any] | bytes) -> bytes:
    """The bytes before the sections, with the right length and checksum; a dict is written as JSON."""
    text = header if isinstance(header, bytes) else json.dumps(header, separators=(",", ":")).encode()
    return PREAMBLE.pack(MAGIC, VERSION, len(text), xxhash.xxh3_64_intdigest(text)) + text


def _align(offset: int) -> int:
    return -(-offset // ALIGNMENT) * ALIGNMENT
