"""What goes into a checker and what comes out of a comparison: Case and Mismatch."""

from dataclasses import dataclass
from typing import Any

from lab_engine.checks.verdict import Row

Args = tuple[Any, ...]


@dataclass(frozen=True)
class Case:
    """One input. hint is given when a wrong result has no better explanation.

    refuses names what the error must mention, for an input that the function has to refuse; None: it has to take it.
    error is the class of that error.
    """

    name: str
    args: Args
    hint: str
    refuses: tuple[str, ...] | None = None
    error: type[Exception] = ValueError


@dataclass(frozen=True)
class Mismatch:
    """Where a result is wrong. Empty given or hint: those of the case stand in.

    differ holds the columns of `yours` that are not as expected. about_form: there is no value to compare (an
    exception, another type or shape), so the case's hint, which is about its value, does not stand in.
    """

    message: str = ""
    given: tuple[Row, ...] = ()
    expected: Row | None = None
    yours: Row | None = None
    differ: tuple[int, ...] = ()
    hint: str = ""
    about_form: bool = False
