"""The word's data: the trace of every unpack method for one word, as plain numbers and words for the pictures.

A row is an operand or a result: {label, value, fill}. `fill` has one letter a bit, bit 31 first: "0" to "7" depends on
that weight, "k" a constant 1, "m" a 1 of a mask, "x" the mistake, "-" no bit (of a 16-bit register), "." the rest; it
is "" for a number that is no register. A wire is [from nibble, to nibble, letter].
Which bit depends on which weight is found by trying, so no rule of an instruction is repeated here.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch

from lab_engine.int4 import pack_words
from lab_engine.nanoqwen_file import LAYOUTS
from lab_engine.ptx import Registers
from lab_engine.unpack import METHODS, REGISTERS, WEIGHTS, UnpackStep, UnpackTrace, trace_unpack
from widgets.int4_word_notes import AND_OR, SIGNS, half, note, number, result_notes, sentence, signs
from widgets.words import hex_word

ALL_BITS = 0xFFFFFFFF
NO_OWNER = "." * 32
Owners = Mapping[str, str]
"""For each register the weight that each of its bits depends on."""


def packed(codes: Sequence[int], layout: str) -> int:
    """The word of eight codes of −8 to 7, weight 0 first."""
    return int(pack_words(torch.tensor([list(codes)], dtype=torch.int8), layout)) & ALL_BITS


def word_data(word: int) -> dict[str, Any]:
    """Everything that the pictures show of the eight codes in a `linear` word, for every method; JSON-ready."""
    codes = trace_unpack(word, "shift_mask").codes
    words = {layout: packed(codes, layout) for layout in LAYOUTS}
    traces = {name: trace_unpack(words[method.layout], name) for name, method in METHODS.items()}
    return {
        "codes": list(codes),
        "orders": {layout: list(order) for layout, order in LAYOUTS.items()},
        "methods": {name: _method_data(trace, words) for name, trace in traces.items()},
    }


def _method_data(trace: UnpackTrace, words: Mapping[str, int]) -> dict[str, Any]:
    writes = [step.writes for step in trace.steps]
    done = [len(writes) - writes[::-1].index(register) for register, _, _ in trace.halves]
    steps = [_start(trace, words), *(_step(trace, at) for at in range(len(trace.steps)))]
    values = [
        {"text": number(value), "right": value == code}
        for (_, _, value), code in zip(trace.halves, trace.codes, strict=True)
    ]
    return {"layout": trace.layout, "word": hex_word(trace.word), "done": done, "unpacked": values, "steps": steps}


def _start(trace: UnpackTrace, words: Mapping[str, int]) -> dict[str, Any]:
    """Before the first instruction: the word in both orders."""
    shuffled = LAYOUTS["value_shuffle"]
    stays = [place for place, weight in enumerate(shuffled) if place == weight]
    rows = [{"label": layout, "value": word, "fill": _word_owners(layout)} for layout, word in words.items()]
    said = [
        f"{trace.method}, 0 of {len(trace.steps)}",
        *(f"{layout} {hex_word(word)}" for layout, word in words.items()),
    ]
    return {
        "sentence": " · ".join([*said, f"{' and '.join(f'w{place}' for place in stays)} stay in place"]),
        "text": METHODS[trace.method].title,
        "why": f"It reads the {trace.layout} word and makes eight fp16 numbers in {len(trace.steps)} instructions.",
        "rows": rows[:1],
        "result": rows[1],
        "bands": [[4 * place + 3, 4 * place] for place in stays[::-1]],
        "wires": [[weight, place, str(weight)] for place, weight in enumerate(shuffled)],
        "changed": 0,
        "notes": [note(4 * place + 3, 4 * place, f"w{weight}") for place, weight in enumerate(shuffled)],
    }


def _step(trace: UnpackTrace, at: int) -> dict[str, Any]:
    step, owners = trace.steps[at], _owners(trace.method)
    known = {"word": _word_owners(trace.layout)} | {trace.steps[i].writes: owners[i] for i in range(at)}
    mask = step.reads[1][1] if signs(step).startswith("&") else None
    same_places = step.op in SIGNS  # the others move bits
    data: dict[str, Any] = {
        "sentence": sentence(trace, at, owners[at]),
        "text": step.text,
        "why": _why(step),
        "rows": [] if step.op == "prmt.b32" else _rows(step, known, mask),
        "result": _row(f"= {step.writes}", step.value, owners[at]),
        "bands": [] if mask is None else _runs(mask),
        "changed": step.reads[0][1] ^ step.value if same_places else 0,
        "wires": _wires(step, known.get(step.reads[0][0], NO_OWNER)) if step.op == "shr.u32" else [],
        "notes": result_notes(trace, at, owners[at]),
    }
    return data | _lookup(step, known, data["result"]) if step.op == "prmt.b32" else data


def _why(step: UnpackStep) -> str:
    """The comment of the source line; for a lop3 what its last number says, if it is the table of (a & b) | c."""
    table = step.reads[-1][1]
    explained = step.op == "lop3.b32" and table == AND_OR
    return step.note + (f" · {table:#x} is the truth table of (a & b) | c" if explained else "")


# Rows --------------------------------------------------------------------------------------------------------------


def _row(label: str, value: int, owners: str, kept: int = ALL_BITS, constant: str = "k") -> dict[str, Any]:
    """Bits outside `kept` are muted."""
    letters = []
    for place, owner in zip(range(31, -1, -1), owners, strict=True):
        plain = constant if owner == "." and value >> place & 1 else owner
        letters.append(plain if kept >> place & 1 or owner == "-" else ".")
    return {"label": label, "value": value, "fill": "".join(letters)}


def _rows(step: UnpackStep, known: Owners, mask: int | None) -> list[dict[str, Any]]:
    """The operands, but lop3's table, which is in the instruction's text."""
    (name, value), *rest = step.reads[:3]
    first = "low " + name if step.op == "mov.b32" and rest else name
    rows = [_row(first, value, known.get(name, NO_OWNER), ALL_BITS if mask is None else mask)]
    for sign, (name, value) in zip(_signs(step) or ("", ""), rest, strict=False):
        if sign == "&":
            rows.append(_row("& mask", value, NO_OWNER, constant="m"))
        elif sign in (">>", "<<"):
            rows.append({"label": f"{sign} {value}", "value": value, "fill": ""})
        else:
            label = f"{sign} {_operand(step, name, value)}".replace("+ −", "− ").strip()
            rows.append(_row(label, value, known.get(name, NO_OWNER)))
    return rows


def _signs(step: UnpackStep) -> Sequence[str]:
    return {"shr.u32": [">>"], "shl.b32": ["<<"], "mov.b32": ["high"]}.get(step.op) or signs(step)


def _operand(step: UnpackStep, name: str, value: int) -> str:
    """A register's name; for a constant what it means where it is two equal fp16 numbers."""
    if step.writes in REGISTERS and not name.isidentifier() and half(value, 0) == half(value, 1):
        return number(half(value, 0)) if "f16x2" in step.op else f"fp16 {number(half(value, 0))}"
    return "constant" if name.startswith("0x") else name


def _wires(step: UnpackStep, owners: str) -> list[list[int | str]]:
    """The nibbles that a shift moves whole: [from, to, weight], nibble 0 first."""
    places, rest = divmod(step.reads[1][1], 4)
    return [] if rest else [[nibble, nibble - places, owners[28 - 4 * nibble]] for nibble in range(places, WEIGHTS)]


def _runs(mask: int) -> list[list[int]]:
    """The stretches of ones as [highest bit, lowest bit], highest first."""
    edges = [place for place in range(32, -1, -1) if (mask >> place & 1) != (mask << 1 >> place & 1)]
    return [[high - 1, low] for high, low in zip(edges[::2], edges[1::2], strict=True)]


def _lookup(step: UnpackStep, known: Owners, result: dict[str, Any]) -> dict[str, Any]:
    """prmt: the eight bytes b:a, and for each byte of the result which of them its selector nibble picks."""
    (a_name, a), (b_name, b), (name, selector) = step.reads
    fixed = not a_name.isidentifier() and not b_name.isidentifier()
    table = [(b << 32 | a) >> 8 * place & 0xFF for place in range(8)]
    nibbles = [selector >> 4 * place & 0xF for place in range(4)]
    selects = _row(name if name.isidentifier() else "selector", selector, known.get(name, NO_OWNER), 0xFFFF)
    for place, nibble in enumerate(nibbles):
        if nibble & 8:
            selects["fill"] = _mark(selects["fill"], 4 * place + 3, 1)
            result["fill"] = _mark(result["fill"], 8 * place + 7, 8)
    return {
        "rows": [selects],
        "table": [{"hex": f"{byte:02X}", "value": number(half(byte << 8, 0)) if fixed else ""} for byte in table],
        "tableNames": [] if fixed else [b_name, a_name],
        "picks": [
            {"byte": nibble & 7, "owner": _owner(result["fill"], place), "sign": nibble > 7}
            for place, nibble in enumerate(nibbles)
        ],
        "result": result,
    }


def _mark(fill: str, highest: int, count: int) -> str:
    return fill[: 31 - highest] + "x" * count + fill[31 - highest + count :]


def _owner(fill: str, place: int) -> str:
    letters = fill[24 - 8 * place : 32 - 8 * place]
    return next((letter for letter in letters if letter.isdigit() or letter == "x"), ".")


# Which bit depends on which weight ---------------------------------------------------------------------------------


def _word_owners(layout: str) -> str:
    return "".join(str(weight) * 4 for weight in LAYOUTS[layout][::-1])


@cache
def _owners(method: str) -> tuple[str, ...]:
    """For each step the weights behind the bits of its result: each nibble in turn takes all 16 values."""
    order = LAYOUTS[METHODS[method].layout]
    tried = [0x12345678 ^ change << 4 * place for place in range(WEIGHTS) for change in range(16)]
    registers: Registers = {"word": np.array(tried, np.uint32)}
    found = []
    for instruction in METHODS[method].instructions:
        result = registers[instruction.writes] = instruction.result(instruction.operands(registers))
        values = np.broadcast_to(result, len(tried)).reshape(WEIGHTS, 16)
        moved = np.bitwise_or.reduce(values ^ values[:, :1], axis=1)
        letters = "".join(_depends(moved, place, order) for place in range(31, -1, -1))
        found.append("-" * 16 + letters[16:] if instruction.op == "cvt.rn.f16.s32" else letters)
    return tuple(found)


def _depends(moved: np.ndarray[Any, Any], place: int, order: Sequence[int]) -> str:
    return next((str(order[nibble]) for nibble in range(WEIGHTS) if int(moved[nibble]) >> place & 1), ".")
