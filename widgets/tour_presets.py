"""The tour's presets: five places in the running text, each with a surprise, and numbers taken from the data."""

from collections.abc import Mapping
from typing import Any

from lab_engine.bench.models import QWEN_7B
from lab_engine.decoder_trace import bytes_per_stage
from lab_engine.kv_pages import PAGE_SLOTS
from widgets.playground import Preset
from widgets.tour_data import SEVEN_B_CONTEXT, kv_bytes, step_bytes
from widgets.words import byte_count, percent

Data = Mapping[str, Any]


def tour_presets(data: Data) -> list[tuple[Preset, str]]:
    """Each preset with the panel that it points at: text, stages, pages or next."""
    steps = data["steps"]
    last = len(steps) - 1
    close = min(range(len(steps)), key=lambda at: steps[at]["margin"])
    token = steps[last]["start"] + steps[last]["fed"] - 1
    found = [
        (_preset("first token", 0, _ask_first()), "next"),
        (_preset(f"token {token}", last, _ask_written(data, last)), "pages"),
        (_preset("close call", close, _ask_close(data, close)), "next"),
        (_preset("where bytes go", last, _ask_bytes(data)), "stages"),
    ]
    new_pages = [at for at in range(1, len(steps)) if steps[at]["taken"]]
    if new_pages:
        at = new_pages[-1]
        held = steps[at]["start"]
        found.insert(2, (_preset(f"{held} → {held + 1}", at, _ask_page(data, at)), "pages"))
    return found


def _preset(name: str, step: int, ask: str) -> Preset:
    return Preset(name, ask, {"step": step})


def _ask_first() -> str:
    return "The pass over the prompt already gives the first new token: k new tokens take 1 prefill and k − 1 steps."


def _ask_written(data: Data, at: int) -> str:
    read = sum(step_bytes(data["steps"][at]).values())
    written = data["planes"] * data["slotBytes"]
    seven = sum(bytes_per_stage(QWEN_7B, SEVEN_B_CONTEXT).values()) / kv_bytes(QWEN_7B)
    return (
        f"This step reads {byte_count(read)} to write {byte_count(written)} of K and V: {read / written:,.0f} to 1. "
        f"In the 7B it is {round(seven, -3):,.0f} to 1."
    )


def _ask_page(data: Data, at: int) -> str:
    page_bytes = PAGE_SLOTS * data["slotBytes"]
    count, planes = data["steps"][at]["page"], data["planes"]
    return (
        f"{count} pages are full, so one more token takes a page id: {planes} planes × {page_bytes // 1024} KiB "
        f"= {planes * page_bytes // 1024} KiB for one token."
    )


def _ask_close(data: Data, at: int) -> str:
    margin = data["steps"][at]["margin"]
    return (
        f"The closest decision of the text: {margin:.3f} logits between the two best. "
        "Where rounding moves them by more, another token is taken."
    )


def _ask_bytes(data: Data) -> str:
    seven = data["reference"]
    mlp, head = percent(seven["gate_up"] + seven["down"]), percent(seven["lm_head"])
    return f"In the 7B gate_up and down read {mlp} of the bytes, lm_head {head}. Which stages differ here, and why?"
