"""The data of the word's JavaScript tests; `python -m tests.widgets.word_data` writes it after a change."""

import json
from pathlib import Path

from lab_engine.unpack import METHODS
from widgets.int4_word import WordUnpack

DATA_FILE = Path(__file__).parent / "js" / "word.json"


def every_state():
    """One playground that takes every preset, then every step of every method."""
    word = WordUnpack()
    for name in word.presets:
        word.preset = name
        yield word
    for method in METHODS:
        word.method = method
        for step in range(word.step_count()):
            word.step = step
            yield word


def javascript_data():
    states = [[{name: getattr(one, name) for name in one.fields}, one.code] for one in every_state()]
    return {"trace": WordUnpack()._trace, "spec": WordUnpack()._spec, "states": states}


if __name__ == "__main__":
    DATA_FILE.write_text(json.dumps(javascript_data(), ensure_ascii=False) + "\n", encoding="utf-8")
