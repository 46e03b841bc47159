"""The kernels of the course. CUDA sources are text, compiled when they are needed and read by the emulator.

paged_attention_triton.py is a module that needs Triton; nothing here imports it.
"""

from __future__ import annotations

from pathlib import Path

from lab_engine.errors import NanoqwenError

FOLDER = Path(__file__).resolve().parent
"""Where the sources lie; the compiler looks for `#include "…"` here."""


def read_source(name: str) -> str:
    """The text of a source file of this folder, such as "unpack.cuh"; NanoqwenError names one that is not there."""
    try:
        return (FOLDER / name).read_text(encoding="utf-8")
    except OSError:
        known = ", ".join(sorted(path.name for path in FOLDER.glob("*.cu*")))
        raise NanoqwenError(f"kernel source {name!r}: not in {FOLDER}; expected one of {known}") from None
