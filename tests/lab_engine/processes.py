"""Run `python -m lab_engine` in a process of its own, from a folder that is not the project's."""

import os
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]


def environment(**changes):
    """This process's environment with the project importable and one thread; None removes a variable."""
    merged = {**os.environ, "PYTHONPATH": str(PROJECT), "OMP_NUM_THREADS": "1", **changes}
    return {key: value for key, value in merged.items() if value is not None}


def nanoqwen(*arguments, folder, **environment_changes):
    """The finished process; stdout and stderr are text."""
    return subprocess.run(
        [sys.executable, "-m", "lab_engine", *map(str, arguments)],
        cwd=folder,
        env=environment(**environment_changes),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def python(code, *arguments, folder, stdout=subprocess.PIPE):
    """A running process of `python -c code`; stdout and stderr are text."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=folder,
        env=environment(),
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
    )
