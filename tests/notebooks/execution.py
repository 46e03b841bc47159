"""Run a notebook in a new kernel, as `make record` does, and ask how long its cells took.

`python -m tests.notebooks.execution` prints, for every notebook and its slowest cells, wall seconds and seconds on a
core; the second number is the one to look at on a busy machine. The first cell's include the kernel's start.
"""

import json
import os
import sys
import time
from pathlib import Path

import nbformat
import psutil

from tools.bootstrap import ROOT
from tools.record_notebooks import client_for

LABS = ROOT / "labs"
NOTEBOOKS = sorted(LABS.rglob("*.ipynb"))


def read(path: Path) -> nbformat.NotebookNode:
    return nbformat.read(path, as_version=4)


def code_cells(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def cell_with(source: str) -> nbformat.NotebookNode:
    return nbformat.v4.new_code_cell(source)


def execute(notebook: nbformat.NotebookNode, **environment: str) -> nbformat.NotebookNode:
    """The notebook with new outputs; raises CellExecutionError at the first cell that raises.

    metadata.seconds of a code cell: [wall seconds, the kernel's seconds on a core], since the cell before it.
    """

    def note(cell: nbformat.NotebookNode, **_: object) -> None:
        now = time.perf_counter(), sum(psutil.Process(client.km.provisioner.pid).cpu_times()[:2])
        cell.metadata["seconds"] = [after - before for after, before in zip(now, marks[-1], strict=True)]
        marks.append(now)

    marks = [(time.perf_counter(), 0.0)]
    client = client_for(notebook, LABS)
    client.on_cell_executed = note
    client.execute(env={**os.environ, **environment})
    return notebook


def printed_json(cell: nbformat.NotebookNode) -> object:
    """What a cell that prints one JSON value printed."""
    return json.loads("".join(output.text for output in cell.outputs if output.output_type == "stream"))


def main(paths: list[Path]) -> None:
    for path in paths:
        cells = code_cells(execute(read(path)))
        total = [sum(cell.metadata.seconds[kind] for cell in cells) for kind in (0, 1)]
        print(f"{path.name}: {total[0]:.1f} s in all, {total[1]:.1f} s of it on a core")
        for cell in sorted(cells, key=lambda cell: cell.metadata.seconds, reverse=True)[:6]:
            print(f"  {cell.metadata.seconds[0]:5.1f} s {cell.metadata.seconds[1]:5.1f} s  {cell.id}")


if __name__ == "__main__":
    main([Path(argument) for argument in sys.argv[1:]] or NOTEBOOKS)
