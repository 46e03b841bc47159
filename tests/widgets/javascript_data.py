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
from widgets.words import byte_count, percent, significant

DATA_FILE = Path(__file__).parent / "js" / "data.json"


def advances(family, weight="normal"):
    """Advance widths of the letters we use, in parts of the font size."""
    font = FT2Font(findfont(FontProperties(family=family, weight=weight)))
    letters = [chr(code) for code in range(32, 127)] + list("→–·−×…↵")
    return {
        letter: font.load_char(ord(letter), LoadFlags.NO_SCALE).horiAdvance / font.units_per_EM for letter in letters
    }


def javascript_data():
    tour = Tour(made_up_trace())
    shares = [0, 1e-5, 0.0049, 0.005, 0.0051, 0.125, 0.145, 0.5, 0.996, 1]
    counts = [0, 264, 1023, 1024, 1250, 57_344, 999_999, 1_000_000, 5_981_234]
    # halves that binary floats hold exactly, powers of ten from both sides, what fp16 can be
    sizes = [
        0,
        0.03125,
        0.28125,
        2**-24,
        65714.2856,
        460000,
        1e-7,
        1.25,
        2.5,
        9.995,
        9.9996,
        99.95,
        1e-4,
        9.9999e-5,
        1234567.8,
    ]
    numbers = [[sign * size, digits] for size in sizes for sign in (1, -1) for digits in (1, 2, 3, 4)]
    states = [{"preset": "", "step": 3}, {"preset": "", "step": 0}] + [
        {"preset": name, "step": Tour(made_up_trace(), preset=name).step} for name in tour.presets
    ]
    return {
        "trace": tour._trace,
        "spec": tour._spec,
        "advances": {
            "sans": advances("DejaVu Sans"),
            "bold": advances("DejaVu Sans", "bold"),
            "mono": advances("DejaVu Sans Mono"),
        },
        "cases": {
            "percent": [[share, digits, percent(share, digits)] for share in shares for digits in (0, 1)],
            "significant": [[value, digits, significant(value, digits)] for value, digits in numbers],
            "bytes": [[count, byte_count(count)] for count in counts],
            "pieces": text_pieces([token["text"] for token in tour._trace["tokens"]], 20),
            "code": [[state, code_of(state)] for state in states],
        },
    }


def code_of(state):
    return Tour(made_up_trace(), **({"preset": state["preset"]} if state["preset"] else {"step": state["step"]})).code


if __name__ == "__main__":
    DATA_FILE.write_text(json.dumps(javascript_data(), ensure_ascii=False) + "\n")
