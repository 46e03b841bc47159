"""What nbval alone does not see: that it compares something, that pictures are true, that texts hold on every machine.

`pytest --nbval labs` compares the stored outputs with those of a new run; these tests look at what it skips.
"""

import base64
import io
import json
import os
import re
import subprocess
import sys

import nbformat
import numpy as np
import pytest
from PIL import Image

from tests.notebooks.execution import NOTEBOOKS, cell_with, code_cells, execute, printed_json, read
from tools.bootstrap import ROOT
from tools.record_notebooks import WIDGET_VIEW, record
from widgets.chart_png import chart_in, chart_png
from widgets.live_table import LiveTable, table_in

IGNORE = "NBVAL_IGNORE_OUTPUT"

COLUMNS = 96
"""What JupyterLab shows of a code cell at a usual window; the rest is cut at the right."""

PIXELS = 40
"""Pixels of a redrawn PNG that may differ: letters of another platform's FreeType, never a digit."""

ROUNDING_SHARE = 5
"""A choice between two tokens is safe when the logits differ by this many times the rounding between CPUs."""

WATCH = """
import torch
from lab_engine.backends.torch import TorchBackend
margins, edges, choose, search = [], [], TorchBackend.argmax, torch.searchsorted

def argmax(self, logits):
    first, second = logits.topk(2).values.tolist()
    if self.dtype == torch.float32:
        margins.append(first - second)
    return choose(self, logits)

def searchsorted(cumulative, draw):
    edges.append(float((cumulative - draw).abs().min()))
    return search(cumulative, draw)

TorchBackend.argmax, torch.searchsorted = argmax, searchsorted
"""
REPORT = "import json; print(json.dumps({'margins': margins, 'edges': edges}))"

ALONG = """
import json, torch
from lab_engine.running_example import RUNNING_EXAMPLE, running_decoder
decoder = running_decoder()
ids = decoder.tokenizer.encode(RUNNING_EXAMPLE.prompt)
rows = [decoder.prefill(ids)]
for _ in range(40):
    rows.append(decoder.step(decoder.backend.argmax(rows[-1][: decoder.tokenizer.vocab_size])))
print(json.dumps(torch.stack(rows).tolist()))
"""


def named(paths):
    return pytest.mark.parametrize("path", paths, ids=[path.stem for path in paths])


def pictures(notebook):
    """(cell id, PNG) of every picture."""
    for cell in code_cells(notebook):
        for output in cell.outputs:
            if "image/png" in output.get("data", {}):
                yield cell.id, base64.b64decode(output.data["image/png"])


def texts(notebook):
    """What nbval compares of every code cell: streams, text/plain, text/html."""
    found = {}
    for cell in code_cells(notebook):
        if IGNORE not in cell.source:
            parts = [output.get("text", "") for output in cell.outputs]
            parts += [
                output.get("data", {}).get(kind, "") for output in cell.outputs for kind in ("text/plain", "text/html")
            ]
            found[cell.id] = [part for part in parts if part]
    return found


def differing_pixels(one, other):
    """Pixels that clearly differ; pictures of different sizes differ everywhere."""
    a, b = (np.asarray(Image.open(io.BytesIO(png)).convert("RGB"), dtype=int) for png in (one, other))
    return a.size if a.shape != b.shape else int((np.abs(a - b).max(axis=-1) > 48).sum())


def drawn_from_itself(png):
    """A picture of measured numbers again, from the numbers that it holds; None for a picture without any."""
    table, chart = table_in(png), chart_in(png)
    return LiveTable(table, "").png() if table else chart_png(chart) if chart else None


def headings(png):
    """What a picture of measured numbers says besides them: its title and its columns; None for any other picture."""
    table, chart = table_in(png), chart_in(png)
    return (table.title, table.columns) if table else chart.words.title if chart else None


@pytest.fixture(scope="module", params=NOTEBOOKS, ids=lambda path: path.stem)
def both(request):
    """A notebook as it is stored, and as a CPU without vector instructions runs it, watched."""
    stored = read(request.param)
    fresh = read(request.param)
    fresh.cells = [cell_with(WATCH), *fresh.cells, cell_with(REPORT)]
    execute(fresh, ATEN_CPU_CAPABILITY="default", OMP_NUM_THREADS="1")
    watched = printed_json(fresh.cells.pop())
    fresh.cells.pop(0)
    return stored, fresh, watched


@named(NOTEBOOKS)
def test_every_code_cell_was_run_in_order_and_shows_its_value(path):
    cells = code_cells(read(path))
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    for cell in cells:
        last = cell.source.rstrip().splitlines()[-1]
        shows = re.match(r"(print|[A-Za-z_]\w*(\.\w+|\[[^\]]*\])*(\(|$))", last) and not last.startswith(
            ("raise", "return")
        )
        assert cell.outputs or not shows, f"{path.name}, cell {cell.id}: ends with {last!r} and stores no output"
        assert all(output.output_type in ("execute_result", "display_data", "stream") for output in cell.outputs)
        assert not any(output.get("name") == "stderr" for output in cell.outputs), f"{cell.id} prints to stderr"


@named(NOTEBOOKS)
def test_nothing_is_stored_that_only_the_recording_kernel_understands(path):
    notebook = read(path)
    assert notebook.metadata.kernelspec.name == "python3"
    assert "widgets" not in notebook.metadata
    for cell in code_cells(notebook):
        assert "execution" not in cell.metadata
        assert not any(WIDGET_VIEW in output.get("data", {}) for output in cell.outputs), cell.id


@named(NOTEBOOKS)
def test_outputs_name_no_place_of_the_recording_machine(path):
    for cell_id, parts in texts(read(path)).items():
        assert not re.search(r"(^|[\s\"'(])/(tmp|root|home|work|Users)/| at 0x[0-9a-f]{6,}", "\n".join(parts)), cell_id


@named(NOTEBOOKS)
def test_few_outputs_are_left_out_of_the_comparison_and_each_says_why(path):
    cells = code_cells(read(path))
    ignored = [cell for cell in cells if IGNORE in cell.source]
    assert len(ignored) <= 0.1 * len(cells)
    for cell in ignored:
        assert re.search(rf"^# {IGNORE}: \w+", cell.source, re.MULTILINE), f"{cell.id}: {IGNORE} without a reason"


@named(NOTEBOOKS)
def test_cells_are_short_enough_to_read(path):
    for cell in read(path).cells:
        if cell.cell_type == "code" and not any(tag.startswith("exercise:") for tag in cell.metadata.get("tags", [])):
            assert len([line for line in cell.source.splitlines() if line.strip()]) <= 25, cell.id


@named(NOTEBOOKS)
def test_no_line_of_a_code_cell_is_cut_at_the_right(path):
    wide = {
        (cell.id, line) for cell in code_cells(read(path)) for line in cell.source.splitlines() if len(line) > COLUMNS
    }
    assert not wide


def test_texts_are_the_same_on_a_cpu_without_vector_instructions(both):
    stored, fresh, _ = both
    assert texts(fresh) == texts(stored)


def test_every_stored_picture_is_the_one_that_its_cell_draws(both):
    stored, fresh, _ = both
    drawn = dict(pictures(fresh))
    assert [cell_id for cell_id, _ in pictures(stored)] == [cell_id for cell_id, _ in pictures(fresh)]
    for cell_id, png in pictures(stored):
        measured = drawn_from_itself(drawn[cell_id]) is not None
        assert headings(png) == headings(drawn[cell_id]), f"cell {cell_id}"
        again = drawn_from_itself(png) if measured else drawn[cell_id]
        assert differing_pixels(png, again) <= PIXELS, f"cell {cell_id}"


def test_a_table_in_place_of_another_picture_has_other_headings():
    png = next(png for path in NOTEBOOKS for _, png in pictures(read(path)) if not drawn_from_itself(png))
    table = table_in(next(png for path in NOTEBOOKS for _, png in pictures(read(path)) if table_in(png)))
    other = LiveTable(type(table)("WRONG", table.columns, table.rows), "").png()
    assert headings(png) is None
    assert headings(other) not in (None, headings(LiveTable(table, "").png()))


def test_a_changed_digit_in_a_picture_is_seen():
    table = table_in(next(png for path in NOTEBOOKS for _, png in pictures(read(path)) if table_in(png)))
    row = ("1.234", *table.rows[0][1:])
    other = ("1.235", *table.rows[0][1:])
    one, two = (
        LiveTable(type(table)(table.title, table.columns, (first, *table.rows[1:])), "") for first in (row, other)
    )
    assert differing_pixels(one.png(), two.png()) > PIXELS


def test_the_choice_of_every_shown_token_is_safe_from_rounding(both, rounding):
    _, _, watched = both
    assert len(watched["margins"]) > 40
    assert min(watched["margins"]) > ROUNDING_SHARE * rounding
    assert min(watched["edges"], default=1.0) > ROUNDING_SHARE * rounding


@pytest.fixture(scope="module")
def rounding():
    """The largest difference of a logit of the running text between two kinds of CPU, in float32."""
    rows = [_logits_along({}), _logits_along({"ATEN_CPU_CAPABILITY": "default"})]
    difference = float(np.abs(rows[0] - rows[1]).max())
    assert difference < 1e-3
    return difference


def _logits_along(environment):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    run = subprocess.run(
        [sys.executable, "-c", ALONG], cwd=ROOT, env=environment, check=True, capture_output=True, text=True
    )
    return np.array(json.loads(run.stdout))


@pytest.mark.parametrize(("kind", "status"), [(None, 0), ("text/plain", 1), ("text/html", 1)])
def test_nbval_passes_what_is_stored_and_fails_one_other_digit(tmp_path, kind, status):
    """On two quick cells of lab 00."""
    whole = read(NOTEBOOKS[0])
    whole.cells = [cell for cell in whole.cells if cell.id in ("bytes", "limit")]
    assert len(whole.cells) == 2
    if kind:
        data = whole.cells[0].outputs[0].data
        assert "238.44" in data[kind]
        data[kind] = data[kind].replace("238.44", "238.45")
    nbformat.write(whole, tmp_path / "two_cells.ipynb")
    assert _nbval(tmp_path / "two_cells.ipynb") == status


def test_a_recorded_chart_holds_a_text_and_a_picture_and_nbval_passes_it(tmp_path):
    imports = "from lab_engine.int4_costs import load_costs\nfrom widgets.int4_costs import cost_chart\n"
    cell = cell_with(f"{imports}cost_chart(load_costs())")
    path = tmp_path / "chart.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), path)
    record(path)
    assert [set(output.data) for output in read(path).cells[0].outputs] == [{"text/plain", "image/png"}]
    assert _nbval(path) == 0


def _nbval(path):
    command = [sys.executable, "-m", "pytest", "--nbval", str(path), "-p", "no:cacheprovider", "-q", "-o", "addopts="]
    return subprocess.run(command, cwd=ROOT, check=False, capture_output=True).returncode
