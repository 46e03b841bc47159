"""A DeskTrace made by hand: three cases, one of them with no wrong token. `python -m tests.widgets.desk_trace` writes
its data for the JavaScript tests.
"""

import json
from pathlib import Path

from lab_engine.bug_desk import DeskTrace, Symptom
from widgets.decoder import BugDesk, desk_data

DATA_FILE = Path(__file__).parent / "js" / "desk.json"

RIGHT = ("\n    ", "if", " n", " <", " 2", ":", "\n        ", "return", " n", "\n    ", "return", " 1", "\n")
NOISE = (
    "}",
    " e",
    "<b>&amp;",
    "\n",
    "$x^2$",
    "return",
    " n",
    " a_very_long_name_that_does_not_end",
    "x",
    "",
    "(",
    "[",
    "]",
)


def symptom(name: str, texts: tuple[str, ...], differences: tuple[float, ...], passes: int = 17) -> Symptom:
    departs = next((at for at, (a, b) in enumerate(zip(texts, RIGHT, strict=True)) if a != b), None)
    return Symptom(name, f"the cause of {name}", "05_paged_attention", texts, departs, differences, passes)


def made_up_desk() -> DeskTrace:
    late = (*RIGHT[:6], "\n    ", "pass", "\n", "\n", "def", " main", "(")
    return DeskTrace(
        prompt="def fibonacci(n):",
        prompt_tokens=5,
        right=symptom("none", RIGHT, (0.0,) * 13),
        symptoms=(
            symptom("noise", NOISE, tuple(3.0 + at for at in range(13))),
            symptom("late", late, (*(0.0,) * 5, 0.002, 0.05, 1.5, 2.0, 4.0, 0.0, 6.0, 20.0)),
            symptom("slow", RIGHT, (0.0,) * 13, passes=143),
        ),
    )


def javascript_data() -> dict[str, object]:
    trace = made_up_desk()
    desk = BugDesk(trace)
    cases = dict(zip(desk.presets, trace.symptoms, strict=True))
    return {"trace": desk_data(trace, cases), "spec": desk._spec}


if __name__ == "__main__":
    DATA_FILE.write_text(json.dumps(javascript_data(), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
