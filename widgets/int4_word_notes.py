"""What an unpack instruction's result means, in words: the notes under its bits and the state sentence.

A note {from, to, text, more, look, fields} stands under bits from … to of a result. `fields` marks the sign, exponent
and mantissa of an fp16 number; `look` is one of "" (plain), "b" (a weight is done), "mu" (not used), "cw" (wrong).
"""

from typing import Any

import numpy as np

from lab_engine.unpack import REGISTERS, WEIGHTS, UnpackStep, UnpackTrace
from widgets.words import hex_word, signed

Note = dict[str, Any]
SIGNS = {"lop3.b32": "&|", "and.b32": "&", "sub.s32": "−", "sub.rn.f16x2": "−", "fma.rn.f16x2": "×+"}
"""What stands between the operands. Every lop3 of the methods has the table 0xea, (a & b) | c."""


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
    weights = sorted(set(owners) & set("01234567"))
    if step.writes in REGISTERS:
        return [_half_note(trace, at, owners, high) for high in (1, 0)]
    if step.op == "prmt.b32":
        return [_byte_note(trace, step, place, owners[24 - 8 * place :][:8]) for place in (3, 2, 1, 0)]
    if len(weights) == 1 and step.op == "cvt.rn.f16.s32":
        return [note(15, 0, f"fp16 {number(fp16(step.value))} = w{weights[0]}", fields=True)]
    if len(weights) == 1 and step.op == "sub.s32":
        return [note(31, 0, f"{_decimals(step)} = w{weights[0]}")]
    if len(weights) == 1 and step.op != "shr.u32":
        return [note(31, 0, f"n = {step.value}, the nibble of w{weights[0]}")]
    return []


def _half_note(trace: UnpackTrace, at: int, owners: str, high: int) -> Note:
    """An fp16 number on its way to a weight, or there."""
    step = trace.steps[at]
    weight = 2 * REGISTERS.index(step.writes) + high
    later = next((one for one in trace.steps[at + 1 :] if step.writes in dict(one.reads)), None)
    bits = (16 * high + 15, 16 * high)
    if later is not None:
        shift = owners[::-1].index(str(weight)) - 16 * high
        n = (step.value >> 16 * high >> shift) & 0xF
        value = half(step.value, high)
        parts = f"{number(value - (n << shift))} + {f'{1 << shift} × ' if shift else ''}{n}"
        end = f"then {_constants(later, high)} = {_claim(trace, weight, half(later.value, high))}"
        return note(*bits, f"fp16 {number(value)} = {parts}", end, fields=True)
    value = half(step.value, high)
    before = f"{number(half(step.reads[0][1], high))} {_constants(step, high)} = " if "f16x2" in step.op else "fp16 "
    look = "b" if value == trace.codes[weight] else "cw"
    return note(*bits, before + _claim(trace, weight, value), look=look, fields=True)


def _claim(trace: UnpackTrace, weight: int, value: float) -> str:
    code = trace.codes[weight]
    return f"{number(value)} = w{weight}" if value == code else f"{number(value)}, but w{weight} = {number(code)}"


def _byte_note(trace: UnpackTrace, step: UnpackStep, place: int, owners: str) -> Note:
    """A looked-up byte, as the high byte of an fp16 number whose low byte is 0."""
    weight = next((int(letter) for letter in owners if letter.isdigit()), None)
    byte = step.value >> 8 * place & 0xFF
    if weight is None:
        return note(8 * place + 7, 8 * place, hex_word(byte, 1), look="mu")
    if step.reads[2][1] >> 4 * place & 8:
        return note(8 * place + 7, 8 * place, f"a sign: {hex_word(byte, 1)}", look="cw")
    value, right = fp16(byte << 8), fp16(byte << 8) == trace.codes[weight]
    return note(
        8 * place + 7, 8 * place, f"{number(value)} {'=' if right else '≠'} w{weight}", look="" if right else "mu"
    )


def _constants(step: UnpackStep, high: int) -> str:
    """`− 1032`, `× 1/16 − 72`: what an fp16 instruction does to its first operand."""
    signs, constants = SIGNS[step.op], [half(value, high) for _, value in step.reads[1:]]
    return " ".join(f"{sign} {number(x)}" for sign, x in zip(signs, constants, strict=True)).replace("+ −", "− ")


def _decimals(step: UnpackStep) -> str:
    (_, a), (_, b) = step.reads
    return f"{a} − {b} = {number(int(np.uint32(step.value).view(np.int32)))}"


def expression(step: UnpackStep) -> str:
    """`0xF4B7AD81 & 0x00F000F0 | 0x64006400 = 0x64B06480`."""
    values = [value for _, value in step.reads]
    first, result = hex_word(values[0]), hex_word(step.value)
    match step.op:
        case "prmt.b32":  # reads the low 16 bits of its selector
            return f"prmt({first}, {hex_word(values[1])}, {hex_word(values[2] & 0xFFFF, 2)}) = {result}"
        case "sub.s32":
            said = _decimals(step)
        case "cvt.rn.f16.s32":
            return f"{first} to fp16 = {hex_word(step.value, 2)}"
        case "mov.b32":
            said = f"{hex_word(values[1], 2)} above {hex_word(values[0], 2)}"
        case "shr.u32":
            said = f"{first} >> {values[1]}"
        case "sub.rn.f16x2" | "fma.rn.f16x2":
            said = f"{first} {_constants(step, 0)}"
        case _:
            said = first + "".join(
                f" {sign} {hex_word(x)}" for sign, x in zip(SIGNS[step.op], values[1:], strict=False)
            )
    return f"{said} = {result}"


def sentence(trace: UnpackTrace, at: int) -> str:
    """`lop3, 2 of 9 · 0xF4B7AD81 & 0x00F000F0 | 0x64006400 = 0x64B06480 · w2 1152, w3 1200`."""
    step, count = trace.steps[at], len(trace.steps)
    parts = [f"{trace.method}, {at + 1} of {count}", expression(step)]
    if at + 1 == count:
        right = sum(value == code for (_, _, value), code in zip(trace.halves, trace.codes, strict=True))
        parts += [f"{right} of {WEIGHTS} right", f"{count} / {WEIGHTS} = {count / WEIGHTS:g} a weight"]
    elif step.writes in REGISTERS:
        first = 2 * REGISTERS.index(step.writes)
        parts.append(", ".join(f"w{first + high} {number(half(step.value, high))}" for high in (0, 1)))
    return " · ".join(parts)
