"""Four instructions of a GPU as Python methods, for lab 03's exercise: ptx.py's emulator runs them.

A register holds 32 bits: an int, or a uint32 array with one element a lane, as a warp holds one value a lane. All
operands of an instruction may be either; ints in give an int out. Lanes are such an array for the isa alone.
What breaks it: a value that is no whole number of 32 bits.
"""

from __future__ import annotations

import numbers
import operator
from dataclasses import dataclass
from typing import Any

import numpy as np

from lab_engine.errors import PtxError
from lab_engine.ptx import INSTRUCTIONS, Words

Register = int | Words


class Lanes(np.ndarray[Any, Any]):
    """A uint32 array, or what `halves` reads from one, that only the Isa computes with; Python may compare it.

    >>> np.arange(4, dtype=np.uint32).view(Lanes) >> 1
    Traceback (most recent call last):
    lab_engine.errors.PtxError: right_shift on a register of many lanes: only the isa computes with it
    """

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """PtxError unless ufunc is a comparison, which gives a plain array."""
        if ufunc not in (np.equal, np.not_equal):
            raise PtxError(f"{ufunc.__name__} on a register of many lanes: only the isa computes with it")
        plain = (value.view(np.ndarray) if isinstance(value, Lanes) else value for value in inputs)
        return getattr(ufunc, method)(*plain, **options)


@dataclass(frozen=True)
class Isa:
    """lop3, shr, hsub2, hfma2; `half2` makes a constant for the last two, `halves` reads a register as two numbers.

    PtxError names the instruction and the operand that is no register.
    """

    def lop3(self, a: Register, b: Register, c: Register, table: int) -> Register:
        """Any logic of three bits, 32 times: bit 4·a + 2·b + c of `table` (immLut) is the result.

        The table of an expression is its value for a = 0xF0, b = 0xCC, c = 0xAA:

        >>> hex((0xF0 & 0xCC) | 0xAA)
        '0xea'
        >>> hex(Isa().lop3(0x12345678, 0x000F000F, 0x64006400, 0xEA))
        '0x64046408'
        """
        if not isinstance(table, int) or not 0 <= table <= 0xFF:
            raise PtxError(f"lop3: table is {table!r}; expected an int of 8 bits, 0 to 0xFF")
        return _run("lop3.b32", a=a, b=b, c=c, table=table)

    def shr(self, a: Register, amount: int) -> Register:
        """a shifted right by `amount` bits, zeros coming in."""
        return _run("shr.u32", a=a, amount=amount)

    def hsub2(self, a: Register, b: Register) -> Register:
        """a − b on both fp16 halves, each rounded to fp16."""
        return _run("sub.rn.f16x2", a=a, b=b)

    def hfma2(self, a: Register, b: Register, c: Register) -> Register:
        """a · b + c on both fp16 halves, each rounded to fp16 once.

        >>> isa = Isa()
        >>> isa.halves(isa.hfma2(isa.half2(1024), isa.half2(1 / 16), isa.half2(-72)))
        (-8.0, -8.0)
        """
        return _run("fma.rn.f16x2", a=a, b=b, c=c)

    def half2(self, value: float) -> int:
        """The register that holds `value`, rounded to fp16, in both halves.

        >>> hex(Isa().half2(1024))
        '0x64006400'
        """
        if not isinstance(value, numbers.Real):
            raise PtxError(f"half2: value is {_kind(value)}; expected a number")
        with np.errstate(over="ignore"):
            return int(np.float16(float(value)).view(np.uint16)) * 0x10001

    def halves(self, a: Register) -> tuple[Any, Any]:
        """The two fp16 numbers of a register as floats, the low half first; of an array: two arrays.

        >>> Isa().halves(0x64006408)
        (1032.0, 1024.0)
        """
        low, high = _words("halves", "a", a).astype("<u4").view("<f2").astype(np.float64).reshape(-1, 2).T
        if not isinstance(a, np.ndarray):
            return float(low[0]), float(high[0])
        return (low.view(Lanes), high.view(Lanes)) if isinstance(a, Lanes) else (low, high)


def _run(op: str, **operands: Register) -> Register:
    words = [_words(op, name, value) for name, value in operands.items()]
    result = INSTRUCTIONS[op].function(*words)
    if any(isinstance(value, Lanes) for value in operands.values()):
        return result.view(Lanes)
    return result if any(isinstance(value, np.ndarray) for value in operands.values()) else int(result[0])


def _words(op: str, name: str, value: Any) -> Words:
    """A register as an array of at least one element."""
    if isinstance(value, np.ndarray) and value.dtype == np.uint32 and value.ndim == 1:
        return value.view(np.ndarray)
    try:
        number = operator.index(value)
    except TypeError:
        raise PtxError(f"{op}: {name} is {_kind(value)}; expected a register of 32 bits, an int") from None
    if not -(1 << 31) <= number < 1 << 32:
        raise PtxError(f"{op}: {name} is {number:#x}; expected 32 bits, at most 0xffffffff")
    return np.array([number & 0xFFFFFFFF], np.uint32)


def _kind(value: Any) -> str:
    return f"an array of {value.dtype}" if isinstance(value, np.ndarray) else f"of type {type(value).__name__}"
