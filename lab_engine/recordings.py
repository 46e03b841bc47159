"""Recordings: measurements taken once on an H200, each with all one needs to judge it or to take it again.

data/h200/NAME.json holds `name`, `provenance` and `data`; data/h200/README.md describes them, tools/record_h200.py
writes them. What breaks one: a missing or unknown field, or a source that has changed since it was measured.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from lab_engine import data_path
from lab_engine.errors import RecordingError

_ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Provenance:
    """Where a measurement comes from.

    versions: package -> version; clocks_mhz: `sm` and `memory`, read under load; date: YYYY-MM-DD; sources: path from
    the project's folder -> source_hash of the kernel that was measured, or of the code that did what was timed.
    """

    device: str
    driver: str
    cuda: str
    versions: dict[str, str]
    clocks_mhz: dict[str, int]
    date: str
    command: str
    commit: str
    sources: dict[str, str]


@dataclass(frozen=True)
class Recording:
    """One file of data/h200, checked."""

    name: str
    provenance: Provenance
    data: dict[str, Any]

    @property
    def badge_source(self) -> str:
        """The words of a `recorded` badge: device, versions, clocks, date, command."""
        origin = self.provenance
        clocks = f"SM {origin.clocks_mhz['sm']} MHz, memory {origin.clocks_mhz['memory']} MHz"
        made = f"{origin.date}, commit {origin.commit[:7]}: {origin.command}"
        return f"{origin.device}, driver {origin.driver}, CUDA {origin.cuda}, {clocks}, {made}"


_RECORDING = {"name": str, "provenance": dict, "data": dict}
_PROVENANCE = {field.name: dict if str(field.type).startswith("dict") else str for field in fields(Provenance)}
_CLOCKS = {"sm": int, "memory": int}
_JSON_WORDS = {str: "a string", dict: "an object", int: "a whole number"}


def source_hash(source: str) -> str:
    """SHA-256 of the text of a source file, in hexadecimal digits; RecordingError names one that is not there.

    source: its path from the project's folder, such as "lab_engine/kernels/unpack.cuh".
    """
    path = (_ROOT / source).resolve()
    if not path.is_relative_to(_ROOT) or not path.is_file():
        raise RecordingError(f"source {source!r}: expected a file of the project, by its path from {_ROOT}")
    return hashlib.sha256(path.read_text(encoding="utf-8").encode()).hexdigest()


def load_recording(name: str) -> Recording:
    """The recording data/h200/NAME.json.

    Raises RecordingError for a file that is not JSON, has a missing, unknown or empty field, or was made with other
    sources than the project has now; NanoqwenError where there is none of this name.
    """
    if not re.fullmatch(r"[a-z0-9_]+", name):
        raise RecordingError(f"recording {name!r}: expected a name of small letters, digits and _")
    path = data_path(f"h200/{name}.json")
    return parse_recording(path.read_text(encoding="utf-8"), path)


def parse_recording(text: str, path: Path) -> Recording:
    """Check the text of a recording, as load_recording does; path: where it lies or will lie."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RecordingError(f"{path}: not JSON ({error})") from None
    _check_fields(content, _RECORDING, str(path))
    if content["name"] != path.stem:
        raise RecordingError(f"{path}: name is {content['name']!r}, expected {path.stem!r}")
    _check_fields(content["provenance"], _PROVENANCE, f"{path}: provenance")
    _check_fields(content["provenance"]["clocks_mhz"], _CLOCKS, f"{path}: provenance: clocks_mhz")
    for source, recorded in content["provenance"]["sources"].items():
        _check_source(source, recorded, path)
    return Recording(content["name"], Provenance(**content["provenance"]), content["data"])


def require(recording: object, name: str, parts: Collection[str]) -> None:
    """RecordingError unless it is the recording `name`, with all these parts in its data."""
    if not isinstance(recording, Recording):
        raise RecordingError(f"recording: found {type(recording).__name__}, expected load_recording({name!r})")
    if missing := [part for part in parts if recording.data.get(part) is None]:
        raise RecordingError(
            f"recording {recording.name}: no {missing[0]!r} in it, expected load_recording({name!r}) with"
            f" {', '.join(parts)}"
        )


def _check_fields(found: Any, wanted: Mapping[str, type], where: str) -> None:
    """Refuse anything but an object with exactly these fields, each of its type and not empty."""
    if not isinstance(found, dict):
        raise RecordingError(f"{where}: expected an object, found {type(found).__name__}")
    for name, kind in wanted.items():
        if not found.get(name):
            raise RecordingError(f"{where}: {name} is missing or empty; take the recording again")
        if not isinstance(found[name], kind):
            raise RecordingError(f"{where}: {name} is {found[name]!r}, expected {_JSON_WORDS[kind]}")
    if unknown := [name for name in found if name not in wanted]:
        raise RecordingError(f"{where}: unknown field {unknown[0]}; expected {', '.join(wanted)}")


def _check_source(source: str, recorded: str, path: Path) -> None:
    """Refuse a source that is not in the project, or that is no longer what was measured."""
    try:
        current = source_hash(source)
    except RecordingError as error:
        raise RecordingError(f"{path}: {error}") from None
    if current != recorded:
        raise RecordingError(
            f"{path}: older than {source} (recorded source {recorded!s:.12}…, now {current:.12}…); "
            f"run python3 -m tools.record_h200 {path.stem} on an H200"
        )
