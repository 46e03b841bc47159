"""Execute notebooks in place and store their outputs, as `make record` does.

What differs from run to run is left out (times, the kernel's version, ids of widget views), so an unchanged
notebook stays unchanged. A notebook whose cell raises is left as it was.

Usage: python -m tools.record_notebooks [NOTEBOOK…]      default: every notebook under labs/
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from tools.bootstrap import ROOT, sandbox_environment

CELL_SECONDS = 120
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"


def all_notebooks() -> list[Path]:
    """Return the notebooks of the course, side trips last."""
    labs = ROOT / "labs"
    return sorted(labs.glob("*.ipynb")) + sorted(labs.glob("extra/*.ipynb"))


def client_for(notebook: nbformat.NotebookNode, folder: Path) -> NotebookClient:
    """Return what runs every cell in a new kernel of this Python, with `folder` as its working folder."""
    return NotebookClient(
        notebook,
        kernel_name="python3",
        timeout=CELL_SECONDS,
        resources={"metadata": {"path": str(folder)}},
        record_timing=False,
        store_widget_state=False,
        coalesce_streams=True,
    )


def execute(notebook: nbformat.NotebookNode, folder: Path) -> None:
    """Run every cell; raises CellExecutionError at the first one that raises."""
    client_for(notebook, folder).execute()


def normalise(notebook: nbformat.NotebookNode) -> None:
    """Drop what differs between runs and machines; cell ids stay."""
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", []):
            output.get("data", {}).pop(WIDGET_VIEW, None)


def record(path: Path) -> None:
    """Execute one notebook and write it where its text changed. Raises CellExecutionError."""
    before = path.read_text(encoding="utf-8")
    notebook = nbformat.reads(before, as_version=4)
    execute(notebook, path.parent)
    normalise(notebook)
    after = nbformat.writes(notebook) + "\n"
    if after == before:
        return
    unfinished = path.with_suffix(".tmp")
    unfinished.write_text(after, encoding="utf-8")
    unfinished.replace(path)


def main(arguments: Sequence[str]) -> int:
    """Record the named notebooks, or all; return the exit status."""
    failed = 0
    with tempfile.TemporaryDirectory(prefix="nanoqwen-record-", ignore_cleanup_errors=True) as folder:
        environment = sandbox_environment(os.environ, Path(folder)) | {"OMP_NUM_THREADS": "1"}
        os.environ.clear()
        os.environ.update(environment)
        for path in [Path(argument).resolve() for argument in arguments] or all_notebooks():
            start = time.monotonic()
            try:
                record(path)
            except CellExecutionError as error:
                failed += 1
                print(f"{path.name}: a cell failed, so the file is left as it was\n{error}", file=sys.stderr)
            else:
                print(f"{path.name}: {time.monotonic() - start:.1f} s", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
