"""What a learner has passed: one small JSON file in the user's data folder.

NANOQWEN_PROGRESS names another file. A verdict never depends on it and a problem with it never reaches a notebook:
recording is silent, reading counts a broken file as empty and says so in `problem()`. No torch here.
"""

import json
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lab_engine.errors import NanoqwenError

if TYPE_CHECKING:
    from rich.table import Table

LABS = {
    "00_tour": ("greedy", "bytes_per_step"),
    "01_int4": ("quantize_rows", "pack_words", "shuffle_words"),
    "02_nanoqwen_file": ("parse_header", "row_bytes", "damaged_sections", "damage_file"),
    "03_gemv": ("lane_load", "dequantize_word", "gemv_seconds"),
    "04_kv_pages": ("locate", "pages_and_tail", "append"),
    "05_paged_attention": ("online_softmax_update", "attend_page", "combine", "bug_clinic"),
    "08_decoder": ("quantize_int8", "top_p_probs", "visible_tokens"),
}
"""The exercises of each lab by name, in order. Here, so that progress can be shown without loading the checkers."""


@dataclass(frozen=True)
class LabProgress:
    """One lab: which of its exercises are passed, which are open."""

    lab: str
    passed: tuple[str, ...]
    open: tuple[str, ...]


def path() -> Path:
    """The file: $NANOQWEN_PROGRESS, or nanoqwen-lab/progress.json in the user's data folder of this system."""
    moved = os.environ.get("NANOQWEN_PROGRESS")
    if moved:
        return Path(moved).expanduser()
    return _data_folder() / "nanoqwen-lab" / "progress.json"


def _data_folder() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support"
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")


def summary() -> list[LabProgress]:
    """Every lab that has exercises, in order."""
    done = _read()[0]
    return [
        LabProgress(
            lab,
            passed=tuple(name for name in names if name in done.get(lab, ())),
            open=tuple(name for name in names if name not in done.get(lab, ())),
        )
        for lab, names in LABS.items()
    ]


def problem() -> str | None:
    """One line if the file is there but can't be used, else None."""
    return _read()[1]


def as_table(labs: list[LabProgress]) -> "Table":
    """A rich table of summary()."""
    from rich.table import Table

    table = Table("lab", "passed", "exercises")
    for lab in labs:
        marks = [f"[green]✓[/] {name}" for name in lab.passed] + [f"○ {name}" for name in lab.open]
        table.add_row(lab.lab, f"{len(lab.passed)} of {len(lab.passed) + len(lab.open)}", "  ".join(marks))
    return table


def record(lab: str, exercise: str) -> None:
    """Remember a pass. Silent when the file can't be written: a checker must not fail because of it."""
    try:
        done = _read()[0]
        if exercise not in done.get(lab, []):
            done.setdefault(lab, []).append(exercise)
            _write(done)
    except (OSError, RuntimeError):  # RuntimeError: a user without a home folder
        return


def reset() -> None:
    """Forget everything. NanoqwenError if the file can't be removed, or is no progress file: then it is another's."""
    try:
        file = path()
    except RuntimeError as error:  # a user without a home folder
        raise NanoqwenError(f"progress file: {error}; set NANOQWEN_PROGRESS to a path") from None
    if not file.exists() and not file.is_symlink():
        return
    if not file.is_file() or _read()[1]:
        raise NanoqwenError(f"progress file {file} can't be removed: it is no record of passed exercises")
    try:
        file.unlink(missing_ok=True)
    except OSError as error:
        raise NanoqwenError(f"progress file {file} can't be removed: {error.strerror}") from None


def _read() -> tuple[dict[str, list[str]], str | None]:
    try:
        file = path()
    except RuntimeError:  # a user without a home folder
        return {}, None
    try:
        done = json.loads(file.read_text(encoding="utf-8"))["passed"]
    except FileNotFoundError:
        return {}, None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        return {}, _broken(file, type(error).__name__)
    if not isinstance(done, dict) or not all(_is_names(names) for names in done.values()):
        return {}, _broken(file, "it does not hold lists of names")
    return done, None


def _is_names(names: object) -> bool:
    return isinstance(names, list) and all(isinstance(name, str) for name in names)


def _broken(file: Path, why: str) -> str:
    return f"progress file {file} can't be read ({why}): counted as empty; the next passed exercise writes it anew"


def _write(done: dict[str, list[str]]) -> None:
    """Through a temporary file and a rename, so that a half-written file never has the final name."""
    file = path()
    if file.exists() and not file.is_file():
        raise FileExistsError(f"{file} is no regular file")
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=file.name, suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            json.dump({"version": 1, "passed": done}, out, indent=1)
        Path(temporary).replace(file)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
