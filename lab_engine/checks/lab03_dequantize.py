"""Lab 03, dequantize_word: eight INT4 weights out of a word, two at a time, with four instructions of the GPU."""

import numbers
from functools import partial
from typing import Any

import numpy as np

from lab_engine.checks.case import Args, Case, Mismatch
from lab_engine.checks.exercise import Exercise
from lab_engine.checks.values import describe, first_true, numbers_row, with_article
from lab_engine.checks.verdict import Row
from lab_engine.isa import Isa, Lanes


def dequantize_word(word: int, isa: Isa) -> list[float]:
    """The eight weights q of a word in `value_shuffle`, weight 0 first, by instructions alone.

    word: nibbles 0 to 7 (bits 4i to 4i + 3) hold n = q + 8 of the weights 0 2 4 6 1 3 5 7.
    isa: isa.lop3(a, b, c, table), isa.shr(a, amount), isa.hsub2(a, b) and isa.hfma2(a, b, c)
    work on registers of 32 bits; the last two treat them as two fp16 numbers, and
    isa.half2(x) is the register with x in both halves: 1024 is 0x64006400.
    isa.halves(a) reads a register as two floats, the low half first. A register is an int. In
    the last case it has 65,536 lanes: a uint32 array, on which the isa works as on an int.

    >>> dequantize_word(0xF4B7AD81, Isa())
    [-7.0, -1.0, 0.0, 3.0, 5.0, -4.0, 2.0, 7.0]
    """
    pairs = []
    for half in (word, isa.shr(word, 8)):
        even = isa.lop3(half, 0x000F000F, 0x64006400, 0xEA)
        odd = isa.lop3(half, 0x00F000F0, 0x64006400, 0xEA)
        pairs.append(isa.hsub2(even, isa.half2(1032)))
        pairs.append(isa.hfma2(odd, isa.half2(1 / 16), isa.half2(-72)))
    return [weight for pair in pairs for weight in isa.halves(pair)]


def _judge(args: Args, expected: list[Any], yours: Any) -> Mismatch | None:
    word = args[0]
    if isinstance(word, int):
        return _wrong_form(yours, _is_number, "floats") or _compare(word, expected, yours)
    lanes = partial(_has_lanes, count=len(word))
    wrong_form = _wrong_form(yours, lanes, f"arrays of {len(word):,} lanes")
    if wrong_form is not None:
        return Mismatch(wrong_form.message, hint=_LANES, about_form=True)
    wanted, found = (np.stack([np.asarray(lanes) for lanes in weights]) for weights in (expected, yours))
    wrong = (found != wanted).any(axis=0)  # NaN differs from every number
    if not wrong.any():
        return None
    lane = int(wrong.argmax())
    return _compare(int(word[lane]), [w[lane] for w in expected], [w[lane] for w in yours])


def _wrong_form(yours: Any, fits: Any, wanted: str) -> Mismatch | None:
    """Not a list or tuple of eight of what fits."""
    if not isinstance(yours, list | tuple):
        return Mismatch(f"returned {describe(yours)}; expected a list of eight {wanted}", about_form=True)
    if len(yours) != _WEIGHTS:
        found = with_article(type(yours).__name__)
        hint = "A register holds two weights: `isa.halves` reads both." if len(yours) == 4 else ""
        return Mismatch(f"returned {found} of {len(yours)}; expected eight {wanted}", hint=hint, about_form=True)
    for place, weight in enumerate(yours):
        if not fits(weight):
            return Mismatch(f"weight {place} is {describe(weight)}; expected eight {wanted}", about_form=True)
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _has_lanes(value: Any, count: int) -> bool:
    return isinstance(value, np.ndarray) and value.shape == (count,) and value.dtype.kind in "iuf"


def _compare(word: int, expected: list[float], yours: list[Any]) -> Mismatch | None:
    found = [float(weight) for weight in yours]
    differ = tuple(i for i in range(_WEIGHTS) if found[i] != expected[i])
    if not differ:
        return None
    return Mismatch(
        given=(_word_row(word), Row("weight", tuple(map(str, range(_WEIGHTS))))),
        expected=numbers_row("expected", expected),
        yours=numbers_row("yours", found),
        differ=differ,
        hint=_hint(word, expected, found),
    )


def _hint(word: int, expected: list[float], yours: list[float]) -> str:
    """The wrong answers that people give, computed: weights in other places, then other constants."""
    elsewhere = ([expected[i] for i in order] for order in _ORDERS)
    return first_true(
        (any(_same(yours, weights) for weights in elsewhere), _WHO_SHARES),
        *((_same(yours, _unpack(word, **constants)), hint) for constants, hint in _WRONG_CONSTANTS),
        (_same(yours, [weight if i & 2 else -weight for i, weight in enumerate(expected)]), _REGISTER_FIRST),
    )


def _same(yours: list[float], other: list[float]) -> bool:
    """Equal, and NaN equals NaN."""
    return bool(np.array_equal(yours, other, equal_nan=True))


def _unpack(word: int, **constants: int) -> list[float]:
    """dequantize_word with other constants."""
    isa, use = Isa(), {**_CONSTANTS, **constants}
    weights: list[float] = []
    for half in (word, isa.shr(word, use["shift"])):
        even = isa.lop3(half, use["even_mask"], use["bits"], use["table"])
        odd = isa.lop3(half, use["odd_mask"], use["bits"], use["table"])
        for pair in (isa.hsub2(even, use["minus"]), isa.hfma2(odd, use["times"], use["plus"])):
            weights += map(float, isa.halves(pair))
    return weights


def _hint_without_value(case: Case, error: BaseException | None) -> str:
    on_lanes = isinstance(case.args[0], np.ndarray)
    return _LANES if on_lanes and error is not None else ""


def _show(args: Args) -> tuple[Row, ...]:
    return (_word_row(args[0]) if isinstance(args[0], int) else Row("words", (), f"{len(args[0]):,} lanes"),)


def _word_row(word: int) -> Row:
    """Nibble 0 first, the word at the right."""
    return Row("nibble 0\u20137", tuple(f"{word >> 4 * i & 0xF:X}" for i in range(_WEIGHTS)), f"0x{word:08X}")


_WEIGHTS = 8
_CONSTANTS = {
    "shift": 8,
    "table": 0xEA,
    "even_mask": 0x000F000F,
    "odd_mask": 0x00F000F0,
    "bits": 0x64006400,
    "minus": 0x64086408,
    "times": 0x2C002C00,
    "plus": 0xD480D480,
}
_WHO_SHARES = "Write down which weights share a register: 0 and 1, 2 and 3, then 8 bits higher 4 and 5, 6 and 7."
_64 = "(1024 + 16 n)/16 = 64 + n: for n − 8 take 72 away."
_ONE_SIXTEENTH = "The odd pair sits 4 bits higher: it is 1024 + 16 n, and needs × 1/16."
_TWO = "Two values a register, not four: 0x000F000F keeps one nibble in each half."
_ZERO_POINT = "8: stored is n = q + 8, so that n − 8 is the weight."
_TABLE = "(a & b) | c is immLut 0xEA: put 0xF0, 0xCC and 0xAA in for a, b and c."
_BOTH = "A register has two fp16 halves: the constant has to stand in both, 0x6408 as 0x64086408."
_REGISTER_FIRST = "`hsub2` is a − b: the register first, then the constant."
_LANES = "Only the isa: here a register holds 65,536 lanes, and each instruction runs on all of them."
_BY_HAND = "0x6400 | n is the fp16 number 1024 + n. Which nibbles does each of the four registers hold?"

_ORDERS = (
    (0, 2, 4, 6, 1, 3, 5, 7),
    (0, 4, 1, 5, 2, 6, 3, 7),
    (1, 0, 3, 2, 5, 4, 7, 6),
    (0, 1, 2, 3, 2, 3, 4, 5),
    (0, 1, 2, 3, 0, 1, 2, 3),
    (0, 1, 4, 5, 2, 3, 6, 7),
    (7, 6, 5, 4, 3, 2, 1, 0),
)
"""Nibble order, its inverse, halves swapped, shifted by 4, not shifted, even registers first, from the other end."""
_WRONG_CONSTANTS: tuple[tuple[dict[str, int], str], ...] = (
    ({"shift": 16}, _WHO_SHARES),
    *(({"plus": plus}, _64) for plus in (0xD408D408, 0xE400E400, 0xE408E408)),
    *(({"times": 0x3C003C00, "plus": plus}, _ONE_SIXTEENTH) for plus in (0xE408E408, 0xE400E400, 0xD480D480)),
    ({"times": 0x3C003C00, "plus": 0xE480E480}, _ONE_SIXTEENTH),
    ({"even_mask": 0x0F0F0F0F, "odd_mask": 0xF0F0F0F0}, _TWO),
    ({"even_mask": 0x0F0F0F0F}, _TWO),
    ({"odd_mask": 0xF0F0F0F0}, _TWO),
    ({"odd_mask": 0x000F000F}, _WHO_SHARES),
    *(({"minus": 0x64006400, "plus": plus}, _ZERO_POINT) for plus in (0xD400D400, 0xD480D480)),
    ({"plus": 0xD400D400}, _ZERO_POINT),
    *(({"minus": 0x64076407, "plus": plus}, _ZERO_POINT) for plus in (0xD470D470, 0xD480D480)),
    ({"plus": 0xD470D470}, _ZERO_POINT),
    *(({"table": table}, _TABLE) for table in (0xC0, 0x80, 0xFE, 0xF8, 0xEC, 0xFC, 0xA8, 0xC8, 0xE0, 0xAE)),
    *(({name: _CONSTANTS[name] & 0xFFFF}, _BOTH) for name in ("bits", "minus", "times", "plus")),
    ({"minus": 0x6408, "plus": 0xD480}, _BOTH),
)
"""What differs from the right constants, and what to say."""


def _words(*words: int) -> tuple[Case, ...]:
    return tuple(Case(f"0x{word:08X}", (word, Isa()), _BY_HAND) for word in words)


_HALVES = np.arange(1 << 16, dtype=np.uint32)
_EVERY_HALF_WORD = _HALVES | (_HALVES * np.uint32(40_503) + np.uint32(12_345) & np.uint32(0xFFFF)) << np.uint32(16)
"""Each of the 65,536 half-words once as the low and, in another order, once as the high half."""

CASES = (
    *_words(0xF4B7AD81, 0x00000000, 0x88888888, 0xFFFFFFFF, 0x75316420, 0x5A1C0F93, 0x0000FFFF),
    Case("all 65,536 half-words", (_EVERY_HALF_WORD.view(Lanes), Isa()), _LANES),
)


EXERCISE = Exercise(
    lab="03_gemv",
    solution=dequantize_word,
    cases=CASES,
    judge=_judge,
    show=_show,
    first_hints=(
        "Four `lop3` and one `shr`: (word & mask) | 0x6400… makes two fp16 numbers at once, 1024 + n of a nibble at "
        "the bottom of its half, 1024 + 16 n of one that sits 4 bits higher.",
        "Which constants go with which mask? 0x000F000F: `hsub2` takes 1032 away. 0x00F000F0: `hfma2` with 1/16 and "
        "−72. Then the same two after `isa.shr(word, 8)`.",
    ),
    hint_without_value=_hint_without_value,
)
