import ast
import doctest
import inspect
import json
import math
import struct
from collections.abc import Callable

import pytest
import torch
import xxhash

from lab_engine.checks import (
    exercises,
    lab00_bytes,
    lab01_pack,
    lab01_quantize,
    lab01_shuffle,
    lab02_header,
    lab02_rows,
    lab02_sections,
    lab03_dequantize,
    lab03_lane_load,
    lab03_seconds,
    lab04_append,
    lab04_locate,
    lab04_tail,
    lab05_combine,
    lab05_page,
    lab05_update,
    lab08_top_p,
    lab08_visible,
)
from lab_engine.checks.progress import LABS
from lab_engine.damaged_files import with_header
from lab_engine.errors import FileFormatError, NanoqwenError
from lab_engine.gemv import H200, Gpu
from lab_engine.isa import Isa
from lab_engine.kv_pages import Sequence
from lab_engine.value_pages import ValuePool

ALL = [exercise for lab in LABS for exercise in exercises(lab).values()]
NAMES = [exercise.name for exercise in ALL]


WITH_EXAMPLES = [lab00_bytes, lab01_pack, lab01_quantize, lab01_shuffle, lab02_header, lab02_rows, lab02_sections]
WITH_EXAMPLES += [lab03_lane_load, lab03_dequantize, lab03_seconds]
WITH_EXAMPLES += [lab04_append, lab04_locate, lab04_tail, lab05_combine, lab05_page, lab05_update]
WITH_EXAMPLES += [lab08_top_p, lab08_visible]
IMPORTED = {"torch": torch, "Tensor": torch.Tensor, "Callable": Callable, "struct": struct, "json": json}
IMPORTED |= {"xxhash": xxhash, "FileFormatError": FileFormatError, "with_header": with_header}
IMPORTED |= {"math": math, "Sequence": Sequence, "ValuePool": ValuePool}
IMPORTED |= {"Isa": Isa, "Gpu": Gpu, "H200": H200}
"""What the notebooks import for the learner: stubs and solutions need no other name."""


COLUMNS = 96
"""What JupyterLab shows of a code cell at a usual window; tests/notebooks has the same rule for every cell."""


def defined(source, name):
    namespace = dict(IMPORTED)
    exec(source, namespace)
    return namespace[name]


@pytest.mark.parametrize("exercise", ALL, ids=NAMES)
def test_the_stub_is_not_started_and_has_the_solutions_signature_and_docstring(exercise):
    stub = defined(exercise.stub, exercise.name)
    assert exercise.check(stub).status == "not started"
    assert inspect.signature(stub) == inspect.signature(exercise.solution)
    assert stub.__doc__ == inspect.getdoc(exercise.solution) or stub.__doc__ == exercise.solution.__doc__
    assert exercise.stub.endswith('    """\n    raise NotImplementedError')


@pytest.mark.parametrize("exercise", ALL, ids=NAMES)
def test_stub_and_solution_are_no_wider_than_a_cell(exercise):
    assert [line for line in f"{exercise.stub}\n{exercise.source}".splitlines() if len(line) > COLUMNS] == []


@pytest.mark.parametrize("exercise", ALL, ids=NAMES)
def test_the_last_hint_is_a_solution_that_passes(exercise):
    assert exercise.hint(3).is_code
    assert exercise.check(defined(exercise.hint(3).text, exercise.name)).status == "passed"


@pytest.mark.parametrize("exercise", ALL, ids=NAMES)
def test_a_solution_is_at_most_25_lines_below_its_docstring(exercise):
    body = ast.parse(exercise.source).body[0].body
    assert body[-1].end_lineno - body[0].end_lineno <= 25


@pytest.mark.parametrize("exercise", ALL, ids=NAMES)
def test_the_stub_says_shapes_or_an_example(exercise):
    assert "Example" in exercise.stub or ">>>" in exercise.stub


@pytest.mark.parametrize("exercise", ALL, ids=NAMES)
def test_no_two_cases_share_a_name(exercise):
    assert len({case.name for case in exercise.cases}) == len(exercise.cases)


@pytest.mark.parametrize("module", WITH_EXAMPLES, ids=lambda module: module.__name__)
def test_the_examples_of_the_docstrings_hold(module):
    result = doctest.testmod(module)
    assert result.attempted
    assert not result.failed


def test_hints_come_in_three_steps_and_print_themselves():
    greedy = exercises("00_tour")["greedy"]
    assert [hint.number for hint in greedy.hints] == [1, 2, 3]
    assert repr(greedy.hint(1)).startswith("Hint 1 of 3: Which call")
    assert greedy.hint(2)._repr_markdown_().startswith("**Hint 2 of 3.** Decide")
    assert "```python\ndef greedy(" in greedy.hint(3)._repr_markdown_()


@pytest.mark.parametrize("number", [0, 4, -1, "1"])
def test_a_hint_that_is_not_there_is_refused_in_one_line(number):
    with pytest.raises(NanoqwenError, match=r"greedy has hints 1, 2 and 3, not .*: call hint\(1\)"):
        exercises("00_tour")["greedy"].hint(number)


def test_an_unknown_lab_is_refused_in_one_line():
    with pytest.raises(
        NanoqwenError, match="no exercises for lab 'tour': the labs with exercises are 00_tour, 01_int4"
    ):
        exercises("tour")


def test_an_exercise_shows_its_call():
    assert repr(exercises("00_tour")["greedy"]) == "greedy(prefill, step, prompt, stop_ids, max_new_tokens)"
