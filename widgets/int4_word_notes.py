"""What an unpack instruction's result means, in words: the notes under its bits and the state sentence.

A note {from, to, text, more, look, fields} stands under bits from … to of a result. `fields` marks the sign, exponent
and mantissa of an fp16 number; `look` is one of "" (plain), "b" (a weight is done), "mu" (not used), "cw" (wrong).
"""

from typing import Any

import numpy as np

from lab_engine.unpack import REGISTERS, WEIGHTS, UnpackStep, UnpackTrace
from widgets.words import hex_word, signed

Note = dict[str, Any]
SIGNS = {
    "lop3.b32": "&|",
    "and.b32": "&",
    "or.b32": "|",
    "xor.b32": "^",
    "sub.s32": "−",
    "add.s32": "+",
    "sub.rn.f16x2": "−",
    "fma.rn.f16x2": "×+",
}
"""What stands between the operands where bits keep their places; a lop3's if its table is AND_OR."""
AND_OR = 0xEA
"""The table of (a & b) | c."""


def number(value: float) -> str:
    """−7, 1152, 1/16."""
    small = 0 < abs(value) < 1 and (1 / value).is_integer()
    return signed(f"1/{1 / value:g}" if small else f"{value:g}")


def fp16(bits: int) -> float:
    """The fp16 number of 16 bits."""
    return float(np.array([bits], "<u2").view(np.float16)[0])


def half(value: int, high: int) -> float:
    """The fp16 number in the low (0) or high (1) half of a register."""
    return fp16(value >> 16 * high & 0xFFFF)


def note(first: int, last: int, text: str, more: str = "", look: str = "", fields: bool = False) -> Note:
    """Under bits first … last, bit 31 being at the left."""
    return {"from": first, "to": last, "text": text, "more": more, "look": look, "fields": fields}


def result_notes(trace: UnpackTrace, at: int, owners: str) -> list[Note]:
    """What step `at` has made. owners: for each bit, bit 31 first, the weight it depends on, or a sign that is none."""
    step = trace.steps[at]
    if step.writes in REGISTERS:
        return [_half_note(trace, at, owners, high) for high in (1, 0)]
    if step.op == "prmt.b32":
        return [_byte_note(trace, step, place, owners[24 - 8 * place :][:8]) for place in (3, 2, 1, 0)]
    weights = _weights_of(owners)
    if len(weights) != 1 or step.op in ("shr.u32", "shl.b32"):
        return []
    return [_single_note(step, weights[0], trace.codes[weights[0]])]


def _single_note(step: UnpackStep, weight: int, code: int) -> Note:
    """A register that one weight alone has made: its nibble, itself, or some number on the way."""
    if step.op == "cvt.rn.f16.s32":
        value = fp16(step.value)
        return note(15, 0, f"fp16 {number(value)}{_is(value == code, weight)}", fields=True)
    if step.op in ("sub.s32", "add.s32"):
        return note(31, 0, f"{_decimals(step)}{_is(_int32(step.value) == code, weight)}")
    if step.value == code + 8:
        return note(31, 0, f"n = {step.value}, the nibble of w{weight}")
    return note(31, 0, f"{hex_word(step.value)}, of w{weight}")


def _is(right: bool, weight: int) -> str:
    return f" = w{weight}" if right else f", of w{weight}"


def _half_note(trace: UnpackTrace, at: int, owners: str, high: int) -> Note:
    """An fp16 number on its way to a weight, or there; in plain words where the way is another."""
    step, later = trace.steps[at], _reading(trace, at)
    weight, bits = 2 * REGISTERS.index(step.writes) + high, (16 * high + 15, 16 * high)
    if not later:
        return _last_note(trace, step, weight, high)
    value, shift = half(step.value, high), _nibble_place(trace, at, owners, high)
    if shift is None:
        return note(*bits, _plain(step.value >> 16 * high & 0xFFFF, 2, owners[::-1][16 * high :][:16]))
    n = (step.value >> 16 * high >> shift) & 0xF
    parts = f"{number(value - (n << shift))} + {f'{1 << shift} × ' if shift else ''}{n}"
    end = f"then {_constants(later[0], high)} = {_claim(trace, weight, half(later[0].value, high))}"
    return note(*bits, f"fp16 {number(value)} = {parts}", end, fields=True)


def _last_note(trace: UnpackTrace, step: UnpackStep, weight: int, high: int) -> Note:
    """A half that no later instruction reads: the weight, right or wrong."""
    value, before = half(step.value, high), "fp16 "
    if "f16x2" in step.op:
        before = f"{number(half(step.reads[0][1], high))} {_constants(step, high)} = "
    look = "b" if value == trace.codes[weight] else "cw"
    return note(16 * high + 15, 16 * high, before + _claim(trace, weight, value), look=look, fields=True)


def _reading(trace: UnpackTrace, at: int) -> list[UnpackStep]:
    """The later instructions that read the register of step `at`."""
    return [step for step in trace.steps[at + 1 :] if trace.steps[at].writes in dict(step.reads)]


def _nibble_place(trace: UnpackTrace, at: int, owners: str, high: int) -> int | None:
    """Where the half's own nibble stands if the half is a number plus that nibble and one fp16 instruction is left."""
    step, later = trace.steps[at], _reading(trace, at)
    bits, weight = owners[::-1][16 * high :][:16], str(2 * REGISTERS.index(step.writes) + high)
    shift, value = bits.find(weight), step.value >> 16 * high & 0xFFFF
    alone = shift >= 0 and [place for place in range(16) if bits[place].isdigit()] == list(range(shift, shift + 4))
    last = len(later) == 1 and "f16x2" in later[0].op and later[0].reads[0][0] == later[0].writes == step.writes
    if not (alone and bits[shift : shift + 4] == 4 * weight and last):
        return None
    nibble = value & 0xF << shift
    return shift if fp16(value) == fp16(value - nibble) + nibble else None


def _plain(value: int, size: int, owners: str) -> str:
    """`0x0071: w0 and w1`: a number, and the weights that it depends on."""
    weights = " and ".join(f"w{weight}" for weight in _weights_of(owners))
    return hex_word(value, size) + (f": {weights}" if weights else "")


def _weights_of(owners: str) -> list[int]:
    return sorted({int(letter) for letter in owners if letter.isdigit()})


def _claim(trace: UnpackTrace, weight: int, value: float) -> str:
    code = trace.codes[weight]
    return f"{number(value)} = w{weight}" if value == code else f"{number(value)}, but w{weight} = {number(code)}"


def _byte_note(trace: UnpackTrace, step: UnpackStep, place: int, owners: str) -> Note:
    """A looked-up byte, as the high byte of an fp16 number whose low byte is 0; a moved one in plain words."""
    weights, byte = _weights_of(owners), step.value >> 8 * place & 0xFF
    bits = 8 * place + 7, 8 * place
    if step.reads[2][1] >> 4 * place & 8 and weights:
        return note(*bits, f"a sign: {hex_word(byte, 1)}", look="cw")
    if len(weights) != 1:
        return note(*bits, _plain(byte, 1, owners), look="mu")
    value = fp16(byte << 8)
    right = value == trace.codes[weights[0]]
    return note(*bits, f"{number(value)} {'=' if right else '≠'} w{weights[0]}", look="" if right else "mu")


def _constants(step: UnpackStep, high: int) -> str:
    """`− 1032`, `× 1/16 − 72`: what an fp16 instruction does to its first operand."""
    signs, constants = SIGNS[step.op], [half(value, high) for _, value in step.reads[1:]]
    return " ".join(f"{sign} {number(x)}" for sign, x in zip(signs, constants, strict=True)).replace("+ −", "− ")


def _decimals(step: UnpackStep) -> str:
    a, b = (signed(_int32(value)) for _, value in step.reads)
    return f"{a} {SIGNS[step.op]} {b} = {signed(_int32(step.value))}"


def _int32(value: int) -> int:
    return int(np.uint32(value).view(np.int32))


def signs(step: UnpackStep) -> str:
    """What stands between the operands; nothing for a lop3 of another table than (a & b) | c."""
    return "" if step.op == "lop3.b32" and step.reads[3][1] != AND_OR else SIGNS.get(step.op, "")


def expression(step: UnpackStep) -> str:
    """`0xF4B7AD81 & 0x00F000F0 | 0x64006400 = 0x64B06480`."""
    values = [value for _, value in step.reads]
    first, result = hex_word(values[0]), hex_word(step.value)
    match step.op:
        case "prmt.b32":  # reads the low 16 bits of its selector
            said = f"prmt({first}, {hex_word(values[1])}, {hex_word(values[2] & 0xFFFF, 2)})"
        case "sub.s32" | "add.s32":
            said = _decimals(step)
        case "cvt.rn.f16.s32":
            return f"{first} to fp16 = {hex_word(step.value, 2)}"
        case "mov.b32" if len(values) > 1:
            said = f"{hex_word(values[1], 2)} above {hex_word(values[0], 2)}"
        case "shr.u32" | "shl.b32":
            said = f"{first} {'>>' if step.op == 'shr.u32' else '<<'} {values[1]}"
        case "sub.rn.f16x2" | "fma.rn.f16x2" if _constants(step, 0) == _constants(step, 1):
            said = f"{first} {_constants(step, 0)}"
        case "lop3.b32" if not signs(step):
            said = f"lop3({', '.join(map(hex_word, values[:3]))}, {hex_word(values[3], 1)})"
        case _:
            said = first + "".join(f" {sign} {hex_word(x)}" for sign, x in zip(signs(step), values[1:], strict=False))
    return f"{said} = {result}"


def sentence(trace: UnpackTrace, at: int, owners: str) -> str:
    """`lop3, 2 of 9 · 0xF4B7AD81 & 0x00F000F0 | 0x64006400 = 0x64B06480 · w2 1152, w3 1200`."""
    step, count = trace.steps[at], len(trace.steps)
    parts = [f"{trace.method}, {at + 1} of {count}", expression(step)]
    if at + 1 == count:
        right = sum(value == code for (_, _, value), code in zip(trace.halves, trace.codes, strict=True))
        parts += [f"{right} of {WEIGHTS} right", f"{count} / {WEIGHTS} = {count / WEIGHTS:g} a weight"]
    elif step.writes in REGISTERS and _are_numbers(trace, at, owners):
        first = 2 * REGISTERS.index(step.writes)
        parts.append(", ".join(f"w{first + high} {number(half(step.value, high))}" for high in (0, 1)))
    return " · ".join(parts)


def _are_numbers(trace: UnpackTrace, at: int, owners: str) -> bool:
    """Whether both halves are fp16 numbers on their way to weights, or there."""
    return not _reading(trace, at) or all(_nibble_place(trace, at, owners, high) is not None for high in (0, 1))
