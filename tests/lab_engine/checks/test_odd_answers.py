import numpy as np
import pytest
import torch

from lab_engine.checks import exercises, progress
from tests.lab_engine.checks.answers import odd_functions

ALL = [exercise for lab in progress.LABS for exercise in exercises(lab).values()]


@pytest.mark.parametrize("exercise", ALL, ids=lambda exercise: exercise.name)
@pytest.mark.parametrize("name", odd_functions())
def test_whatever_a_function_returns_ends_in_a_verdict(exercise, name):
    verdict = exercise.check(odd_functions()[name])
    assert verdict.status == "failed"
    assert verdict.message or verdict.yours
    assert "Traceback" not in str(verdict)
    assert verdict._repr_html_()


@pytest.mark.parametrize("exercise", exercises("01_int4").values(), ids=lambda exercise: exercise.name)
def test_a_function_that_changes_its_argument_is_told_so_and_spoils_no_later_case(exercise):
    before = [arg.clone() for case in exercise.cases for arg in case.args if isinstance(arg, torch.Tensor)]

    def changes(first, *rest):
        result = exercise.solution(first, *rest)
        first.fill_(1)
        return result

    assert "changed one of its arguments" in exercise.check(changes).message
    after = [arg for case in exercise.cases for arg in case.args if isinstance(arg, torch.Tensor)]
    assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(after, before, strict=True))
    assert exercise.check(exercise.solution).status == "passed"
