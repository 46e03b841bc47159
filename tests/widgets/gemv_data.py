"""The data of the roofline's JavaScript tests; `python -m tests.widgets.gemv_data` writes it after a change.

It holds settings of every kind, and the times, words and bytes that Python makes of them.
"""

import json
import random
from pathlib import Path

from lab_engine.gemv import ACTIVATION_BYTES, BITS, GPUS, GROUPS
from tests.lab_engine.gemv_recording import gemv_recording
from widgets.gemv import Roofline
from widgets.gemv_text import byte_rows
from widgets.gemv_view import EDGES, STAGES

DATA_FILE = Path(__file__).parent / "js" / "gemv.json"


def recording():
    """Made up; of one kernel with the longest words for its counters."""
    made_up = gemv_recording()
    longest = {"dram_percent": 100.0, "issue_percent": 100.0, "stall": "short_scoreboard"}
    made_up.data["rungs"]["triton_coalesced"]["ncu"] = longest
    return made_up


def settings(playground):
    """Every preset, every GPU and stage on the ladder, every kernel, and random ones."""
    rng = random.Random(3)
    every = [{"preset": name} for name in playground.presets]
    rungs = ["", *(rung.name for rung in playground.scene.rungs)]
    every += [{"rung": name} for name in rungs]
    every += [{"gpu": gpu, "stage": stage, "rung": rng.choice(rungs)} for gpu in GPUS for stage in STAGES]
    for _ in range(60):
        every.append(
            {
                "gpu": rng.choice(list(GPUS)),
                "stage": rng.choice(list(STAGES)),
                "bits": rng.choice(BITS),
                "group": rng.choice(GROUPS),
                "activation": rng.choice(list(ACTIVATION_BYTES)),
                "edge": rng.choice(list(EDGES)),
                "batch": rng.choice([1, 1, 2, 53, 55, 60, 256]),
                "ops": round(0.25 * 32 ** rng.random(), 3),
            }
        )
    return every


def case(playground):
    """A state and what Python makes of it."""
    time = playground.scene.now
    return {
        "state": {name: getattr(playground, name) for name in playground.fields},
        "sentence": playground.sentence,
        "bytes": byte_rows(playground.scene),
        "time": [time.memory, time.instructions, time.arithmetic, time.edge, time.seconds],
        "code": playground.code,
    }


def javascript_data():
    playground = Roofline(recording())
    cases = [case(Roofline(recording(), **setting)) for setting in settings(playground)]
    return {"trace": playground._trace, "spec": playground._spec, "cases": cases}


if __name__ == "__main__":
    text = json.dumps(javascript_data(), ensure_ascii=False, separators=(",", ":"))
    DATA_FILE.write_text(text + "\n", encoding="utf-8")
