"""The inner loop of a GEMV rung in its machine code, and what it costs: instructions a weight, by class.

A warp executes an instruction for its 32 lanes at once. So a loop of 96 instructions in which a lane takes 32 weights
costs 3 issue slots a weight, and an SM has 128 slots a clock for all lanes.
What breaks it: a loop that another compiler unrolls is longer, but takes as many weights more.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

from lab_engine.errors import NanoqwenError, ToolchainError
from lab_engine.sass import SassLine, compile_cubin, disassemble

CLASSES = {
    "integer": "LOP3 SHF PRMT IADD3 VIADD IMAD IMNMX VIMNMX LEA SGXT BMSK ISETP IABS IDP MOV SEL LOP PLOP3",
    "float": "HFMA2 HADD2 HMUL2 FFMA FADD FMUL FSETP I2F I2FP F2F F2I FSEL FMNMX",
    "loads": "LDG LDS LDSM LDC LDL UBLKCP",
    "tensor": "IMMA HMMA",
}
"""Class -> the opcodes in it, without modifiers; what is in none is `other`: branches, barriers, uniform registers."""

WEIGHTS = {
    "naive": ("LDG.E.CONSTANT", Fraction(8)),
    "coalesced": ("LDG.E.128.CONSTANT", Fraction(32)),
    "lop3": ("LDG.E.128.CONSTANT", Fraction(32)),
    "prmt": ("LDG.E.128.CONSTANT", Fraction(32)),
    "rows": ("LDG.E.128.CONSTANT", Fraction(32)),
    "ring": ("HADD2", Fraction(4)),
    "mma": ("IMMA.16832.S8.S8", Fraction(16)),
    "dp4a_separate": ("LDG.E.128.CONSTANT", Fraction(32)),
    "dp4a_fused": ("LDG.E.128.CONSTANT", Fraction(32)),
    "dp4a_limbs": ("LDG.E.128.CONSTANT", Fraction(32)),
    "triton_naive": ("LDG.E", Fraction(8)),
    "triton_coalesced": ("LDG.E.128", Fraction(32, 5)),
    "triton_best": ("LDG.E.128", Fraction(32 * 2, 3)),
}
"""Rung -> an opcode of its inner loop, and weights a lane for each: a load of words, or what is done once a word (two
HADD2 in ring) or tile (IMMA). Where words and x are loaded alike, a share."""

_BRANCH = re.compile(r"\bBRA(?:\.\w+)* .*0x([0-9a-f]+)")


@dataclass(frozen=True)
class InnerLoop:
    """The loop in which a kernel takes its weights. weights: of a lane, each turn; counts: class -> instructions."""

    lines: tuple[SassLine, ...]
    weights: int
    counts: dict[str, int]

    @property
    def per_weight(self) -> dict[str, float]:
        """Instructions a weight: `total`, then by class."""
        counts = {"total": len(self.lines)} | self.counts
        return {name: count / self.weights for name, count in counts.items()}


def rung_loop(name: str) -> InnerLoop:
    """The inner loop of a rung, compiled for Hopper now; needs no GPU. ToolchainError where a compiler is missing."""
    if name not in WEIGHTS:
        raise NanoqwenError(f"rung {name!r}: expected one of {', '.join(WEIGHTS)}")
    return inner_loop(rung_listing(name), *WEIGHTS[name])


def rung_listing(name: str) -> tuple[SassLine, ...]:
    """All instructions of the kernel of a rung, compiled for Hopper now; errors as rung_loop."""
    from lab_engine.gemv_ladder import RUNGS

    kernels = disassemble(rung_cubin(name))
    if (kernel := RUNGS[name].kernel) not in kernels:
        raise NanoqwenError(f"rung {name}: no kernel {kernel} in {RUNGS[name].source}, found {', '.join(kernels)}")
    return kernels[kernel]


def rung_cubin(name: str) -> bytes:
    """The machine code of a rung's source, compiled for Hopper now; a source once a process."""
    if name.startswith("triton_"):
        return _triton_cubin(name)
    from lab_engine.gemv_ladder import RUNGS

    return _cuda_cubin(RUNGS[name].source)


_cuda_cubin = cache(compile_cubin)


def inner_loop(listing: Sequence[SassLine], opcode: str, weights: Fraction) -> InnerLoop:
    """Of the loops with the most instructions `opcode`, the shortest: the others hold it, or wait out of line.

    Without the parts that a turn can jump over if they hold loops of their own and no `opcode`: waiting, and what is
    done once. weights: of a lane, for each `opcode`. NanoqwenError where no loop has one, or where the weights of a
    turn are no whole number: then the compiler loads them in another way than `weights` says.
    """
    found = [(sum(line.opcode == opcode for line in loop), -len(loop), loop) for loop in _loops(listing)]
    most, _, loop = max(found, key=lambda one: one[:2], default=(0, 0, ()))
    if not most:
        raise NanoqwenError(f"machine code: no loop with {opcode} among {len(listing)} instructions")
    if (taken := most * weights).denominator != 1:
        raise NanoqwenError(
            f"machine code: {most} {opcode} of {weights} weights each, expected a whole number together"
        )
    lines = _every_turn(loop, opcode)
    return InnerLoop(lines, int(taken), count_classes(lines))


def count_classes(lines: Sequence[SassLine]) -> dict[str, int]:
    """Class -> how many of the instructions are in it; every class of CLASSES, and `other`."""
    counts = Counter(_CLASS.get(line.opcode.split(".")[0], "other") for line in lines)
    return {name: counts[name] for name in (*CLASSES, "other")}


_CLASS = {opcode: name for name, opcodes in CLASSES.items() for opcode in opcodes.split()}


def _loops(listing: Sequence[SassLine]) -> list[tuple[SassLine, ...]]:
    """What lies from the target of each backward branch to the branch."""
    return [
        tuple(one for one in listing if target <= one.address <= line.address)
        for line, target in _branches(listing)
        if target < line.address
    ]


def _every_turn(loop: tuple[SassLine, ...], opcode: str) -> tuple[SassLine, ...]:
    """The loop without those parts behind a forward branch that hold a loop and no `opcode`."""
    dropped: set[SassLine] = set()
    for line, target in _branches(loop):
        part = [one for one in loop if line.address < one.address < target <= loop[-1].address]
        if _loops(part) and not any(one.opcode == opcode for one in part):
            dropped.update(part)
    return tuple(line for line in loop if line not in dropped)


def _branches(listing: Sequence[SassLine]) -> list[tuple[SassLine, int]]:
    """Every branch with the address of its target."""
    return [(line, int(found[1], 16)) for line in listing if (found := _BRANCH.search(line.text))]


def _triton_cubin(name: str) -> bytes:
    try:
        from lab_engine.kernels.gemv_triton import compile_rung
    except ImportError as error:
        raise ToolchainError(
            f"compiling {name}: {error}; on Linux: .venv/bin/python -m pip install -c constraints.txt -e .[gpu]"
        ) from None
    return bytes(compile_rung(name).asm["cubin"])
