"""How a GPU turns a word of INT4 weights into fp16: the instructions of kernels/unpack.cuh, run on NumPy arrays.

A method takes a word of eight nibbles n = q + 8 and leaves the eight q as fp16 in four registers h0 to h3, weight 0 in
the low half of h0. The same source lines are compiled for the GPU: what a trace shows is what the kernel does.
What breaks it: a word in the other nibble layout (the same numbers, in the wrong places).
"""

from __future__ import annotations

import operator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lab_engine import ptx
from lab_engine.errors import NanoqwenError
from lab_engine.kernels import read_source
from lab_engine.ptx import Instruction, Words

SOURCE = "unpack.cuh"
WEIGHTS = 8
REGISTERS = ("h0", "h1", "h2", "h3")


@dataclass(frozen=True)
class UnpackMethod:
    """One way to unpack: the function unpack_NAME in the file `source` of kernels/.

    layout: of the words it reads; instructions: its PTX, in the order of the source.
    """

    name: str
    layout: str
    title: str
    instructions: tuple[Instruction, ...]
    source: str


@dataclass(frozen=True)
class UnpackStep:
    """One instruction, done. reads: (register or literal, its 32 bits before); value: 32 bits of `writes` after."""

    text: str
    op: str
    reads: tuple[tuple[str, int], ...]
    writes: str
    value: int
    note: str


@dataclass(frozen=True)
class UnpackTrace:
    """One word through one method. codes: what the word holds; halves: (register, 0 low or 1 high, fp16) by weight."""

    method: str
    layout: str
    word: int
    codes: tuple[int, ...]
    steps: tuple[UnpackStep, ...]
    halves: tuple[tuple[str, int, float], ...]


def _method(name: str, layout: str, title: str, source: str = SOURCE) -> UnpackMethod:
    instructions = ptx.parse_function(read_source(source), f"unpack_{name}")
    return UnpackMethod(name, layout, title, instructions, source)


METHODS: dict[str, UnpackMethod] = {
    method.name: method
    for method in (
        _method("shift_mask", "linear", "shift, mask, convert: one weight at a time"),
        _method("lop3", "value_shuffle", "lop3: two weights at a time, as 1024 + n"),
        _method("prmt", "linear", "prmt: four weights at a time, from a table"),
        _method("prmt_bit3", "linear", "the mistake: prmt with bit 3 left in its selectors"),
    )
}
"""Every method by its name; all but prmt_bit3 are right. A new one has a file of its own, as unpack.cuh is recorded."""

COMPILED = tuple(name for name, method in METHODS.items() if method.source == SOURCE)
"""The methods that kernels/unpack.cu runs on a GPU."""


def unpack_all(words: Words, method: str) -> NDArray[np.float16]:
    """Unpack uint32 words (n,) of the method's layout to float16 (n, 8), weight 0 first, by emulation."""
    state = ptx.run(_named(method).instructions, {"word": words})
    return np.stack([state[register] for register in REGISTERS], axis=1).astype("<u4").view(np.float16)


def trace_unpack(word: int, method: str) -> UnpackTrace:
    """One word of 0 to 0xFFFFFFFF through one method, instruction by instruction; NanoqwenError for another word."""
    from lab_engine.nanoqwen_file import LAYOUTS  # needs xxhash, which a machine that only records may lack

    try:
        word = operator.index(word)  # a NumPy integer would wrap around below
    except TypeError:
        raise NanoqwenError(f"word {word!r}: expected a whole number of 32 bits") from None
    if not 0 <= word <= 0xFFFFFFFF:
        raise NanoqwenError(f"word {word}: expected 32 bits, 0 to 0xFFFFFFFF")
    unpack, registers = _named(method), {"word": np.array([word], np.uint32)}
    steps = tuple(_step(instruction, registers) for instruction in unpack.instructions)
    places = [LAYOUTS[unpack.layout].index(weight) for weight in range(WEIGHTS)]
    values = np.array([registers[register][0] for register in REGISTERS], "<u4").view(np.float16)
    return UnpackTrace(
        method=method,
        layout=unpack.layout,
        word=word,
        codes=tuple((word >> 4 * place & 0xF) - 8 for place in places),
        steps=steps,
        halves=tuple((REGISTERS[i // 2], i % 2, float(value)) for i, value in enumerate(values)),
    )


def every_half_word() -> Words:
    """All 65,536 half-words in the low half of a word, then all in the high half; uint32 (131072,)."""
    halves = np.arange(1 << 16, dtype=np.uint32)
    return np.concatenate([halves, halves << 16])


def _named(method: str) -> UnpackMethod:
    if method not in METHODS:
        raise NanoqwenError(f"unpack method {method!r}: expected one of {', '.join(METHODS)}")
    return METHODS[method]


def _step(instruction: Instruction, registers: ptx.Registers) -> UnpackStep:
    """Execute one instruction on `registers` and say what it did."""
    operands = instruction.operands(registers)
    registers[instruction.writes] = instruction.result(operands)
    return UnpackStep(
        text=instruction.text,
        op=instruction.op,
        reads=tuple((name, int(value[0])) for name, value in zip(instruction.reads, operands, strict=True)),
        writes=instruction.writes,
        value=int(registers[instruction.writes][0]),
        note=instruction.note,
    )
