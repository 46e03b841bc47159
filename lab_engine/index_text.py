"""The address functions of kernels/gemv_index.cuh, evaluated from their own text on integers and NumPy arrays.

A function of the header is one line, `INDEX NAME(long long a, …) { return <expression>; }`. C and Python write these
expressions in the same way but for `/`, which rounds down here as it does in C for numbers that are not negative.
What breaks it: an operator outside the list below, a negative number, a call of a function that stands further down.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lab_engine.errors import NanoqwenError
from lab_engine.kernels import read_source

Integers = NDArray[np.int64]
Number = int | Integers

_LINE = re.compile(r"INDEX\s+(?P<name>\w+)\((?P<parameters>[^)]*)\)\s*\{\s*return\s+(?P<text>[^;]+);\s*\}")
_PARAMETER = re.compile(r"long long (\w+)")
_OPERATORS: dict[type[ast.AST], Callable[[Number, Number], Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
}


@dataclass(frozen=True)
class IndexFunction:
    """One function of the header. text: its expression as it stands there; called with whole numbers, none negative.

    Arguments are ints, or int64 arrays that broadcast together; a comparison gives 0 or 1, as in C.
    Raises NanoqwenError for another number of arguments and for one that is negative or not whole.
    """

    name: str
    parameters: tuple[str, ...]
    text: str
    above: Mapping[str, IndexFunction] = field(repr=False, compare=False)

    def __call__(self, *arguments: Number) -> Any:
        """The value of the expression: an int where all arguments are ints, else an int64 array."""
        if len(arguments) != len(self.parameters):
            raise NanoqwenError(
                f"{self.name}({', '.join(self.parameters)}): found {len(arguments)} arguments,"
                f" expected {len(self.parameters)}"
            )
        values = {name: self._whole(name, value) for name, value in zip(self.parameters, arguments, strict=True)}
        return self._value(_expression(self.text), values)

    def _whole(self, name: str, value: Number) -> Number:
        array = np.asarray(value)
        if array.dtype.kind not in "iu" or (array.size and int(array.min()) < 0):
            raise NanoqwenError(f"{self.name}: {name} = {value!r}, expected whole numbers of 0 or more")
        return array.astype(np.int64) if array.ndim else int(array)

    def _value(self, node: ast.expr, values: Mapping[str, Number]) -> Number:
        match node:
            case ast.Constant(value=int(number)) if not isinstance(number, bool):
                return number
            case ast.Name(id=name) if name in values:
                return values[name]
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                return _apply(op, self._value(left, values), self._value(right, values))
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _OPERATORS:
                return _apply(op, self._value(left, values), self._value(right, values))
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in self.above:
                result: Number = self.above[name](*(self._value(argument, values) for argument in arguments))
                return result
        raise NanoqwenError(
            f"{self.name}: {ast.unparse(node)!r} in {self.text!r}, expected its parameters, whole numbers,"
            " + - * / % < <= > >= == of two, and functions above it"
        )


def functions(source: str = "gemv_index.cuh") -> dict[str, IndexFunction]:
    """Every INDEX function of a file of kernels/ by its name, in the order of the file."""
    return parse(read_source(source))


def parse(text: str) -> dict[str, IndexFunction]:
    """The functions of a header's text.

    >>> parse("INDEX half(long long a) { return a / 2; }")["half"](7)
    3
    """
    found: dict[str, IndexFunction] = {}
    for line in text.splitlines():
        if not line.startswith("INDEX "):
            continue
        if (match := _LINE.fullmatch(line.strip())) is None:
            raise NanoqwenError(f"line {line!r}: expected INDEX NAME(long long a, …) {{ return <expression>; }}")
        parameters = tuple(_PARAMETER.findall(match["parameters"]))
        found[match["name"]] = IndexFunction(match["name"], parameters, match["text"], MappingProxyType(dict(found)))
    return found


@cache
def _expression(text: str) -> ast.expr:
    try:
        return ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise NanoqwenError(f"expression {text!r}: {error.msg}") from None


def _apply(op: ast.AST, left: Number, right: Number) -> Number:
    if isinstance(op, ast.Div | ast.Mod) and np.any(np.asarray(left) < 0):
        raise NanoqwenError(f"{left!r} divided by {right!r}: C rounds a negative number up, Python down")
    if isinstance(op, ast.Div | ast.Mod) and not np.all(right):
        raise NanoqwenError(f"{left!r} divided by {right!r}: expected a divisor that is not 0")
    result = _OPERATORS[type(op)](left, right)
    return result.astype(np.int64) if isinstance(result, np.ndarray) else int(result)
