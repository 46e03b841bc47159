"""Lab 01's word: eight weights become one register, and the kernel's own instructions take them out again.

The engine traces every method (`lab_engine/unpack.py`, which runs the PTX text of kernels/unpack.cuh); step 0 is the
word before the first instruction, step k what the k-th instruction did.
"""

import operator
import re
from collections.abc import Mapping, Sequence
from typing import Any, SupportsIndex

import traitlets

from lab_engine.unpack import METHODS, WEIGHTS
from widgets.int4_word_data import packed, word_data
from widgets.int4_word_png import word_png
from widgets.int4_word_text import word_text
from widgets.playground import Badge, Playground, Preset
from widgets.words import hex_word

TOY = "0xFA4DB871"
"""The course's toy word in `linear` order: q = −7 −1 0 3 5 −4 2 7."""

ASKS = (
    "Eight nibbles in two orders; only w0 and w7 stay in place. Step through the linear one: what does a weight cost?",
    "The middle of lop3; the first-step button shows it from the start. n stays 4 bits too high: what makes up for it?",
    "The middle of lop3. One shift serves four weights, and OR with 0x6400 makes 1024 + n. Why is − 1032 exact?",
    "The middle of prmt. No arithmetic: a nibble picks a byte, and 16 bytes are all there is to know. Why two tables?",
    "Bit 3 was not cleared, so it copies a sign. Which weights are wrong in the end, and which are right by chance?",
)
"""What to look at, for any word: the numbers are in the picture."""


class Word(traitlets.Unicode[str, Any]):
    """A word of 32 bits as a hex string; takes an int, also a negative int32 pattern, or a hex string."""

    def validate(self, obj: Any, value: Any) -> str:  # noqa: ARG002 - traitlets' signature
        """The word as 0x and eight digits; TraitError for anything that is no word."""
        try:
            number = _hex_number(value) if isinstance(value, str) else operator.index(value)
        except (TypeError, ValueError):
            number = 1 << 32
        if not -(1 << 31) <= number < 1 << 32:
            shown = f'"{value}"' if isinstance(value, str) else value
            raise traitlets.TraitError(f'word is {shown}, expected 32 bits as an int or as hex digits: "{TOY}"')
        return hex_word(number & 0xFFFFFFFF)


def _hex_number(text: str) -> int:
    """Up to eight hex digits, after 0x or without; ValueError for what int() would take besides: signs, spaces, _."""
    if not re.fullmatch(r"(0x)?[0-9a-fA-F]{1,8}", text):
        raise ValueError(text)
    return int(text, 16)


class WordUnpack(Playground):
    """From eight weights to a 32-bit word, and back, instruction by instruction.

    `word` holds the eight codes in `linear` order, weight 0 in the lowest nibble; `codes` sets it from q of −8 to 7.
    A method that reads `value_shuffle` words gets the same codes in that order. `method` is one of
    `lab_engine.unpack.METHODS`; choosing one from Python starts it at step 0.
    """

    title = "The word"
    lab = "lab 01"
    ask = "Eight weights become one register, and one instruction a step takes them out again."
    badge = Badge(
        "computed", "the PTX text of lab_engine/kernels/unpack.cuh, run instruction by instruction on the CPU"
    )
    script = "int4_word.js"
    fields = ("preset", "word", "method", "step")

    word = Word(TOY).tag(sync=True)
    method = traitlets.Unicode(next(iter(METHODS))).tag(sync=True)

    def __init__(
        self,
        *,
        word: SupportsIndex | str | None = None,
        codes: Sequence[int] | None = None,
        preset: str | None = None,
        method: str | None = None,
        step: int | None = None,
    ) -> None:
        if word is not None and codes is not None:
            raise traitlets.TraitError("word and codes are two ways to say the same: pass one of them")
        presets = word_presets()
        if preset is None and method is None and step is None:
            preset = presets[0].name
        super().__init__(word_data(int(TOY, 16)), presets, preset=preset, method=method, step=step)
        if word is not None:
            self.word = word
        if codes is not None:
            self.codes = codes

    @property
    def codes(self) -> tuple[int, ...]:
        """The eight codes q, weight 0 first; setting them sets `word`."""
        return tuple(self._trace["codes"])

    @codes.setter
    def codes(self, codes: Sequence[int]) -> None:
        try:
            found = [operator.index(code) for code in codes]
        except TypeError:
            raise traitlets.TraitError(f"codes are {codes!r}, expected {WEIGHTS} whole numbers from -8 to 7") from None
        if len(found) != WEIGHTS or not all(-8 <= code <= 7 for code in found):
            raise traitlets.TraitError(f"codes are {found}, expected {WEIGHTS} from -8 to 7, weight 0 first")
        self.word = packed(found, "linear")

    @traitlets.validate("method")
    def _check_method(self, proposal: Any) -> str:
        name = proposal["value"]
        if name not in METHODS:
            raise traitlets.TraitError(f'method is "{name}", expected one of: {", ".join(METHODS)}')
        return str(name)

    @traitlets.observe("method")
    def _start_method(self, change: Any) -> None:
        if self._applying:
            return
        with self.hold_sync():
            if self.preset and self._presets[self.preset].values["method"] != change["new"]:
                self.preset = ""
            self.step = 0

    @traitlets.observe("word")
    def _trace_word(self, change: Any) -> None:
        self._trace = word_data(int(change["new"], 16))

    def step_count(self) -> int:
        """The start, then one step an instruction."""
        return len(self._method["steps"])

    @property
    def _method(self) -> Mapping[str, Any]:
        method: dict[str, Any] = self._trace["methods"][self.method]
        return method

    @property
    def sentence(self) -> str:
        """`lop3, 2 of 9 · 0xF4B7AD81 & 0x00F000F0 | 0x64006400 = 0x64B06480 · w2 1152, w3 1200`."""
        return str(self._method["steps"][self.step]["sentence"])

    def text_picture(self) -> str:
        """Weights, nibbles, the instruction's operands and result bit by bit, and the weights unpacked so far."""
        return word_text(self._trace, self.method, self.step)

    def png(self) -> bytes:
        """The picture at the width of a cell."""
        return word_png(self._trace, self.method, self.step)


def word_presets() -> list[Preset]:
    """Five places: the two orders, then four instructions with a surprise."""

    def at(method: str, text: str) -> dict[str, str | int]:
        found = [instruction.text.startswith(text) for instruction in METHODS[method].instructions]
        return {"method": method, "step": 1 + found.index(True)}

    return [
        Preset("two orders", ASKS[0], {"method": "shift_mask", "step": 0}),
        Preset("lop3: unshifted pair", ASKS[1], at("lop3", "lop3.b32 h1,")),
        Preset("lop3: shifted by 8", ASKS[2], at("lop3", "lop3.b32 h2,")),
        Preset("prmt", ASKS[3], at("prmt", "prmt.b32 negative,")),
        Preset("mistake: bit 3 left in", ASKS[4], at("prmt_bit3", "prmt.b32 negative,")),
    ]
