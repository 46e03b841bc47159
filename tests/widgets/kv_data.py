"""The data of the page playground's JavaScript tests; `python -m tests.widgets.kv_data` writes it after a change.

It holds frames that the engine made of hand-picked histories, and digests of its frames of random ones.
"""

import hashlib
import json
import random
from pathlib import Path

from lab_engine.kv_trace import Frame, parse_actions, trace_history
from widgets.kv_pages import KVPages
from widgets.kv_pages_text import counters, event_words

DATA_FILE = Path(__file__).parent / "js" / "kv_pages.json"
BUSY = (
    "new; append A 37; new; append B 18; new; append C 48; fork A; append D 3; fork C; append E; truncate B 16; "
    "free B; new; append B 25; fork E; append F 2; append A 12; append D 9; free C; free C; truncate D 33; append D 99"
    "; evict"
)
"""Six sequences after many actions, two of them refused."""
EIGHT = "new; append A 20; fork A; fork A; fork A; fork A; fork A; fork A; fork A; truncate C 17; append B; append H 16"
FULL = "new; append A 256; fork A; append B; new; append C; truncate A 3; append B 13; evict; evict; evict; evict"
PICKED = [
    "",
    "new; append A 15; append A; append A",
    "new; append A 20; fork A; append B; append A; free A; free A; evict; evict",
    "new; append A 96; new; append B 16; append B; truncate A 33; truncate A 96; append B 0; fork C; append D 3",
    "new" + "; new" * 26 + "; fork A; free C; fork A; new",
    "new; append A 5; fork A; fork A; truncate B 5; append B; truncate C 1; append C 40; append A 999999; truncate A 0",
]


def random_line(rng: random.Random) -> str:
    """A history of up to 40 actions on up to five names, some of which are refused."""
    parts = ["new"]
    for _ in range(rng.randrange(5, 40)):
        kind = rng.choices(["new", "evict", "fork", "free", "truncate", "append"], [2, 1, 5, 1, 3, 10])[0]
        name = "" if kind in {"new", "evict"} else " " + rng.choice("AABBCD")
        count = f" {rng.choice([1, 1, 3, 15, 16, 17, 40])}" if kind in {"append", "truncate"} else ""
        parts.append(kind + name + count)
    return "; ".join(map(str, parse_actions("; ".join(parts))))


def frame_data(frame: Frame) -> dict[str, object]:
    """A frame with the names that kv_allocator.js gives its parts."""
    action = frame.action
    return {
        "action": action and {"kind": action.kind, "sequence": action.sequence, "count": action.count},
        "sequences": [{"name": s.name, "length": s.length, "table": list(s.page_table)} for s in frame.sequences],
        "freed": list(frame.freed),
        "counts": list(frame.ref_counts),
        "free": list(frame.free_ids),
        "subject": frame.subject,
        "taken": list(frame.taken),
        "copied": [list(pair) for pair in frame.copied],
        "returned": list(frame.returned),
        "error": frame.error,
    }


def digest(frame: Frame) -> str:
    """The first letters of the SHA-256 of a frame's JSON, as JSON.stringify writes it."""
    text = json.dumps(frame_data(frame), separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def history(line: str, order: list[int]) -> tuple[Frame, ...]:
    """The engine's frames."""
    return trace_history(parse_actions(line), len(order), order)


def javascript_data() -> dict[str, object]:
    """What kv_allocator.test.mjs and kv_pages.test.mjs read."""
    rng = random.Random(4)
    randoms = []
    for _ in range(200):
        line, order = random_line(rng), rng.sample(range(size := rng.choice([4, 8, 16])), size)
        randoms.append({"line": line, "order": order, "frames": [*map(digest, history(line, order))]})
    picked = [{"line": line, "order": (order := [2, 0, 5, 1, 7, 3, 6, 4])} | {
        "frames": [frame_data(frame) for frame in history(line, order)]} for line in PICKED]  # fmt: skip
    playground = KVPages()
    return {
        "trace": playground._trace,
        "spec": playground._spec,
        "cases": [case(KVPages(**state)) for state in states()],
        "picked": picked,
        "random": randoms,
    }


def states() -> list[dict[str, str | int]]:
    """Every step of every preset and of three busy histories, with the followed, a fixed and an absent sequence."""
    presets = [dict(preset.values) for preset in KVPages()._presets.values()]
    busy = [{"order": "running", "actions": line} for line in (BUSY, EIGHT, FULL, "")]
    found = []
    for history in (*presets, *busy):
        for step in range(len(parse_actions(str(history["actions"]))) + 1):
            sequence, token = [("", -1), ("A", 5), ("B", 255), ("", 31)][step % 4]
            found.append({**history, "sequence": sequence, "token": token, "step": step})
    return found


def case(playground: KVPages) -> dict[str, object]:
    """A state and Python's words for it."""
    frame = playground.scene.frame
    state = {name: getattr(playground, name) for name in playground.fields}
    words = {"sentence": playground.sentence, "code": playground.code}
    return {
        "state": state,
        **words,
        "event": list(event_words(frame)),
        "counters": [list(row) for row in counters(frame)],
    }


if __name__ == "__main__":
    DATA_FILE.write_text(json.dumps(javascript_data(), ensure_ascii=False, separators=(",", ":")) + "\n", "utf-8")
