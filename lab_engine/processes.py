"""Programs that are started to measure a process as a whole. No torch here."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import lab_engine
from lab_engine.errors import NanoqwenError


def output_of(command: list[str]) -> bytes:
    """What the command prints; NanoqwenError with its last line where it fails."""
    done = subprocess.run(command, capture_output=True, check=False, env=child_environment())
    if done.returncode:
        raise NanoqwenError(f"{' '.join(command[1:4])}: ended with {done.returncode}: {last_line(done.stderr)}")
    return done.stdout


def child_environment() -> dict[str, str]:
    """This process's, and lab_engine can be imported from any folder."""
    paths = [str(Path(lab_engine.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def last_line(text: bytes) -> str:
    """For one line about what a process printed."""
    lines = text.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"
