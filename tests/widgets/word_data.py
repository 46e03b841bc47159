"""The data of the word's JavaScript tests; `python -m tests.widgets.word_data` writes it after a change."""

import json
from pathlib import Path

from lab_engine.unpack import METHODS
from widgets.int4_word import WordUnpack

DATA_FILE = Path(__file__).parent / "js" / "word.json"


def states():
    """Every preset, and every step of every method."""
    word = WordUnpack()
    yield from ({"preset": name} for name in word.presets)
    for method in METHODS:
        for step in range(len(METHODS[method].instructions) + 1):
            yield {"method": method, "step": step}


def javascript_data():
    shown = [WordUnpack(**state) for state in states()]
    first = shown[0]
    return {
        "trace": first._trace,
        "spec": first._spec,
        "states": [[{name: getattr(one, name) for name in one.fields}, one.sentence, one.code] for one in shown],
    }


if __name__ == "__main__":
    DATA_FILE.write_text(json.dumps(javascript_data(), ensure_ascii=False) + "\n", encoding="utf-8")
