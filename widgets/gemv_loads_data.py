"""The data of the warp's loads, for static/gemv_loads_data.js.

The browser gets the kernels' index expressions as trees, with calls written out, and evaluates them for every lane and
iteration by itself: `["+", ["*", "row", ["/", "k", 2]], …]`.
"""

import ast
from collections.abc import Mapping
from functools import cache
from typing import Any

from lab_engine.gemv_loads import (
    BLOCKS,
    LANES,
    LINE_BYTES,
    PATTERNS,
    SECTOR_BYTES,
    Pattern,
    first_rows,
    iterations,
    warps,
    whole_matrix,
)
from lab_engine.index_text import functions

ROWS = 3584
"""n of the matrix: that of o and down in the 7B."""
KS, SHIFTS, WARPS = (3584, 18944, 384, 128), (0, 16), 8
NOTES = {
    "naive": "Eight iterations read the same sectors. What L1 or L2 still holds of them is not moved again. "
    "The waiting remains: see kernel 1 of the roofline.",
    "naive16": "Two iterations read the same sectors. What L1 or L2 still holds of them is not moved again. "
    "No rung reads so: it is here to be compared.",
    "coalesced": "Every byte moves once, for a lane that wants it now: there is nothing left for a cache to save.",
    "rows": "More requests on their way at once, and one piece of x serves all rows: the bytes are as many as before.",
    "ring": "One thread beside the warps that multiply asks for whole stretches. The lanes take their 16 bytes from "
    "shared memory then.",
}
"""What the counts leave out, or what they are good for."""
SHIFTED = "Two requests in a row share the sector between them. What L1 or L2 still holds of it is not moved again."
"""The same where a shift parts sectors that were one lane's."""
_SYMBOLS: dict[type[ast.AST], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Mod: "%",
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==",
}  # fmt: skip

Tree = int | str | list[Any]


class _Inline(ast.NodeTransformer):
    """Names replaced by what they stand for, and calls by the expression of the function."""

    def __init__(self, names: Mapping[str, ast.expr]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.names.get(node.id, node)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        function = functions()[ast.unparse(node.func)]
        arguments = [self.visit(argument) for argument in node.args]
        return written_out(function.name, dict(zip(function.parameters, arguments, strict=True)))


def written_out(name: str, names: Mapping[str, ast.expr] | None = None) -> ast.expr:
    """The expression of a function of gemv_index.cuh without calls; `names` replaces its parameters."""
    body = ast.parse(functions()[name].text, mode="eval").body
    expression: ast.expr = _Inline(names or {}).visit(body)
    return expression


def tree(node: ast.expr) -> Tree:
    """An expression as JSON: a number, a name, or [operator, left, right]."""
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.Name(id=name):
            return name
        case ast.BinOp(left=left, op=op, right=right) | ast.Compare(left=left, ops=[op], comparators=[right]):
            return [_SYMBOLS[type(op)], tree(left), tree(right)]
    raise ValueError(f"no tree for {ast.unparse(node)}")


@cache
def loads_data() -> dict[str, Any]:
    """What the browser needs: sizes, every pattern's expressions, the totals of whole matrices."""
    return {
        "n": ROWS, "ks": list(KS), "shifts": list(SHIFTS), "warps": WARPS, "blocks": BLOCKS,
        "lanes": LANES, "sector": SECTOR_BYTES, "line": LINE_BYTES,
        "rowBytes": tree(written_out("row_bytes")),
        "group": _formula(written_out("group_of")),
        "weight": tree(written_out("weight_of")),
        "patterns": {name: _pattern_data(pattern) for name, pattern in PATTERNS.items()},
    }  # fmt: skip


def _pattern_data(pattern: Pattern) -> dict[str, Any]:
    name, rungs = pattern.name, ", ".join(pattern.rungs)
    row = written_out("ring_row", {"tile": written_out("ring_tile")}) if pattern.bulk else written_out(f"{name}_row")
    always = ast.Constant(1)
    return {
        "words": f"{rungs}: {pattern.words}" if rungs else pattern.words,
        "bulk": pattern.bulk,
        "notes": {str(shift): SHIFTED if shift and not name.startswith("naive") else NOTES[name] for shift in SHIFTS},
        "warps": 1 if pattern.bulk else warps(name),
        "rows": {str(k): list(first_rows(name, k)) for k in KS},
        "row": tree(row),
        "stride": _stride(pattern),
        "size": tree(_copied() if pattern.bulk else written_out(f"{name}_width")),
        "byte": _formula(written_out(f"{name}_byte")),
        "active": _formula(always if pattern.bulk else written_out(f"{name}_active")),
        "iterations": {str(k): iterations(name, k) for k in KS},
        "totals": {str(k): {str(shift): _totals(name, k, shift) for shift in SHIFTS} for k in KS},
    }


def _copied() -> ast.expr:
    """Bytes of a bulk copy whose rows all exist."""
    return ast.BinOp(written_out("ring_copy_rows"), ast.Mult(), written_out("ring_length"))


def _stride(pattern: Pattern) -> int:
    """Bytes of a row from one iteration to the next."""
    byte = functions()[f"{pattern.name}_byte"]
    places = {"row": 0, "k": KS[0], "lane": 0}
    first, second = (byte(*(({"i": i, "chunk": i} | places)[one] for one in byte.parameters)) for i in (0, 1))
    return int(second - first)


def _formula(node: ast.expr) -> dict[str, Any]:
    return {"text": ast.unparse(node), "tree": tree(node)}


def _totals(name: str, k: int, shift: int) -> list[int]:
    totals = whole_matrix(name, ROWS, k, shift)
    return [totals.used, totals.moved]
