"""The exercises of the labs and their checkers.

A notebook takes a lab's exercises by name, and each checks the learner's function::

    from lab_engine.checks import exercises

    ex = exercises("00_tour")           # {"greedy": …, "bytes_per_step": …}
    ex["greedy"].stub                   # the starter cell's text, tagged exercise:greedy in the notebook
    ex["greedy"].check(greedy)          # a Verdict: not started, passed or failed; prints and draws itself
    ex["greedy"].hint(1)                # hints 1, 2, and 3: the solution

check never raises for what the function does and never shows our own stack; a pass is remembered (`progress`).

A new lab: one module here whose EXERCISES is a tuple of Exercise, and its names in `progress.LABS`.
"""

from importlib import import_module

from lab_engine.checks import progress
from lab_engine.checks.case import Case, Mismatch
from lab_engine.checks.exercise import Exercise, Hint
from lab_engine.checks.runner import check
from lab_engine.checks.verdict import Row, Verdict
from lab_engine.errors import NanoqwenError

__all__ = ["Case", "Exercise", "Hint", "Mismatch", "Row", "Verdict", "check", "exercises", "progress"]


def exercises(lab: str) -> dict[str, Exercise]:
    """The exercises of a lab by name, in the order of its notebook (lab is the notebook's stem, e.g. `00_tour`)."""
    if lab not in progress.LABS:
        raise NanoqwenError(f"no exercises for lab {lab!r}: the labs with exercises are {', '.join(progress.LABS)}")
    module = import_module(f"lab_engine.checks.lab{lab}")
    return {exercise.name: exercise for exercise in module.EXERCISES}
