"""Lab 08's bug desk: one mistake in the whole decoder, its text, its logits, its cause.

The engine traces every case once (`lab_engine/bug_desk.py`); a step of the playground uncovers one part more.
"""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from lab_engine.bug_desk import ROUNDING, DeskTrace, Symptom, trace_desk
from lab_engine.kv_pages import PAGE_SLOTS
from widgets.decoder_png import desk_png
from widgets.playground import Badge, Playground, Preset, Value

PARTS = 3
LEVELS = " .:-=+*#%@"
"""Letters for the height of a bar in the text picture: a blank is no error, each further one half a power of ten."""


@cache
def _shipped_trace() -> DeskTrace:
    return trace_desk()


class BugDesk(Playground):
    """Which mistake is it? `step` 0 shows the texts, 1 the error of the logits by length, 2 the cause.

    The cases are named A, B, C, … in the order of the trace's symptoms; without a trace they are the lab's own six.
    """

    title = "Bug desk"
    lab = "lab 08"
    ask = "One mistake is in the whole decoder. Read the text, guess the cause, then step on."
    badge = Badge("computed", "the engine's own decoder in float32, with one part exchanged")
    script = "decoder.js"

    def __init__(self, trace: DeskTrace | None = None, **state: Value | None) -> None:
        trace = trace or _shipped_trace()
        cases = {f"case {letter}": symptom for letter, symptom in zip("ABCDEFGHIJKLMNOP", trace.symptoms, strict=False)}
        presets = [Preset(name, _ask(trace, symptom), {"step": 0}) for name, symptom in cases.items()]
        super().__init__(desk_data(trace, cases), presets, **state)

    def step_count(self) -> int:
        """Texts, logits, cause."""
        return PARTS

    @property
    def case(self) -> Mapping[str, Any]:
        """The data of the chosen case."""
        cases: dict[str, Any] = self._trace["cases"]
        return dict(cases.get(self.preset) or next(iter(cases.values())))

    @property
    def sentence(self) -> str:
        """`case B · departs at new token 2 · 40 of 40 lengths have wrong logits`."""
        return str(self.case["sentences"][self.step])

    def text_picture(self) -> str:
        """Both texts; from step 1 on the error by length, from step 2 on the cause."""
        prompt, case = "".join(self._trace["prompt"]), self.case
        rows = [*_text_rows("right", prompt, self._trace["right"]), "", *_text_rows("broken", prompt, case["texts"])]
        if self.step > 0:
            rows += ["", *_level_rows(self._trace, case["differences"])]
        if self.step > 1:
            rows += ["", f"cause   {case['cause']} (lab {case['lab']})"]
        return "\n".join(rows)

    def png(self) -> bytes:
        """The same parts as the browser shows."""
        return desk_png(self._trace, self.case, self.step)


def desk_data(trace: DeskTrace, cases: Mapping[str, Symptom]) -> dict[str, Any]:
    """Everything that the pictures show, JSON-ready."""
    largest = max(value for symptom in cases.values() for value in symptom.differences)
    return {
        "prompt": [trace.prompt],
        "promptTokens": trace.prompt_tokens,
        "right": list(trace.right.token_texts),
        "floor": ROUNDING,
        "decades": max(1, math.ceil(math.log10(max(largest, ROUNDING) / ROUNDING))),
        "cases": {name: _case_data(name, trace, symptom) for name, symptom in cases.items()},
    }


def _case_data(name: str, trace: DeskTrace, symptom: Symptom) -> dict[str, Any]:
    return {
        "texts": list(symptom.token_texts),
        "departs": symptom.departs,
        "differences": list(symptom.differences),
        "cause": symptom.cause,
        "lab": symptom.lab[:2],
        "sentences": _sentences(name, trace, symptom),
    }


def _sentences(name: str, trace: DeskTrace, symptom: Symptom) -> list[str]:
    departs = "the right text" if symptom.departs is None else f"departs at new token {symptom.departs}"
    texts = f"{name} · {departs} · {symptom.token_passes} token passes, right {trace.right.token_passes}"
    wrong = [trace.prompt_tokens + at for at, value in enumerate(symptom.differences) if value]
    logits = f"{name} · logits wrong at {len(wrong)} of {len(symptom.differences)} lengths"
    if wrong:
        logits += f", first at {wrong[0]}"
    return [texts, logits, f"{logits} · {symptom.mistake}, lab {symptom.lab[:2]}"]


def _ask(trace: DeskTrace, symptom: Symptom) -> str:
    if symptom.departs is None:
        return "The text is right. What is wrong, then? Compare the token passes below."
    if symptom.departs == 0:
        return "Wrong from the first token on. Is it noise, or is it Python?"
    tokens = trace.prompt_tokens + symptom.departs
    return f"Right up to {tokens} tokens in the cache. Pages end at multiples of {PAGE_SLOTS}: has it to do with them?"


def _text_rows(name: str, prompt: str, texts: Sequence[str]) -> list[str]:
    lines = (prompt + "".join(texts)).split("\n")
    return [f"{name if number == 0 else '':<8}{line.rstrip()}".rstrip() for number, line in enumerate(lines)]


def _level_rows(data: Mapping[str, Any], differences: Sequence[float]) -> list[str]:
    first, last = data["promptTokens"], data["promptTokens"] + len(differences) - 1
    levels = "".join(_level(value / data["floor"]) for value in differences)
    pages = "".join("|" if (first + at) % PAGE_SLOTS == 0 else " " for at in range(len(differences)))
    note = f"{first} to {last} tokens in the cache; | at multiples of {PAGE_SLOTS}; a blank is no error"
    return [f"error   [{levels}]", f"         {pages}".rstrip(), f"        {note}"]


def _level(ratio: float) -> str:
    return LEVELS[0] if ratio <= 1 else LEVELS[min(len(LEVELS) - 1, 1 + int(2 * math.log10(ratio)))]
