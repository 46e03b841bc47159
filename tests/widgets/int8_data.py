"""The data of the JavaScript tests of FP16 against INT8; `python -m tests.widgets.int8_data` writes it after a change.

It holds settings of every kind and the times, words and bars that Python makes of them.
"""

import json
import random
from pathlib import Path

from tests.lab_engine.gemv_recording import SHAPES
from tests.lab_engine.int8_recording import EDGE, int8_recording
from widgets.gemv_int8 import Int8Times
from widgets.gemv_int8_text import against_words, segments

DATA_FILE = Path(__file__).parent / "js" / "gemv_int8.json"


def settings():
    """Every preset, every stage at the named costs and the ends, and random ones."""
    rng = random.Random(5)
    every = [{"preset": name} for name in Int8Times(int8_recording()).presets]
    every += [{"stage": stage, "launch": us} for stage in (*SHAPES, "token") for us in (0.0, 0.75, EDGE, 5.25, 6.0)]
    return every + [{"stage": rng.choice([*SHAPES, "token"]), "launch": round(6 * rng.random(), 2)} for _ in range(30)]


def case(playground):
    """A state and what Python makes of it."""
    stage, launch = playground.times.stages[playground.stage], playground.launch
    return {
        "state": {name: getattr(playground, name) for name in playground.fields},
        "sentence": playground.sentence,
        "code": playground.code,
        "crossover": stage.crossover,
        "variants": {
            name: [work.time(launch), against_words(stage, name, launch), segments(stage, name, launch)]
            for name, work in stage.work.items()
        },
    }


def javascript_data():
    playground = Int8Times(int8_recording())
    cases = [case(Int8Times(int8_recording(), **setting)) for setting in settings()]
    return {"trace": playground._trace, "spec": playground._spec, "cases": cases}


if __name__ == "__main__":
    text = json.dumps(javascript_data(), ensure_ascii=False, separators=(",", ":"))
    DATA_FILE.write_text(text + "\n", encoding="utf-8")
