"""What the same tensors cost as .nanoqwen and as safetensors: bytes, opening, the first row, resident memory.

`write_safetensors` copies the sections of a file, so both hold the same INT4 words, scales and vectors. Each way of
reading is measured in a process of its own, which runs this module.
"""

from __future__ import annotations

import gc
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from lab_engine.errors import NanoqwenError
from lab_engine.file_map import regions
from lab_engine.nanoqwen_file import NanoqwenFile
from lab_engine.processes import output_of

_RUNS = 9
_PIECE_BYTES = 1 << 16


@dataclass(frozen=True)
class ReadCost:
    """What one of READERS took, in seconds and bytes.

    num_bytes: of the file. open_seconds, row_seconds: medians. resident_bytes: what the process holds more after it
    opened the file and read one row, pages of the file included. row: that row, as hexadecimal digits.
    """

    reader: str
    num_bytes: int
    open_seconds: float
    row_seconds: float
    resident_bytes: int
    row: str


def write_safetensors(file: NanoqwenFile, out: Path) -> Path:
    """Write every tensor of the file to `out`, INT4 as int32 words; the tokenizer has no place there."""
    from safetensors.numpy import save

    content = save({name: file.array(name) for name, section in file.sections.items() if section.dtype != "JSON"})
    with out.open("wb") as copy:  # Linux maps together what came by one write: small pieces, for a fair comparison
        for start in range(0, len(content), _PIECE_BYTES):
            copy.write(content[start : start + _PIECE_BYTES])
    return out


def bytes_by_part(path: Path) -> dict[str, int]:
    """Bytes of a .nanoqwen or safetensors file: all, tensors, tokenizer, header (what precedes it too), padding."""
    parts = {"all": path.stat().st_size, "tensors": 0, "tokenizer": 0, "header": 0, "padding": 0}
    if path.suffix == ".safetensors":
        with path.open("rb") as file:
            parts["header"] = 8 + int.from_bytes(file.read(8), "little")
        parts["tensors"] = parts["all"] - parts["header"]
        return parts
    kinds = {"preamble": "header", "header": "header", "padding": "padding", "JSON": "tokenizer"}
    for region in regions(NanoqwenFile(path)):
        parts[kinds.get(region.kind, "tensors")] += region.length
    return parts


def measure(reader: str, path: Path, tensor: str, row: int) -> ReadCost:
    """Read row `row` of `tensor` with one of READERS, in a new process; NanoqwenError with its reason if it fails."""
    if reader not in READERS:
        raise NanoqwenError(f"reader {reader!r}: expected one of {'; '.join(READERS)}")
    command = [sys.executable, "-m", "lab_engine.file_comparison", reader, str(path), tensor, str(row)]
    return ReadCost(**json.loads(output_of(command)))


def _open_mapped(path: Path) -> Any:
    return NanoqwenFile(path).array


def _open_lazily(path: Path) -> Any:
    from safetensors import safe_open

    return safe_open(path, "numpy").get_slice


def _open_whole(path: Path) -> Any:
    from safetensors.numpy import load_file

    return load_file(path).__getitem__


READERS: dict[str, Callable[[Path], Any]] = {
    ".nanoqwen, mapped": _open_mapped,
    "safetensors, one row asked for": _open_lazily,
    "safetensors, all loaded": _open_whole,
}
"""Ways to open a file; what comes back gives a tensor by its name, and that a row by its number. None needs torch."""


def _measure_here(reader: str, path: Path, tensor: str, row: int) -> ReadCost:
    open_file, seconds = READERS[reader], []
    content = open_file(path)(tensor)[row].tobytes().hex()  # libraries load what they need at the first call
    gc.collect()
    before = psutil.Process().memory_info().rss
    held = open_file(path)
    first = held(tensor)[row]
    resident = psutil.Process().memory_info().rss - before
    del held, first
    for _ in range(_RUNS):
        start = time.perf_counter()
        held = open_file(path)
        opened = time.perf_counter()
        held(tensor)[row].tobytes()
        seconds.append((opened - start, time.perf_counter() - opened))
    opening, reading = (statistics.median(column) for column in zip(*seconds, strict=True))
    return ReadCost(reader, path.stat().st_size, opening, reading, max(resident, 0), content)


if __name__ == "__main__":
    name, file, wanted, at = sys.argv[1:]
    print(json.dumps(asdict(_measure_here(name, Path(file), wanted, int(at)))))
