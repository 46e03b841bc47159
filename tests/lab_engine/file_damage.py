"""A good .nanoqwen file in parts, for tests that damage it."""

from pathlib import Path

from lab_engine import damaged_files
from lab_engine.nanoqwen_file import PREAMBLE, parse_header


class GoodFile:
    """A good file in parts: header (JSON), data (all bytes), length (bytes of the header)."""

    def __init__(self, path: Path) -> None:
        self.data = path.read_bytes()
        self.length = PREAMBLE.unpack_from(self.data)[2]
        self.header = parse_header(self.data)[1]

    def with_header(self, header: dict | bytes) -> bytes:
        """The file with another header, its length and checksum right."""
        return damaged_files.with_header(self.data, header)
