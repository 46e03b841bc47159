"""Has a learner begun? `raise NotImplementedError` alone is the stub; beside other code it was left there."""

import ast
import dis
import inspect
import textwrap
import traceback
from typing import Any

_CONSTANT = frozenset({"LOAD_CONST", "RETURN_CONST"})
_NAME = frozenset({"LOAD_GLOBAL", "LOAD_COMMON_CONSTANT"})
_EMPTY = _CONSTANT | _NAME | {"RESUME", "NOP", "RETURN_VALUE", "COPY_FREE_VARS", "POP_TOP", "RAISE_VARARGS"}
_EMPTY |= {"PUSH_NULL", "PRECALL", "CALL"}  # of `raise NotImplementedError()`


def has_started(function: Any, error: BaseException | None) -> bool:
    """False for the stub, and for a body that is only `...`, `pass` or `return None`. error: what a call raised."""
    if isinstance(error, NotImplementedError) and error.args:
        return True  # torch raises it too, with a message
    if getattr(function, "__code__", None) is None:
        return not isinstance(error, NotImplementedError)
    body = _body(function)
    return _runs_something(function) if body is None else not all(map(_is_empty, body))


def reached_the_stubs_raise(function: Any, error: BaseException | None) -> bool:
    """A bare NotImplementedError out of the function's own lines, not out of one that it called."""
    if not isinstance(error, NotImplementedError) or error.args:
        return False
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return frames[-1].f_code is getattr(function, "__code__", None)


def _body(function: Any) -> list[ast.stmt] | None:
    """The statements as written, those too that the compiler drops below a raise. None: the source is not at hand."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return None
    written = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return written[0].body if written and written[0].name == function.__code__.co_name else None


def _is_empty(statement: ast.stmt) -> bool:
    match statement:
        case ast.Pass() | ast.Expr(ast.Constant()) | ast.Return(None | ast.Constant(None)):
            return True
        case ast.Raise(ast.Name("NotImplementedError") | ast.Call(ast.Name("NotImplementedError"), [], [])):
            return True
    return False


def _runs_something(function: Any) -> bool:
    steps = list(dis.get_instructions(function.__code__))
    constants = [step.argval for step in steps if step.opname in _CONSTANT]
    names = [step.argrepr for step in steps if step.opname in _NAME]
    only_the_stubs = all(c is None or c is ... for c in constants) and all("NotImplementedError" in n for n in names)
    return not only_the_stubs or any(step.opname not in _EMPTY for step in steps)
