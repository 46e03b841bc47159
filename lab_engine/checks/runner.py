"""Runs a learner's function on the cases of an exercise and says what it found.

Whatever the function does (raise, loop for ever, change its arguments, return something odd) ends in a verdict.
Only KeyboardInterrupt passes through: it is the learner's own wish.
"""

import copy
import inspect
import linecache
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lab_engine.checks.case import Args, Case, Mismatch
from lab_engine.checks.started import has_started, reached_the_stubs_raise
from lab_engine.checks.time_limit import TimeUp, call_with_limit
from lab_engine.checks.values import describe, error_text, with_article
from lab_engine.checks.verdict import Verdict

if TYPE_CHECKING:
    from lab_engine.checks.exercise import Exercise

LIMIT_S = 5.0
"""Time for one case; the right answers take milliseconds."""


@dataclass(frozen=True)
class Outcome:
    """What a call did: its value, or its error; and whether the arguments are still what they were."""

    value: Any = None
    error: BaseException | None = None
    kept_arguments: bool = True


def check(exercise: "Exercise", function: Callable[..., Any]) -> Verdict:
    """Run function on every case up to the first wrong one."""
    name, total = exercise.name, len(exercise.cases)
    unusable = _unusable(exercise, function)
    if unusable:
        return Verdict(name, "failed", 0, total, message=unusable)
    adapted = exercise.adapt(function)
    for index, case in enumerate(exercise.cases):
        outcome = _attempt(adapted, case.args)
        if index == 0 and not has_started(function, outcome.error):
            return Verdict(name, "not started", 0, total)
        wrong = _find_mistake(exercise, case, function, outcome)
        if wrong is not None:
            return _failed(exercise, index, wrong)
    cases = ", ".join(case.name for case in exercise.cases)
    return Verdict(name, "passed", total, total, cases=cases, message=exercise.remark(outcome.value))


def _unusable(exercise: "Exercise", function: Any) -> str:
    """Why this can't be the function at all, or an empty string."""
    if not callable(function):
        return f"check takes the function itself, without brackets; you passed {describe(function)}"
    expected = tuple(inspect.signature(exercise.solution).parameters)
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some built-ins have none
        return ""
    try:
        signature.bind(*expected)
    except TypeError:
        found = ", ".join(signature.parameters)
        return f"your function takes ({found}); it is called with ({', '.join(expected)})"
    return ""


def _attempt(function: Callable[..., Any], args: Args) -> Outcome:
    given = copy.deepcopy(args)
    try:
        value = call_with_limit(LIMIT_S, function, *given)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - a learner's function may raise anything, SystemExit too
        return Outcome(error=error)
    return Outcome(value, kept_arguments=_equal(given, args))


def _equal(now: Any, before: Any) -> bool:
    if isinstance(before, tuple):
        return all(_equal(x, y) for x, y in zip(now, before, strict=True))
    try:
        if hasattr(before, "shape"):
            same = (now == before) | ((now != now) & (before != before))  # noqa: PLR0124 - NaN is not itself
            return now.shape == before.shape and bool(same.all())
        return bool(now == before)
    except Exception:  # noqa: BLE001 - something was put into a list that can't be compared with a number
        return False


def _find_mistake(exercise: "Exercise", case: Case, function: Callable[..., Any], outcome: Outcome) -> Mismatch | None:
    if case.refuses is not None:
        return _judge_refusal(case, function, outcome)
    if outcome.error is not None:
        endless = "What changes from one round of the loop to the next?" if isinstance(outcome.error, TimeUp) else ""
        hint = endless or exercise.hint_without_value(case, outcome.error)
        return Mismatch(_describe_error(outcome.error, function), hint=hint, about_form=True)
    expected = exercise.adapt(exercise.solution)(*copy.deepcopy(case.args))
    if outcome.value is None and expected is not None:
        hint = exercise.hint_without_value(case, None)
        return Mismatch("returned None: does every path end in `return`?", hint=hint, about_form=True)
    try:
        wrong = exercise.judge(case.args, expected, outcome.value)
    except Exception:  # noqa: BLE001 - a returned object may refuse even to be compared
        found = f"returned {describe(outcome.value)} that cannot be compared with the expected result"
        wrong = Mismatch(found, about_form=True)
    if wrong is None and not outcome.kept_arguments:
        return Mismatch("the result is right, but your function changed one of its arguments", hint="Work on a copy.")
    return wrong


def _judge_refusal(case: Case, function: Callable[..., Any], outcome: Outcome) -> Mismatch | None:
    names = case.refuses or ()
    wanted = with_article(case.error.__name__) + (f" that names {' and '.join(names)}" if names else "")
    if outcome.error is None:
        return Mismatch(f"returned {describe(outcome.value)}; expected {wanted}")
    if not isinstance(outcome.error, case.error):
        return Mismatch(f"{_describe_error(outcome.error, function)}; expected {wanted}")
    missing = [name for name in names if name.lower() not in error_text(outcome.error).lower()]
    if missing:
        found = _first_line(outcome.error)
        return Mismatch(f"the {case.error.__name__} says `{found}`; it does not name {' and '.join(missing)}")
    return None


def _failed(exercise: "Exercise", index: int, wrong: Mismatch) -> Verdict:
    case = exercise.cases[index]
    return Verdict(
        exercise.name,
        "failed",
        passed=index,
        total=len(exercise.cases),
        case=case.name,
        message=wrong.message,
        given=wrong.given or exercise.show(case.args),
        expected=wrong.expected,
        yours=wrong.yours,
        differ=wrong.differ,
        hint=wrong.hint or ("" if wrong.about_form else case.hint),
    )


def _describe_error(error: BaseException, function: Callable[..., Any]) -> str:
    if isinstance(error, TimeUp):
        return f"did not return within {LIMIT_S:.0f} seconds: does every loop end?"
    if reached_the_stubs_raise(function, error):
        return "your code reached the line `raise NotImplementedError`: replace it by a `return`"
    text = f"raised {type(error).__name__}"
    if message := _first_line(error):
        text += f": {message}"
    return text + _place(error, function)


def _first_line(error: BaseException) -> str:
    lines = error_text(error).strip().splitlines()
    return _shortened(lines[0], 160) if lines else ""


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _place(error: BaseException, function: Callable[..., Any]) -> str:
    """The last line of the learner's own code on the way to the error."""
    code = getattr(function, "__code__", None)
    if code is None:
        return ""
    lines = [
        line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == code.co_filename
    ]
    if not lines:
        return ""
    source = _shortened(linecache.getline(code.co_filename, lines[-1]).strip(), 80)
    return f", in line {lines[-1]}: `{source}`" if source else f", in line {lines[-1]}"
