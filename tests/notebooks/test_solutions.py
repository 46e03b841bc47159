"""Every exercise of a lab stands in its notebook as the stub, and the notebook runs through with the solutions put in.

The cell of an exercise has the tag `exercise:<name>`. It holds the stub and may end with the line that checks it.
"""

import copy
import re

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from lab_engine.checks import exercises, progress
from tools.bootstrap import ROOT
from tools.record_notebooks import all_notebooks, execute

TAG = "exercise:"
VERDICT = re.compile(r"^(\w+): (passed|failed|not started)")
NOTEBOOKS = {path.stem: path for path in all_notebooks()}


def exercise_cells(notebook):
    """The tagged cells as (name, cell), from top to bottom."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    tags = [(tag, cell) for cell in cells for tag in cell.metadata.get("tags", [])]
    return [(tag.removeprefix(TAG), cell) for tag, cell in tags if tag.startswith(TAG)]


def with_solutions(notebook, exercises_of_lab):
    """A copy in which every stub is its solution."""
    solved = copy.deepcopy(notebook)
    for name, cell in exercise_cells(solved):
        exercise = exercises_of_lab[name]
        assert exercise.stub in cell.source, f"the cell of {name} does not hold its stub"
        cell.source = cell.source.replace(exercise.stub, exercise.source)
    return solved


def verdicts(notebook):
    """(exercise, status) of every verdict that the cells show."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    texts = ["".join(output.get("data", {}).get("text/plain", "")) for output in outputs]
    return [match.groups() for match in map(VERDICT.match, texts) if match]


@pytest.fixture(autouse=True)
def empty_progress(tmp_path, monkeypatch):
    monkeypatch.setenv("NANOQWEN_PROGRESS", str(tmp_path / "progress.json"))


@pytest.mark.parametrize("lab", progress.LABS)
def test_every_exercise_has_one_cell_in_the_labs_order(lab):
    notebook = nbformat.read(NOTEBOOKS.get(lab, ROOT / "labs" / f"{lab}.ipynb"), as_version=4)
    assert [name for name, _ in exercise_cells(notebook)] == list(progress.LABS[lab])


@pytest.mark.parametrize("lab", [lab for lab in NOTEBOOKS if lab not in progress.LABS])
def test_a_notebook_without_exercises_has_no_exercise_cell(lab):
    assert exercise_cells(nbformat.read(NOTEBOOKS[lab], as_version=4)) == []


@pytest.mark.parametrize("lab", [lab for lab in NOTEBOOKS if lab in progress.LABS])
def test_the_cell_of_an_exercise_is_the_stub_of_its_checker(lab):
    of_lab = exercises(lab)
    for name, cell in exercise_cells(nbformat.read(NOTEBOOKS[lab], as_version=4)):
        assert cell.source.startswith(of_lab[name].stub), name
        rest = cell.source.removeprefix(of_lab[name].stub).strip()
        assert rest == "" or re.fullmatch(rf'\w+\["{name}"\]\.check\({name}\)', rest), name


@pytest.mark.parametrize("lab", [lab for lab in NOTEBOOKS if lab in progress.LABS])
def test_a_lab_runs_through_with_the_solutions_and_every_verdict_is_passed(lab):
    solved = with_solutions(nbformat.read(NOTEBOOKS[lab], as_version=4), exercises(lab))
    execute(solved, NOTEBOOKS[lab].parent)
    shown = verdicts(solved)
    assert {name for name, _ in shown} == set(progress.LABS[lab])
    assert {status for _, status in shown} == {"passed"}, shown


def small_lab(name):
    exercise = exercises("08_decoder")[name]
    return new_notebook(
        cells=[
            new_code_cell('from lab_engine.checks import exercises\n\nex = exercises("08_decoder")'),
            new_code_cell(exercise.stub, metadata={"tags": [TAG + name]}),
            new_code_cell(f'ex["{name}"].check({name})'),
        ]
    )


def test_the_stub_and_the_solution_are_told_apart(tmp_path):
    lab = small_lab("visible_tokens")
    solved = with_solutions(lab, exercises("08_decoder"))
    for notebook in (lab, solved):
        execute(notebook, tmp_path)
    assert verdicts(lab) == [("visible_tokens", "not started")]
    assert verdicts(solved) == [("visible_tokens", "passed")]
    assert progress.summary()[-1].passed == ("visible_tokens",)


def test_a_cell_that_does_not_hold_its_stub_is_noticed():
    lab = small_lab("visible_tokens")
    lab.cells[1].source = lab.cells[1].source.replace("sinks", "sink")
    with pytest.raises(AssertionError, match="does not hold its stub"):
        with_solutions(lab, exercises("08_decoder"))
