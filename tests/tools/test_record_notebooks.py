"""What `make record` stores, and what it leaves out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from tools import record_notebooks

WIDGET = """
from IPython.display import display
display({"text/plain": "state", "application/vnd.jupyter.widget-view+json": {"model_id": "1"}}, raw=True)
"""


@pytest.fixture
def fresh_notebook(tmp_path: Path) -> Path:
    """Return a notebook that was never executed, with metadata of another machine."""
    cells = [
        new_code_cell("from pathlib import Path\nPath.cwd().name", id="where"),
        new_code_cell(WIDGET, id="widget", metadata={"execution": {"iopub.execute_input": "2020-01-01"}}),
        new_code_cell("import sys\nprint('a'); print('b')\nsys.prefix", id="kernel"),
    ]
    metadata = {
        "kernelspec": {"name": "elsewhere", "display_name": "Elsewhere", "language": "python"},
        "language_info": {"name": "python", "version": "3.8.1"},
        "widgets": {"state": {}},
    }
    path = tmp_path / "labs" / "99_probe.ipynb"
    path.parent.mkdir()
    nbformat.write(new_notebook(cells=cells, metadata=metadata), path)
    return path


def test_recording_runs_every_cell_in_its_folder_with_this_python(fresh_notebook: Path) -> None:
    record_notebooks.record(fresh_notebook)
    where, widget, kernel = nbformat.read(fresh_notebook, as_version=4).cells
    assert [where.execution_count, widget.execution_count, kernel.execution_count] == [1, 2, 3]
    assert where.outputs[0].data == {"text/plain": "'labs'"}
    assert kernel.outputs[0].text == "a\nb\n"
    assert kernel.outputs[1].data["text/plain"] == repr(sys.prefix)


def test_recording_keeps_ids_and_drops_what_differs_between_machines(fresh_notebook: Path) -> None:
    record_notebooks.record(fresh_notebook)
    notebook = nbformat.read(fresh_notebook, as_version=4)
    assert [cell.id for cell in notebook.cells] == ["where", "widget", "kernel"]
    assert notebook.metadata.kernelspec.name == "python3"
    assert notebook.metadata.language_info == {"name": "python"}
    assert "widgets" not in notebook.metadata
    assert "execution" not in notebook.cells[1].metadata
    assert notebook.cells[1].outputs[0].data == {"text/plain": "state"}


def test_recording_twice_changes_nothing(fresh_notebook: Path) -> None:
    record_notebooks.record(fresh_notebook)
    first = fresh_notebook.stat()
    record_notebooks.record(fresh_notebook)
    assert fresh_notebook.stat().st_mtime_ns == first.st_mtime_ns


def test_a_failing_cell_leaves_the_file_as_it_was(fresh_notebook: Path) -> None:
    notebook = nbformat.read(fresh_notebook, as_version=4)
    notebook.cells[1].source = "1 / 0"
    nbformat.write(notebook, fresh_notebook)
    before = fresh_notebook.read_bytes()
    command = [sys.executable, "-m", "tools.record_notebooks", str(fresh_notebook)]
    result = subprocess.run(command, cwd=record_notebooks.ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "99_probe.ipynb: a cell failed" in result.stderr
    assert fresh_notebook.read_bytes() == before
    assert list(fresh_notebook.parent.iterdir()) == [fresh_notebook]
