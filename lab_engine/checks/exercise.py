"""An exercise: a function to write, the cases that it is fed, and three hints.

The stub is cut out of the solution (signature and docstring) and the last hint is the solution's source, both read with
inspect, so the text that a learner sees cannot drift from the code that the tests run.
"""

import ast
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lab_engine.checks import progress, runner
from lab_engine.checks.case import Args, Case, Mismatch
from lab_engine.checks.verdict import Row, Verdict
from lab_engine.errors import NanoqwenError


@dataclass(frozen=True, repr=False)
class Hint:
    """One hint; draws itself as Markdown, prints as text."""

    number: int
    text: str
    is_code: bool = False

    def __repr__(self) -> str:
        return f"Hint {self.number} of 3: " + ("\n" + self.text if self.is_code else self.text.replace("`", ""))

    def _repr_markdown_(self) -> str:
        body = f"\n\n```python\n{self.text}\n```" if self.is_code else f" {self.text}"
        return f"**Hint {self.number} of 3.**{body}"


@dataclass(frozen=True, repr=False)
class Exercise:
    """A function for the learner to write.

    judge compares the solution's result with the learner's on the same arguments: None if they agree.
    show turns the arguments into small rows. adapt wraps a function before it is called, for an exercise that must see
    more than the returned value. remark is a line under a pass, made from what the function did with the last case.
    hint_without_value explains a usual error, or why None came (then its second argument is None); else it is empty.
    """

    lab: str
    solution: Callable[..., Any]
    cases: tuple[Case, ...]
    judge: Callable[[Args, Any, Any], Mismatch | None]
    show: Callable[[Args], tuple[Row, ...]]
    first_hints: tuple[str, str]
    adapt: Callable[[Callable[..., Any]], Callable[..., Any]] = lambda function: function
    remark: Callable[[Any], str] = lambda _value: ""
    hint_without_value: Callable[[Case, BaseException | None], str] = lambda _case, _error: ""

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(inspect.signature(self.solution).parameters)})"

    @property
    def name(self) -> str:
        """The function's name; also the tag of its cell: `exercise:<name>`."""
        return self.solution.__name__

    @property
    def source(self) -> str:
        """The solution as it stands in this package."""
        return inspect.getsource(self.solution).rstrip("\n")

    @property
    def stub(self) -> str:
        """Signature and docstring of the solution, and a body that raises NotImplementedError."""
        function = ast.parse(self.source).body[0]
        assert isinstance(function, ast.FunctionDef)
        end_of_docstring = function.body[0].end_lineno
        return "\n".join([*self.source.splitlines()[:end_of_docstring], "    raise NotImplementedError"])

    @property
    def hints(self) -> tuple[Hint, Hint, Hint]:
        """Two steps, then the solution."""
        first, second = self.first_hints
        return Hint(1, first), Hint(2, second), Hint(3, self.source, is_code=True)

    def hint(self, number: int) -> Hint:
        """Hint 1, 2 or 3; the third is the solution."""
        if number not in (1, 2, 3):
            raise NanoqwenError(f"{self.name} has hints 1, 2 and 3, not {number}: call hint(1)")
        return self.hints[number - 1]

    def check(self, function: Callable[..., Any]) -> Verdict:
        """Run the learner's function on every case. Never raises for what the function does; a pass is remembered."""
        verdict = runner.check(self, function)
        if verdict.status == "passed":
            progress.record(self.lab, self.name)
        return verdict
