import contextlib
import dataclasses
import types
from collections.abc import Callable

import pytest
import torch

from lab_engine.checks import Case, Exercise, Mismatch, Row, check, exercises, progress, runner
from lab_engine.gemv import Gpu
from lab_engine.isa import Isa
from lab_engine.kv_pages import Sequence
from lab_engine.value_pages import ValuePool


def double(values: list[int]) -> list[int]:
    """Each number twice as large."""
    return [2 * value for value in values]


def judge(args, expected, yours):
    if yours == expected:
        return None
    return Mismatch(yours=Row("yours", (str(yours),)), expected=Row("expected", (str(expected),)), differ=(0,))


DOUBLE = Exercise(
    lab="00_tour",
    solution=double,
    cases=(
        Case("two numbers", ([1, 2],), "Look at one number."),
        Case("nothing", ([],), "An empty list is legal."),
        Case("a negative one", ([-3],), "Signs stay."),
    ),
    judge=judge,
    show=lambda args: (Row("values", tuple(str(v) for v in args[0])),),
    first_hints=("Once for each number.", "2 * value"),
)


def test_the_solution_passes_all_cases():
    verdict = check(DOUBLE, double)
    assert (verdict.status, verdict.passed, verdict.total) == ("passed", 3, 3)
    assert verdict.cases == "two numbers, nothing, a negative one"


def raises_not_implemented(values):
    raise NotImplementedError


def dots(values):
    """A docstring."""


def passes(values):
    pass


def returns_none(values):
    """A docstring."""
    return


@pytest.mark.parametrize("stub", [raises_not_implemented, dots, passes, returns_none, lambda *_: ...])
def test_an_empty_body_is_not_started(stub):
    verdict = check(DOUBLE, stub)
    assert (verdict.status, verdict.passed, verdict.total) == ("not started", 0, 3)
    assert str(verdict) == "double: not started yet (write the body of double, then run the cell again)"


LEFT = "your code reached the line `raise NotImplementedError`: replace it by a `return`"


def written_above_the_raise(values):
    """A docstring."""
    doubled = list(values)
    for i in range(len(doubled)):
        doubled[i] *= 2
    raise NotImplementedError


def written_below_the_raise(values):
    raise NotImplementedError
    return [2 * value for value in values]


def one_branch_is_open(values):
    if values:
        return [2 * value for value in values]
    raise NotImplementedError()


def without_source(function):
    """The same code, of a file that nobody can read."""
    code = function.__code__.replace(co_filename="<nowhere>")
    return types.FunctionType(code, function.__globals__, function.__name__, closure=function.__closure__)


@pytest.mark.parametrize("function", [written_above_the_raise, written_below_the_raise, one_branch_is_open])
def test_a_raise_of_the_stub_that_was_left_is_named(function):
    verdict = check(DOUBLE, function)
    assert (verdict.status, verdict.message) == ("failed", LEFT)


@pytest.mark.parametrize("function", [written_above_the_raise, one_branch_is_open])
def test_a_raise_that_was_left_is_named_without_the_source_too(function):
    verdict = check(DOUBLE, without_source(function))
    assert (verdict.status, verdict.message) == ("failed", LEFT)


@pytest.mark.parametrize("stub", [raises_not_implemented, dots, passes, returns_none])
def test_an_empty_body_is_not_started_without_the_source_too(stub):
    assert check(DOUBLE, without_source(stub)).status == "not started"


def test_a_function_that_calls_an_open_one_is_told_where():
    def calls_a_stub(values):
        return raises_not_implemented(values)

    verdict = check(DOUBLE, calls_a_stub)
    assert verdict.status == "failed"
    assert verdict.message.startswith("raised NotImplementedError, in line ")


@pytest.mark.parametrize("name", [name for lab in progress.LABS for name in progress.LABS[lab]])
def test_no_exercise_takes_a_written_body_for_its_stub(name):
    exercise = next(exercises(lab)[name] for lab in progress.LABS if name in progress.LABS[lab])
    namespace = {"Tensor": torch.Tensor, "Callable": Callable, "Sequence": Sequence, "ValuePool": ValuePool}
    namespace |= {"Isa": Isa, "Gpu": Gpu}
    exec(exercise.stub.replace("    raise", "    print(end='')\n    raise"), namespace)
    verdict = exercise.check(namespace[name])
    assert (verdict.status, verdict.message) == ("failed", LEFT)


def test_a_body_that_forgets_to_return_has_started():
    def forgets(values):
        [2 * value for value in values]

    verdict = check(DOUBLE, forgets)
    assert verdict.status == "failed"
    assert verdict.message == "returned None: does every path end in `return`?"


def test_a_constant_answer_has_started():
    assert check(DOUBLE, lambda *_: 0).status == "failed"


def test_torchs_own_not_implemented_is_a_failure():
    def unsupported(values):
        raise NotImplementedError('"linear" not implemented for "Half"')

    assert check(DOUBLE, unsupported).status == "failed"


def test_the_first_wrong_case_is_named_after_those_that_passed():
    verdict = check(DOUBLE, lambda values: [2 * abs(value) for value in values])
    assert (verdict.status, verdict.passed, verdict.case) == ("failed", 2, "a negative one")
    assert verdict.given == (Row("values", ("-3",)),)
    assert verdict.hint == "Signs stay."


def test_an_exception_becomes_a_verdict_with_its_type_message_line_and_case():
    def broken(values):
        return values[7]

    verdict = check(DOUBLE, broken)
    line = broken.__code__.co_firstlineno + 1
    assert verdict.status == "failed"
    assert verdict.message == f"raised IndexError: list index out of range, in line {line}: `return values[7]`"
    assert verdict.case == "two numbers"
    assert "Traceback" not in str(verdict) + verdict._repr_html_()
    assert "runner.py" not in str(verdict) + verdict._repr_html_()


def returns_nothing(values):
    [2 * value for value in values]


def misspelt(values):
    return values.doubled()


@pytest.mark.parametrize("function", [misspelt, returns_nothing, lambda _: Unequal()])
def test_what_is_no_value_gets_no_hint_of_the_case(function):
    verdict = check(DOUBLE, function)
    assert (verdict.status, verdict.case, verdict.hint) == ("failed", "two numbers", "")


@pytest.mark.parametrize(
    ("function", "hint"),
    [(misspelt, "two numbers: AttributeError"), (returns_nothing, "two numbers: NoneType"), (lambda _: 3, "Look at")],
)
def test_an_exercise_may_explain_an_error_or_none(function, hint):
    explains = dataclasses.replace(
        DOUBLE, hint_without_value=lambda case, error: f"{case.name}: {type(error).__name__}"
    )
    assert check(explains, function).hint.startswith(hint)


def test_an_exception_below_a_library_names_the_learners_own_line():
    def broken(values):
        return torch.zeros(2, 3).reshape(values)

    message = check(DOUBLE, broken).message
    assert message.startswith("raised RuntimeError: ")
    assert message.endswith("`return torch.zeros(2, 3).reshape(values)`")


class BadError(Exception):
    def __str__(self):
        raise RuntimeError("no message for you")


@pytest.mark.parametrize(
    "error", [SystemExit(3), RecursionError("deep"), MemoryError(), BadError(), GeneratorExit(), AssertionError()]
)
def test_whatever_is_raised_never_gets_out(error):
    def raises(values):
        raise error

    verdict = check(DOUBLE, raises)
    assert verdict.status == "failed"
    assert verdict.message.startswith(f"raised {type(error).__name__}")


def test_endless_recursion_is_a_failure():
    def recurse(values):
        return recurse(values)

    assert "RecursionError" in check(DOUBLE, recurse).message


def test_a_keyboard_interrupt_passes_through():
    def interrupted(values):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        check(DOUBLE, interrupted)


def test_an_endless_loop_ends_in_a_verdict(monkeypatch):
    monkeypatch.setattr(runner, "LIMIT_S", 0.2)

    def endless(values):
        while True:
            with contextlib.suppress(Exception):
                sum(values)

    verdict = check(DOUBLE, endless)
    assert verdict.status == "failed"
    assert verdict.message.startswith("did not return within 0")
    assert verdict.message.endswith("does every loop end?")


def test_a_changed_argument_is_told_though_the_result_is_right():
    def in_place(values):
        result = double(values)
        values.append(0)
        return result

    verdict = check(DOUBLE, in_place)
    assert verdict.message == "the result is right, but your function changed one of its arguments"


def test_a_changed_argument_does_not_reach_the_next_check():
    def clears(values):
        values.clear()
        return []

    assert check(DOUBLE, clears).given == (Row("values", ("1", "2")),)
    assert check(DOUBLE, double).status == "passed"


def no_arguments():
    return []


def two_arguments(a, b):
    return []


@pytest.mark.parametrize(
    ("thing", "message"),
    [
        (5, "check takes the function itself, without brackets; you passed an int"),
        (None, "check takes the function itself, without brackets; you passed None"),
        (no_arguments, "your function takes (); it is called with (values)"),
        (two_arguments, "your function takes (a, b); it is called with (values)"),
    ],
)
def test_what_cannot_be_called_is_refused_in_words(thing, message):
    verdict = check(DOUBLE, thing)
    assert (verdict.status, verdict.message) == ("failed", message)
    assert str(verdict).startswith("double: failed before the first case")


def test_callables_other_than_functions_are_checked():
    class Doubler:
        def __call__(self, values):
            return double(values)

    assert check(DOUBLE, Doubler()).status == "passed"


class Unequal:
    def __eq__(self, other):
        raise RuntimeError("not comparable")

    __hash__ = None


def test_a_result_that_cannot_be_compared_is_a_failure():
    verdict = check(DOUBLE, lambda *_: Unequal())
    assert verdict.message == "returned an Unequal that cannot be compared with the expected result"


def test_an_argument_that_can_no_longer_be_compared_counts_as_changed():
    def in_place(values):
        result = double(values)
        values[:] = [Unequal()]
        return result

    assert "changed one of its arguments" in check(DOUBLE, in_place).message


REFUSING = dataclasses.replace(
    DOUBLE, cases=(*DOUBLE.cases, Case("too many", ([0] * 9,), "Name 9 and 8.", refuses=("9", "8")))
)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (None, "returned a list; expected a ValueError that names 9 and 8"),
        (KeyError("9, 8"), "expected a ValueError that names 9 and 8"),
        (BadError(), "raised BadError"),
        (ValueError("9 numbers"), "the ValueError says `9 numbers`; it does not name 8"),
    ],
)
def test_an_input_to_be_refused_wants_a_value_error_that_names_the_numbers(error, message):
    def refuses(values):
        if len(values) > 8 and error is not None:
            raise error
        return double(values)

    verdict = check(REFUSING, refuses)
    assert (verdict.status, verdict.case, verdict.hint) == ("failed", "too many", "Name 9 and 8.")
    assert message in verdict.message


def test_a_proper_refusal_passes():
    def refuses(values):
        if len(values) > 8:
            raise ValueError(f"{len(values)} numbers, but 8 are allowed")
        return double(values)

    assert check(REFUSING, refuses).status == "passed"


def test_a_check_leaves_the_random_state_alone():
    before = torch.get_rng_state()
    for exercise in exercises("08_decoder").values():
        check(exercise, exercise.solution)
    assert torch.equal(torch.get_rng_state(), before)


KEEPS = dataclasses.replace(
    DOUBLE,
    solution=lambda values: values.nan_to_num(),
    cases=(Case("a NaN", (torch.tensor([1.0, torch.nan, torch.inf]),), ""),),
    judge=lambda _args, expected, yours: None if torch.equal(expected, yours) else Mismatch("other numbers"),
    show=lambda _args: (),
)


def test_a_nan_among_the_arguments_is_still_the_same_argument():
    assert check(KEEPS, lambda values: values.nan_to_num()).status == "passed"


def test_a_nan_that_was_written_over_is_a_changed_argument():
    assert "changed one of its arguments" in check(KEEPS, lambda values: values.nan_to_num_()).message


def test_a_nan_that_was_written_is_a_changed_argument():
    def spoils(values):
        result = values.nan_to_num()
        values[0] = torch.nan
        return result

    assert "changed one of its arguments" in check(KEEPS, spoils).message


REFUSES = dataclasses.replace(
    DOUBLE, cases=(Case("outside", ([1],), "Look at the length.", refuses=(), error=IndexError),)
)


def raising(error):
    def function(values):
        raise error

    return function


def test_a_case_may_ask_for_an_error_of_another_class_without_names():
    assert check(REFUSES, raising(IndexError())).status == "passed"
    wrong = check(REFUSES, raising(ValueError("outside")))
    assert wrong.message.startswith("raised ValueError: outside, in line ")
    assert wrong.message.endswith("; expected an IndexError")
    assert check(REFUSES, lambda _: 3).message == "returned an int; expected an IndexError"
    assert check(REFUSES, lambda _: 3).hint == "Look at the length."


def test_none_is_right_where_the_solution_gives_none():
    def half(n):
        return n // 2 if n % 2 == 0 else None

    cases = (Case("even", (4,), ""), Case("odd", (3,), ""))
    exercise = dataclasses.replace(DOUBLE, solution=half, cases=cases, show=lambda _args: ())
    assert check(exercise, half).status == "passed"
    assert check(exercise, lambda n: n // 2).expected.values == ("None",)
    assert check(exercise, lambda _n: [None][0]).message.startswith("returned None")
