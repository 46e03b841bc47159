"""The four forms in which tiny-coder sees its text: plain files, fill-in-the-middle, chat, and single definitions.

Each form is one string with the special tokens spelled out, which is exact because kept files never spell one.
Plain: file <|endoftext|>. FIM (prefix, suffix, middle): sections of at most FIM_CHARS characters, so that one fits the
model's window. Definition: one short function or class of a module with the imports it needs, as a text of its own,
plain or FIM: what people type into a small model is the head of one. Chat: a plain-English request built from a real
function's docstring, answered with its code alone.
"""

from __future__ import annotations

import ast
import random
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

from tools.tiny_tokenizer import END_OF_TEXT, FIM_MIDDLE, FIM_PREFIX, FIM_SUFFIX, IM_END, IM_START, SYSTEM_TEXT

FIM_CHARS = 4500
MIDDLE_LINES = 20
CHAT_LINES = 45
DEFINITION_LINES = range(5, 36)
DEFINITION_FIM_SHARE = 0.35
REQUESTS = (
    "Write a Python function `{head}`. {doc}",
    "Write a function named {name} in Python. {doc}",
    "Please write {name} for me: {doc}",
    "I need a Python function called {name}. {doc}",
    "Implement `{head}` in Python. {doc}",
    "Write Python code: `{head}`: {doc}",
)


@dataclass(frozen=True)
class FimSplit:
    """prefix + middle + suffix is the section."""

    prefix: str
    middle: str
    suffix: str


def sections(text: str, limit: int = FIM_CHARS) -> Iterator[str]:
    """The text in pieces of whole lines, each of at most `limit` characters (a longer line stands alone)."""
    piece: list[str] = []
    size = 0
    for line in text.splitlines(keepends=True):
        if piece and size + len(line) > limit:
            yield "".join(piece)
            piece, size = [], 0
        piece.append(line)
        size += len(line)
    if piece:
        yield "".join(piece)


def split_middle(section: str, rng: random.Random) -> FimSplit:
    """Cuts out a middle of 1 to 20 lines; half of the cuts stand at line starts, half anywhere in their lines."""
    lines = section.splitlines(keepends=True)
    count = min(len(lines), rng.randint(1, MIDDLE_LINES))
    first = rng.randint(0, len(lines) - count)
    start = sum(map(len, lines[:first]))
    end = start + sum(map(len, lines[first : first + count]))
    if rng.random() < 0.5:
        start += rng.randint(0, len(lines[first]) - 1)
    if rng.random() < 0.5:
        end -= rng.randint(0, len(lines[first + count - 1]) - 1)
    end = max(start, end)
    return FimSplit(section[:start], section[start:end], section[end:])


def parse(text: str) -> ast.Module:
    """The syntax tree, without the warnings that odd but valid source gives."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text)


def definitions(text: str) -> Iterator[str]:
    """Each short top-level function with 3 or more lines after its docstring, and each short class.

    Before it stand the module's imports whose names it uses.
    """
    tree, lines = parse(text), text.split("\n")
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef | ast.ClassDef) or node.decorator_list or node.name.startswith("test"):
            continue
        code = lines[node.lineno - 1 : node.end_lineno]
        body = node.body[1 if ast.get_docstring(node) else 0 :]
        if len(code) not in DEFINITION_LINES or not body or (node.end_lineno or 0) - body[0].lineno < 2:
            continue
        used = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
        needed = [i for i in imports if used & {(a.asname or a.name).split(".")[0] for a in i.names}]
        heads = [ast.unparse(i) for i in needed if len(i.names) < 4 and getattr(i, "level", 0) == 0]
        yield "\n".join([*heads, "", "", *code, ""]) if heads else "\n".join([*code, ""])


def definition_form(code: str, rng: random.Random) -> str:
    """A definition as a plain text of its own, or in FIM form."""
    if rng.random() < DEFINITION_FIM_SHARE:
        return fim_form(split_middle(code, rng))
    return plain_form(code)


def chat_pairs(text: str, rng: random.Random) -> Iterator[tuple[str, str]]:
    """(request, answer) of each documented top-level function of a module that is short enough to be an answer."""
    tree, lines = parse(text), text.split("\n")
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef) or node.decorator_list:
            continue
        summary = (ast.get_docstring(node) or "").strip().split("\n\n")[0].replace("\n", " ")
        length = (node.end_lineno or node.lineno) - node.lineno + 1
        if not 4 <= len(summary.split()) <= 40 or not 4 <= length <= CHAT_LINES or node.name.startswith("test"):
            continue
        head = f"{node.name}({', '.join(argument.arg for argument in (*node.args.posonlyargs, *node.args.args))})"
        code = "\n".join(lines[node.lineno - 1 : node.end_lineno])
        yield rng.choice(REQUESTS).format(head=head, name=node.name, doc=summary), code


def plain_form(text: str) -> str:
    """A file and its end."""
    return text + END_OF_TEXT


def fim_form(split: FimSplit) -> str:
    """Prefix, suffix, then the middle to be filled in."""
    return f"{FIM_PREFIX}{split.prefix}{FIM_SUFFIX}{split.suffix}{FIM_MIDDLE}{split.middle}{END_OF_TEXT}"


def chat_form(request: str, answer: str) -> str:
    """One exchange, as the chat template writes it."""
    turns = (("system", SYSTEM_TEXT), ("user", request), ("assistant", answer))
    return "".join(f"{IM_START}{role}\n{content}{IM_END}\n" for role, content in turns) + END_OF_TEXT
