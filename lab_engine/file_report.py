"""What `nanoqwen inspect` says about a .nanoqwen file, as JSON values and as tables. No torch here."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from lab_engine.nanoqwen_file import MAGIC, NanoqwenFile, Section

if TYPE_CHECKING:
    from rich.table import Table


def damaged_sections(file: NanoqwenFile) -> list[str]:
    """Names of the sections with a wrong checksum, with a bar on stderr: this reads the whole file."""
    damaged = []
    with tqdm(total=file.size, unit="B", unit_scale=True, desc="checksums", leave=False) as bar:
        for section, intact in file.checksums():
            bar.update(section.length)
            if not intact:
                damaged.append(section.name)
    return damaged


def as_dict(file: NanoqwenFile, damaged: list[str] | None) -> dict[str, Any]:
    """Everything as plain JSON values; damaged is None where nobody looked."""
    return {
        "path": str(file.path),
        "bytes": file.size,
        "version": file.version,
        "header_bytes": file.header_length,
        "config": file.config.to_dict(),
        "quantization": file.header["quantization"],
        "sections": {name: asdict(section) for name, section in file.sections.items()},
        "damaged": damaged,
    }


def as_tables(file: NanoqwenFile, damaged: list[str] | None) -> list[Table | str]:
    """Preamble and config, then the sections one row a tensor."""
    checked = "not checked (--verify reads everything)" if damaged is None else "DAMAGED" if damaged else "all intact"
    preamble = {
        "file": f"{file.path}",
        "bytes": f"{file.size:,}",
        "magic, version": f"{MAGIC.decode()}, {file.version}",
        "header": f"{file.header_length:,} bytes",
        "quantization": ", ".join(f"{key} {value}" for key, value in file.header["quantization"].items()),
        "nibble layout": ", ".join(_layouts(file)),
        "checksums": checked,
    }
    config = file.config.to_dict()
    return [_pairs("preamble and header", preamble), _pairs("config", config), _sections(file, damaged or [])]


def _pairs(title: str, values: dict[str, Any]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", show_header=False)
    for key, value in values.items():
        table.add_row(key, Text(str(value), overflow="fold"))
    return table


def _sections(file: NanoqwenFile, damaged: list[str]) -> Table:
    """One row a tensor, with its layers folded into one; the layout only where the file mixes them."""
    from rich.table import Table

    table = Table("section", "layers", "dtype", "shape", title="sections", title_justify="left")
    table.add_column("bytes", justify="right")
    mixed = len(_layouts(file)) > 1
    for name, group in _by_tensor(file).items():
        first = group[0]
        layers = "" if first.name == name else f"0–{len(group) - 1}"
        dtype = f"{first.dtype} {first.layout}" if mixed and first.layout else first.dtype
        total = f"{sum(section.length for section in group):,}"
        hurt = any(section.name in damaged for section in group)
        table.add_row(name, layers, dtype, " × ".join(map(str, first.shape)), total, style="red" if hurt else None)
    return table


def _by_tensor(file: NanoqwenFile) -> dict[str, list[Section]]:
    """Sections in file order by their name without `model.layers.N.`."""
    groups: dict[str, list[Section]] = {}
    for section in file.sections.values():
        groups.setdefault(re.sub(r"^model\.layers\.\d+\.", "", section.name), []).append(section)
    return groups


def _layouts(file: NanoqwenFile) -> list[str]:
    return sorted({section.layout for section in file.sections.values() if section.layout})
