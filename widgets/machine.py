"""What this machine says of itself, as LiveTables: versions of the notebook packages, backends, passed exercises.

Their text/plain is that of a machine where all is well and no GPU is there, so a notebook's stored output stays true.
"""

from importlib.metadata import PackageNotFoundError, version

from lab_engine.backends import availability
from lab_engine.bench.decode import decode_tiny
from lab_engine.bench.machine import LoadMeter
from lab_engine.checks import progress
from widgets.evidence import Table
from widgets.live_table import LiveTable
from widgets.playground import Badge

NEEDED = {"jupyterlab": 4, "ipywidgets": 8, "jupyterlab_widgets": 3, "anywidget": 0}
"""Packages behind a moving picture and the least major version of each."""

HERE = Badge("measured", "this machine, when the cell ran")


def self_check() -> LiveTable:
    """Can this environment show moving pictures? The text is one line when it can, and names what cannot otherwise."""
    found = {name: _version(name) for name in NEEDED}
    wrong = [name for name, least in NEEDED.items() if not _is_at_least(found[name], least)]
    rows = tuple(
        (name, found[name] or "missing", f"{least} or newer" if least else "any", "no" if name in wrong else "yes")
        for name, least in NEEDED.items()
    )
    advice = "".join(f"\n{name}: found {found[name] or 'none'}, run make lab again" for name in wrong)
    answer = f"Moving pictures: {'no' if wrong else 'yes'}{advice}"
    return LiveTable(Table("Self-check", ("package", "version here", "needed", "good"), rows, HERE), answer)


def backends_table() -> LiveTable:
    """The backends as `nanoqwen doctor` finds them here."""
    rows = tuple((one.name, "yes" if one.available else "no", one.reason) for one in availability())
    text = "Backends of this machine: in the picture; `nanoqwen doctor` prints them too"
    return LiveTable(Table("Backends of this machine", ("backend", "runs here", "why"), rows, HERE), text)


def decode_table() -> LiveTable:
    """Tokens a second of the shipped model in the fastest form of this machine, and what its bytes allow."""
    load = LoadMeter()
    found = decode_tiny("auto")
    rows = [("decode, shipped model", f"{found.value:,.0f} tok/s", f"{1000 / found.value:.2f} ms")]
    if found.limit:
        allowed = "what its bytes and this machine's bandwidth allow"
        rows.append((allowed, f"{found.limit:,.0f} tok/s", f"{1000 / found.limit:.2f} ms"))
        rows.append(("share of the limit", f"{100 * found.value / found.limit:.0f} %", "–"))
    rows.append(("cores that other programs took meanwhile", f"{load.read()['other_cores']:.1f}", "–"))
    verdict = "the output is right" if found.passed else "THE OUTPUT IS WRONG, so the times mean nothing"
    text = f"Speed of the shipped model here: in the picture; {verdict}"
    return LiveTable(Table("Speed of the shipped model here", ("what", "rate", "a token"), tuple(rows), HERE), text)


def progress_table() -> LiveTable:
    """The exercises that the learner has passed, lab by lab."""
    rows = tuple(
        (lab.lab, f"{len(lab.passed)} of {len(lab.passed) + len(lab.open)}", ", ".join(lab.open) or "–")
        for lab in progress.summary()
    )
    text = "Your progress: in the picture; `nanoqwen progress` prints it too"
    note = progress.problem() or ""
    return LiveTable(Table("Your progress", ("lab", "passed", "still open"), rows, note=note), text)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _is_at_least(found: str, least: int) -> bool:
    major = found.split(".", maxsplit=1)[0]
    return major.isdigit() and int(major) >= least
