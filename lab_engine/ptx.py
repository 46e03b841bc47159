"""PTX on NumPy: reads the asm block of a CUDA function and runs its instructions on arrays of 32-bit registers.

PTX is the assembly language that NVIDIA's compiler takes; one line here is one instruction of the kernel's source. A
register is a uint32 array with one element a word, so one run covers any number of words; a 16-bit register uses the
low half. What breaks it: an instruction that is not in INSTRUCTIONS, a register that is read before it is written.
Source: PTX ISA 9.0, https://docs.nvidia.com/cuda/parallel-thread-execution.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lab_engine.errors import PtxError

Words = NDArray[np.uint32]
Registers = dict[str, Words]

_FUNCTION = r'\bvoid\s+{name}\s*\([^)]*\)\s*\{{\s*asm\(R"\(\{{(?P<body>.*?)\}}\)"(?P<operands>.*?)\);'
_OPERAND = re.compile(r'"=?&?r"\(\s*(\w+)\s*\)')
_LITERAL = re.compile(r"-?(0x[0-9a-fA-F]+|[0-9]+)")


@dataclass(frozen=True)
class Instruction:
    """One line of PTX. text: as in the source, registers by their names; reads: names and literals, in order."""

    text: str
    op: str
    writes: str
    reads: tuple[str, ...]
    note: str

    def operands(self, registers: Mapping[str, Words]) -> tuple[Words, ...]:
        """The values it reads; PtxError names a register that holds none yet."""
        return tuple(_value(operand, registers, self.text) for operand in self.reads)

    def result(self, operands: Iterable[Words]) -> Words:
        """What it writes, for the values that it reads: uint32 arrays that broadcast together."""
        return INSTRUCTIONS[self.op].function(*operands)


def parse_function(source: str, name: str) -> tuple[Instruction, ...]:
    """The instructions of the one asm block of the C++ function `name`, with its %0, %1, … replaced by their operands.

    Raises PtxError for a function that is not there, and for what `parse` refuses.
    """
    found = re.search(_FUNCTION.format(name=re.escape(name)), source, re.DOTALL)
    if found is None:
        raise PtxError(
            f'function {name}: not found; expected "void {name}(…) {{" and then one asm(R"({{ … }})" …) block'
        )
    operands = _OPERAND.findall(found["operands"])
    return parse(re.sub(r"%(\d+)", lambda place: str(operands[int(place[1])]), found["body"]))


def parse(text: str) -> tuple[Instruction, ...]:
    """Plain PTX, one instruction a line, with a `// comment` after each that wants one; `.reg` lines are passed over.

    >>> parse("lop3.b32 h0, word, 0x000f000f, 0x64006400, 0xea;  // keep two nibbles")[0].reads
    ('word', '0x000f000f', '0x64006400', '0xea')
    """
    lines = (line.strip() for line in text.splitlines())
    return tuple(_instruction(line) for line in lines if line and not line.startswith((".reg", "//")))


def run(instructions: Iterable[Instruction], registers: Mapping[str, Words]) -> Registers:
    """All registers after the instructions; `registers` holds the inputs, uint32 arrays of one shape."""
    state = dict(registers)
    for instruction in instructions:
        state[instruction.writes] = instruction.result(instruction.operands(state))
    return state


def _instruction(line: str) -> Instruction:
    code, _, note = line.partition("//")
    text = code.strip().removesuffix(";")
    op, _, rest = text.partition(" ")
    if not code.strip().endswith(";") or ";" in text:
        raise PtxError(f"line {line!r}: expected one instruction that ends with a semicolon")
    if op not in INSTRUCTIONS:
        raise PtxError(f"instruction {op} in {text!r}: not emulated; expected one of {', '.join(INSTRUCTIONS)}")
    writes, *reads = (operand.strip() for operand in rest.replace("{", "").replace("}", "").split(","))
    if len(reads) not in INSTRUCTIONS[op].operands:
        wanted = " or ".join(str(count) for count in INSTRUCTIONS[op].operands)
        raise PtxError(f"instruction {text!r}: reads {len(reads)} operands, expected {wanted}")
    return Instruction(text, op, writes, tuple(reads), note.strip())


def _value(operand: str, registers: Mapping[str, Words], text: str) -> Words:
    if _LITERAL.fullmatch(operand):
        return np.array([int(operand, 0) & 0xFFFFFFFF], np.uint32)
    if operand not in registers:
        raise PtxError(f"instruction {text!r}: reads register {operand}, which holds nothing yet")
    return registers[operand]


def _lop3(a: Words, b: Words, c: Words, table: Words) -> Words:
    """Any logic of three bits: bit 4·a + 2·b + c of the table is the result."""
    result = np.zeros(np.broadcast_shapes(a.shape, b.shape, c.shape), np.uint32)
    for index in range(8):
        if int(table[0]) >> index & 1:
            chosen = (x if index & bit else ~x for x, bit in ((a, 4), (b, 2), (c, 1)))
            result |= np.bitwise_and.reduce(np.broadcast_arrays(*chosen))
    return result


def _prmt(a: Words, b: Words, selector: Words) -> Words:
    """Byte i of the result: byte `nibble i & 7` of the eight bytes b:a, or its sign eight times where bit 3 is set."""
    pool = b.astype(np.uint64) << 32 | a
    result = np.zeros(np.broadcast_shapes(pool.shape, selector.shape), np.uint32)
    for place in range(4):
        nibble = selector >> 4 * place & 0xF
        byte = (pool >> (8 * (nibble & 7)).astype(np.uint64)).astype(np.uint32) & 0xFF
        sign = np.where(byte & 0x80, np.uint32(0xFF), np.uint32(0))
        byte = np.where(nibble & 8, sign, byte)
        result |= byte << 8 * place
    return result


def _shift(function: Callable[[Words, Words], Words]) -> Callable[[Words, Words], Words]:
    """PTX shifts every bit out for an amount over 31; NumPy leaves that undefined."""
    zero = np.uint32(0)
    return lambda a, amount: np.where(amount > 31, zero, function(a, np.minimum(amount, 31)))


def _s32_to_f16(a: Words) -> Words:
    with np.errstate(over="ignore"):
        return a.view(np.int32).astype(np.float64).astype(np.float16).view(np.uint16).astype(np.uint32)


def _dp4a(a: Words, b: Words, c: Words) -> Words:
    """c plus the four products of signed bytes; the sum wraps around at 32 bits."""
    products = [_signed_byte(a, place) * _signed_byte(b, place) for place in range(4)]
    total: Words = np.sum(products, axis=0).astype(np.uint32)
    return c + total


def _signed_byte(word: Words, place: int) -> NDArray[np.int32]:
    return (word >> 8 * place & 0xFF).astype(np.uint8).view(np.int8).astype(np.int32)


def _mov(low: Words, high: Words | None = None) -> Words:
    """A copy, or two 16-bit registers into one of 32 bits."""
    return low if high is None else low & np.uint32(0xFFFF) | high << np.uint32(16)


def _two_fp16(function: Callable[..., NDArray[np.float64]]) -> Callable[..., Words]:
    """A function of fp16 numbers on both halves, rounded to fp16 once; NaN becomes 0x7fff, as PTX says.

    float64 holds every product of two fp16 numbers, and every sum that is close to a tie between two fp16 numbers.
    """

    def half(operands: tuple[Words, ...], shift: int) -> Words:
        numbers = [(x >> shift & 0xFFFF).astype(np.uint16).view(np.float16).astype(np.float64) for x in operands]
        with np.errstate(over="ignore", invalid="ignore"):
            result = function(*numbers).astype(np.float16)
        return np.where(np.isnan(result), np.uint16(0x7FFF), result.view(np.uint16)).astype(np.uint32)

    return lambda *operands: _mov(half(operands, 0), half(operands, 16))


@dataclass(frozen=True)
class _Rule:
    """How many operands an instruction reads, and what it writes for them."""

    operands: tuple[int, ...]
    function: Callable[..., Words]


INSTRUCTIONS: dict[str, _Rule] = {
    "lop3.b32": _Rule((4,), _lop3),
    "prmt.b32": _Rule((3,), _prmt),
    "shr.u32": _Rule((2,), _shift(np.right_shift)),
    "shl.b32": _Rule((2,), _shift(np.left_shift)),
    "and.b32": _Rule((2,), np.bitwise_and),
    "or.b32": _Rule((2,), np.bitwise_or),
    "xor.b32": _Rule((2,), np.bitwise_xor),
    "add.s32": _Rule((2,), np.add),
    "sub.s32": _Rule((2,), np.subtract),
    "dp4a.s32.s32": _Rule((3,), _dp4a),
    "cvt.rn.f16.s32": _Rule((1,), _s32_to_f16),
    "mov.b32": _Rule((1, 2), _mov),
    "sub.rn.f16x2": _Rule((2,), _two_fp16(np.subtract)),
    "fma.rn.f16x2": _Rule((3,), _two_fp16(lambda a, b, c: a * b + c)),
}
"""Every instruction that can be emulated, by its PTX name."""
