"""Rebuild a .nanoqwen file with another header, checksum and all: what is left to find is the damaged structure."""

import json
from pathlib import Path

import xxhash

from lab_engine.nanoqwen_file import MAGIC, PREAMBLE, VERSION


class GoodFile:
    """A good file in parts: header (JSON), data (all bytes), length (bytes of the header)."""

    def __init__(self, path: Path) -> None:
        self.data = path.read_bytes()
        self.length = PREAMBLE.unpack_from(self.data)[2]
        self.header = json.loads(self.data[PREAMBLE.size : PREAMBLE.size + self.length])

    def with_header(self, header: dict | bytes) -> bytes:
        """The file with another header; sections stay where they are as long as the header fits before them."""
        room = PREAMBLE.size + self.length
        start = preamble_and_header(header)
        return start.ljust(room, b" ") + self.data[max(room, len(start)) :]


def preamble_and_header(header: dict | bytes) -> bytes:
    """The bytes before the sections, with the right length and checksum."""
    text = header if isinstance(header, bytes) else json.dumps(header, separators=(",", ":")).encode()
    return PREAMBLE.pack(MAGIC, VERSION, len(text), xxhash.xxh3_64_intdigest(text)) + text
