"""The data of the JavaScript tests; `python -m tests.widgets.javascript_data` writes it after a change.

It holds the data of a tour, what Python makes of cases that JavaScript repeats, and the widths of DejaVu's letters.
"""

import json
from pathlib import Path

from matplotlib.font_manager import FontProperties, findfont
from matplotlib.ft2font import FT2Font, LoadFlags

from tests.widgets.traces import made_up_trace
from widgets import Tour
from widgets.token_text import text_pieces
from widgets.words import byte_count, hex_word, percent, signed, significant

DATA_FILE = Path(__file__).parent / "js" / "data.json"


def advances(family, weight="normal"):
    """Advance widths of the letters we use, in parts of the font size."""
    font = FT2Font(findfont(FontProperties(family=family, weight=weight)))
    letters = [chr(code) for code in range(32, 127)] + list("→–·−×…↵")
    return {
        letter: font.load_char(ord(letter), LoadFlags.NO_SCALE).horiAdvance / font.units_per_EM for letter in letters
    }


SHARES = [0, 1e-5, 0.0049, 0.005, 0.0051, 0.125, 0.145, 0.5, 0.996, 1]
COUNTS = [0, 264, 1023, 1024, 1250, 57_344, 999_999, 1_000_000, 5_981_234]
HALVES = [0, 0.03125, 0.28125, 1.25, 2.5, 2**-24]
"""Halves that binary floats hold exactly, and fp16's smallest number."""
NEAR_POWERS = [9.995, 9.9996, 99.95, 1e-4, 9.9999e-5, 1e-7, 65714.2856, 460000, 1234567.8]
WORDS = [[0, 1], [0x4C, 1], [0x2C00, 2], [0xFA4DB871, 4], [1, 4]]


def javascript_data():
    tour = Tour(made_up_trace())
    fonts = {"sans": ("DejaVu Sans",), "bold": ("DejaVu Sans", "bold"), "mono": ("DejaVu Sans Mono",)}
    return {
        "trace": tour._trace,
        "spec": tour._spec,
        "advances": {name: advances(*font) for name, font in fonts.items()},
        "cases": words_of_python()
        | {
            "pieces": text_pieces([token["text"] for token in tour._trace["tokens"]], 20),
            "code": [[state, code_of(state)] for state in states(tour)],
        },
    }


def words_of_python():
    numbers = [[sign * size, digits] for size in HALVES + NEAR_POWERS for sign in (1, -1) for digits in (1, 2, 3, 4)]
    return {
        "percent": [[share, digits, percent(share, digits)] for share in SHARES for digits in (0, 1)],
        "significant": [[value, digits, significant(value, digits)] for value, digits in numbers],
        "bytes": [[count, byte_count(count)] for count in COUNTS],
        "words": [[value, size, hex_word(value, size)] for value, size in WORDS],
        "signed": [[value, signed(value)] for value in (-8, 0, 7)],
    }


def states(tour):
    return [{"preset": "", "step": 3}, {"preset": "", "step": 0}] + [
        {"preset": name, "step": Tour(made_up_trace(), preset=name).step} for name in tour.presets
    ]


def code_of(state):
    return Tour(made_up_trace(), **({"preset": state["preset"]} if state["preset"] else {"step": state["step"]})).code


if __name__ == "__main__":
    DATA_FILE.write_text(json.dumps(javascript_data(), ensure_ascii=False) + "\n")
