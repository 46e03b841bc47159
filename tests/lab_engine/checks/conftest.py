"""What the checkers' tests share."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from lab_engine.checks import Exercise, check


@pytest.fixture(autouse=True)
def progress_file(tmp_path, monkeypatch):
    """An empty place for what a learner has passed."""
    file = tmp_path / "data" / "progress.json"
    monkeypatch.setenv("NANOQWEN_PROGRESS", str(file))
    return file


@pytest.fixture
def failing_cases():
    """The names of all cases that a function fails, not only of the first."""

    def find(exercise: Exercise, function: Callable[..., Any]) -> set[str]:
        alone = (replace(exercise, cases=(case,)) for case in exercise.cases)
        return {one.cases[0].name for one in alone if check(one, function).status == "failed"}

    return find
