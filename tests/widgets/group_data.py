"""The data of the group's JavaScript tests; `python -m tests.widgets.group_data` writes it after a change.

It holds the shipped scenes, an own group whose largest weight is negative, and sentences and words that Python made.
"""

import json
import random
from pathlib import Path

import torch

from lab_engine.int4 import pack_words
from widgets.int4_group import OneGroup
from widgets.int4_group_text import clip_at

DATA_FILE = Path(__file__).parent / "js" / "group.json"
STEPS = (0, 1, 5, 13, 40, 50, 63, 79, 88, 94, 99, 100)


def own_weights():
    rng = random.Random(4)
    return [*(rng.gauss(0, 1e-3) for _ in range(127)), -0.004]


def states(presets):
    return [{"preset": p, "step": s, "weight": (37 * s + 5) % 128} for p in presets for s in STEPS]


def javascript_data():
    shipped, own = OneGroup(), OneGroup(own_weights(), preset="signed extreme")
    return {
        "trace": shipped._trace,
        "spec": shipped._spec,
        "own": {"groups": {own.preset: own.group}},
        "sentences": [[state, OneGroup(**state).sentence] for state in states(shipped.presets)],
        "ownSentences": [[state, OneGroup(own_weights(), **state).sentence] for state in states([own.preset])],
        "words": [[state, word_of(OneGroup(**state))] for state in states(shipped.presets)],
        "code": OneGroup(preset="tiny", step=79, weight=3).code,
    }


def word_of(group):
    """The word of the chosen weight as the converter packs it, or null where the group is refused."""
    codes = clip_at(group.group, group.step).codes
    if not codes:
        return None
    words = pack_words(torch.tensor([codes], dtype=torch.int8))[0]
    return f"0x{int(words[group.weight // 8]) & 0xFFFFFFFF:08X}"


if __name__ == "__main__":
    text = json.dumps(javascript_data(), ensure_ascii=False, separators=(",", ":"))
    DATA_FILE.write_text(text + "\n", encoding="utf-8")
