"""What Nsight Compute's counters say of every rung at one shape: its memory's load, its issue slots, why warps wait.

python3 -m tools.h200_gemv_ncu N K          run every rung once, to be profiled
"""

from __future__ import annotations

import csv
import math
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from lab_engine.errors import NanoqwenError

STAGE = "gate_up"
SECTIONS = ("SpeedOfLight", "SchedulerStats", "WarpStateStats")
SECONDS = 30

_DRAM = re.compile(r"dram_{1,2}throughput\.avg\.pct_of_peak_sustained_elapsed$")
_ISSUE = re.compile(r"smsp__issue_active\.avg\.per_cycle_active$")
_TIME = re.compile(r"gpu__time_duration\.\w+$")
_STALL = re.compile(r"issue_stalled_(\w+?)_per_issue_active\.ratio$")


def profile(shape: tuple[int, int]) -> dict[str, dict[str, Any] | None]:
    """By rung: `dram_percent` of the peak, `issue_percent` of issue slots used, `stall`: the commonest reason to wait.

    Empty where ncu is missing or gives nothing; then says why on stdout.
    """
    from lab_engine.gemv_ladder import RUNGS

    if not shutil.which("ncu"):
        print("ncu: not on PATH")
        return {}
    options = [option for section in SECTIONS for option in ("--section", section)]
    command = ["ncu", "--clock-control", "none", "--csv", "--page", "raw", "--kernel-name", "regex:^gemv_", *options]
    command += [sys.executable, "-m", __spec__.name, *map(str, shape)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        print(f"ncu: not done after {SECONDS} s")
        return {}
    rows = rows_of(done.stdout)
    if done.returncode or not rows:
        print(f"ncu: {' '.join((done.stdout + done.stderr)[-1000:].split())}")
    return {name: counters(rows, rung.kernel) for name, rung in RUNGS.items()}


def rows_of(output: str) -> list[dict[str, str]]:
    """One row for each kernel that ran, from the CSV behind what ncu and the program print."""
    lines = output.splitlines()
    starts = [place for place, line in enumerate(lines) if line.startswith('"ID",')]
    return list(csv.DictReader(lines[starts[0] :]))[1:] if starts else []  # the first row holds units


def counters(rows: list[dict[str, str]], kernel: str) -> dict[str, Any] | None:
    """The counters of the kernel that ran for the longest of those whose name begins so; None where there is none."""
    own = [row for row in rows if row.get("Kernel Name", "").startswith(kernel)]
    if not own:
        return None
    row = max(own, key=lambda found: _number(found, _TIME) or 0.0)
    found = {match[1]: _float(value) for key, value in row.items() if (match := _STALL.search(key))}
    stalls = {reason: value for reason, value in found.items() if value is not None and reason != "selected"}
    return {
        "dram_percent": _rounded(row, _DRAM),
        "issue_percent": _rounded(row, _ISSUE, 100),
        "stall": max(stalls, key=lambda reason: stalls[reason], default=None),
    }


def _number(row: Mapping[str, str], pattern: re.Pattern[str]) -> float | None:
    return next((_float(value) for key, value in row.items() if pattern.search(key)), None)


def _float(value: str) -> float | None:
    """A number as ncu writes it, 1,002.5; None for what it writes instead of one, such as n/a."""
    try:
        number = float(value.replace(",", ""))
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _rounded(row: Mapping[str, str], pattern: re.Pattern[str], factor: int = 1) -> float | None:
    found = _number(row, pattern)
    return None if found is None else round(factor * found, 1)


def run_all(n: int, k: int) -> None:
    """One product by every rung that can run."""
    import torch

    from lab_engine.gemv_ladder import RUNGS, load
    from lab_engine.gemv_token import random_matrix

    matrix = random_matrix(n, k, torch.Generator("cuda").manual_seed(0))
    x = torch.randn(k, device="cuda").to(torch.float16)
    for name in RUNGS:
        try:
            load(name, matrix.words, matrix.scales)(x)
        except NanoqwenError as error:
            print(f"{name}: {error}")
    torch.cuda.synchronize()


if __name__ == "__main__":
    run_all(int(sys.argv[1]), int(sys.argv[2]))
