"""The tour's data: an engine trace as plain numbers and words for the browser, the PNG and the text picture."""

from typing import Any

from lab_engine.bench.models import QWEN_7B
from lab_engine.config import ModelConfig
from lab_engine.decoder import STAGES
from lab_engine.decoder_trace import KV_BYTES, GenerationTrace, StepTrace, bytes_per_stage
from lab_engine.kv_pages import PAGE_SLOTS
from widgets.words import span, token_label

SEVEN_B_CONTEXT = 512
"""The context at which the course compares the 7B."""


def num_planes(config: ModelConfig) -> int:
    """Planes of the KV cache: K and V of each KV head of each layer."""
    return 2 * config.num_layers * config.num_kv_heads


def kv_bytes(config: ModelConfig) -> int:
    """Bytes of K and V that one token adds to the cache, over all planes."""
    return num_planes(config) * config.head_dim * KV_BYTES


def shares(stage_bytes: dict[str, int]) -> dict[str, float]:
    """The part of all bytes that each stage reads."""
    total = sum(stage_bytes.values())
    return {stage: count / total for stage, count in stage_bytes.items()}


def step_bytes(step: dict[str, Any]) -> dict[str, int]:
    """Bytes that a pass reads in each stage, over all layers."""
    read = dict.fromkeys(STAGES, 0)
    for stage, _, count in step["stages"]:
        read[stage] += count
    return read


def tour_data(trace: GenerationTrace) -> dict[str, Any]:
    """Everything that the pictures show of `trace`, JSON-ready; shares are rounded to 4 digits."""
    steps = [_step_data(trace, at) for at in range(len(trace.steps))]
    reference = shares(bytes_per_stage(QWEN_7B, SEVEN_B_CONTEXT))
    largest = max(share for step in steps for share in shares(step_bytes(step)).values())
    return {
        "model": trace.model,
        "tokens": _tokens(trace),
        "promptTokens": trace.prompt_tokens,
        "pages": len(trace.steps[-1].page_table),
        "numPages": trace.num_pages,
        "planes": num_planes(trace.config),
        "slotBytes": trace.config.head_dim * KV_BYTES,
        "reference": reference,
        "largestShare": max(largest, *reference.values()),
        "steps": steps,
    }


def _tokens(trace: GenerationTrace) -> list[dict[str, str]]:
    """Every token in the order of its position, with the last one, which no pass has fed back."""
    texts = [text for step in trace.steps for text in step.token_texts] + [trace.steps[-1].next_text]
    return [{"text": text, "label": token_label(text)} for text in texts]


def _step_data(trace: GenerationTrace, at: int) -> dict[str, Any]:
    step = trace.steps[at]
    layers = len(step.attention)
    mean = [round(sum(column) / layers, 4) for column in zip(*step.attention, strict=True)]
    written = _written(trace.config, step)
    return {
        "sentence": _sentence(step, at, written),
        "start": step.start,
        "fed": len(step.token_ids),
        "pageTable": list(step.page_table),
        "taken": list(step.pages_taken),
        "page": step.page,
        "pageId": step.page_id,
        "slot": step.slot,
        **written,
        "stages": [[one.stage, one.layer, one.bytes_read] for one in step.stages],
        "attention": mean,
        "strongest": mean.index(max(mean)),
        "top": [_candidate(step, *one) for one in step.top],
        "margin": round(step.margin, 3),
    }


def _candidate(step: StepTrace, token_id: int, text: str, probability: float) -> dict[str, Any]:
    return {"label": token_label(text), "share": round(probability, 4), "chosen": token_id == step.next_id}


def _written(config: ModelConfig, step: StepTrace) -> dict[str, Any]:
    """The slots of the last page that a pass writes, their bytes in a plane, and how the address comes about."""
    slot_bytes = config.head_dim * KV_BYTES
    page_bytes = PAGE_SLOTS * slot_bytes
    first = max(step.start - step.page * PAGE_SLOTS, 0)
    start = step.page_id * page_bytes
    count = f", {step.slot + 1 - first} slots" if first < step.slot else ""
    planes = f"in each of {num_planes(config)} planes"
    return {
        "firstSlot": first,
        "bytes": f"bytes {start + first * slot_bytes}–{start + (step.slot + 1) * slot_bytes - 1}",
        "address": f"= id {step.page_id} × {page_bytes} + slot {first} × {slot_bytes}{count}, {planes}",
    }


def _sentence(step: StepTrace, at: int, written: dict[str, Any]) -> str:
    """The state as a sentence: pass, token, where its K and V went, what came out."""
    last = step.start + len(step.token_ids) - 1
    parts = [
        f"step {at}" if at else "prefill",
        f"token{'s' if len(step.token_ids) > 1 else ''} {span(step.start, last)}",
        f"page {step.page} → id {step.page_id}",
        f"slot{'s' if written['firstSlot'] < step.slot else ''} {span(written['firstSlot'], step.slot)}",
        written["bytes"],
        f"next {token_label(step.next_text)}",
    ]
    return " · ".join(parts)
