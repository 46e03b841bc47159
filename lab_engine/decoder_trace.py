"""What happened in a generation, pass by pass, in plain numbers: the data that the playgrounds of labs 00 and 08 draw.

The trace is taken from the decoder that really runs, through its observer and its attention function.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from torch import Tensor

from lab_engine.config import ModelConfig
from lab_engine.decoder import STAGES, Decoder
from lab_engine.int4 import BYTES_PER_WEIGHT
from lab_engine.kv_pages import PAGE_SLOTS

KV_BYTES = 2
"""Bytes of a K or V element in the cache of a 16-bit decode; the float32 mode of the tests stores 4."""


@dataclass(frozen=True)
class StageTrace:
    """One stage of one pass: bytes_read counts weights (attention: K and V of the past), rms is of its last row."""

    stage: str
    layer: int | None
    bytes_read: int
    rms: float


@dataclass(frozen=True)
class StepTrace:
    """One pass: the prefill, or one decode step.

    token_ids are the tokens fed, from position start on; page, page_id and slot say where the last of them lies.
    attention[layer][position] is the weight that the last token gives to each position, mean over query heads.
    top holds the five most probable next tokens as (id, text, probability); margin is the top-2 logit gap.
    """

    kind: str
    token_ids: tuple[int, ...]
    token_texts: tuple[str, ...]
    start: int
    page_table: tuple[int, ...]
    pages_taken: tuple[int, ...]
    page: int
    page_id: int
    slot: int
    stages: tuple[StageTrace, ...]
    attention: tuple[tuple[float, ...], ...]
    top: tuple[tuple[int, str, float], ...]
    margin: float
    next_id: int
    next_text: str


@dataclass(frozen=True)
class GenerationTrace:
    """A prefill and the steps after it; k new tokens are 1 prefill and k - 1 steps. text is the generated text."""

    model: str
    config: ModelConfig
    prompt: str
    prompt_tokens: int
    num_pages: int
    steps: tuple[StepTrace, ...]
    text: str


def bytes_per_stage(config: ModelConfig, context: int) -> dict[str, int]:
    """Bytes that a decode step reads in each stage, all layers together; context counts the current token.

    INT4 weights with fp16 scales, INT4 head, 16-bit KV; norms and biases are left out, embed is one row.
    Example: Qwen2.5-Coder-7B at context 512 reads 3,674,976,256 bytes besides its embedding row.
    """
    layers = config.num_layers
    weights = {
        "embed": config.hidden_size,
        "qkv": layers * (config.q_size + 2 * config.kv_size) * config.hidden_size,
        "o": layers * config.hidden_size * config.q_size,
        "gate_up": layers * 2 * config.intermediate_size * config.hidden_size,
        "down": layers * config.hidden_size * config.intermediate_size,
        "lm_head": config.vocab_size * config.hidden_size,
    }
    result = {stage: round(count * BYTES_PER_WEIGHT) for stage, count in weights.items()}
    result["attention"] = layers * context * 2 * config.kv_size * KV_BYTES
    return {stage: result[stage] for stage in STAGES}


def trace_generation(decoder: Decoder, prompt: str, num_tokens: int) -> GenerationTrace:
    """Continue a prompt greedily until num_tokens tokens are in the cache, or a stop token comes; record each pass."""
    ids = decoder.tokenizer.encode(prompt)
    steps: list[StepTrace] = []
    fed = list(ids)
    with _recording(decoder) as recording:
        while True:
            recording.clear()
            pages_before = list(decoder.sequence.page_table) if steps else []
            logits = decoder.step(fed[0]) if steps else decoder.prefill(fed)
            steps.append(_step_trace(decoder, "step" if steps else "prefill", fed, pages_before, recording, logits))
            fed = [steps[-1].next_id]
            if decoder.sequence.length >= num_tokens or fed[0] in decoder.tokenizer.stop_token_ids:
                break
    new_ids = [step.next_id for step in steps if step.next_id not in decoder.tokenizer.stop_token_ids]
    return GenerationTrace(
        model=decoder.model_name,
        config=decoder.config,
        prompt=prompt,
        prompt_tokens=len(ids),
        num_pages=decoder.cache.pool.num_pages,
        steps=tuple(steps),
        text=decoder.tokenizer.decode(new_ids),
    )


@dataclass
class _Recording:
    """What the observer and the attention function of a decoder saw in one pass."""

    rms: dict[tuple[str, int | None], float]
    attention: list[tuple[float, ...]]

    def clear(self) -> None:
        self.rms.clear()
        self.attention.clear()


@contextmanager
def _recording(decoder: Decoder) -> Iterator[_Recording]:
    recording = _Recording({}, [])
    attention, observer = decoder.attention, decoder.observer

    def observe(stage: str, layer: int | None, output: Tensor) -> None:
        last = output.reshape(-1, decoder.config.vocab_size) if stage == "lm_head" else output.flatten(1)
        recording.rms[stage, layer] = float(last[-1].float().square().mean().sqrt())

    def attend(q: Tensor, k_pages: Tensor, v_pages: Tensor, page_table: Tensor, length: int) -> Tensor:
        recording.attention.append(_mean_weights(q[-1], k_pages, page_table, length))
        return attention(q, k_pages, v_pages, page_table, length)

    decoder.attention, decoder.observer = attend, observe
    try:
        yield recording
    finally:
        decoder.attention, decoder.observer = attention, observer


def _mean_weights(q: Tensor, k_pages: Tensor, page_table: Tensor, length: int) -> tuple[float, ...]:
    """Softmax weights of one token's query heads over all positions, averaged over the heads; sums to 1."""
    k = k_pages[:, page_table].flatten(1, 2)[:, :length].float()
    grouped = q.view(k.shape[0], -1, q.shape[-1]).float() / math.sqrt(q.shape[-1])
    return tuple((grouped @ k.transpose(1, 2)).softmax(dim=-1).mean(dim=(0, 1)).tolist())


def _step_trace(
    decoder: Decoder, kind: str, fed: Sequence[int], pages_before: list[int], recording: _Recording, logits: Tensor
) -> StepTrace:
    tokenizer, sequence = decoder.tokenizer, decoder.sequence
    known = logits[: tokenizer.vocab_size]
    best = known.topk(5)
    probabilities = known.softmax(dim=-1)[best.indices]
    next_id = decoder.backend.argmax(known)
    token = sequence.length - 1
    page_id, slot = sequence.locate(token)
    return StepTrace(
        kind=kind,
        token_ids=tuple(fed),
        token_texts=tuple(tokenizer.token_text(i) for i in fed),
        start=sequence.length - len(fed),
        page_table=tuple(sequence.page_table),
        pages_taken=tuple(sequence.page_table[len(pages_before) :]),
        page=token // PAGE_SLOTS,
        page_id=page_id,
        slot=slot,
        stages=_stage_traces(decoder.config, sequence.length, len(fed), recording),
        attention=tuple(recording.attention),
        top=tuple(
            (int(i), tokenizer.token_text(int(i)), float(p)) for i, p in zip(best.indices, probabilities, strict=True)
        ),
        margin=float(best.values[0] - best.values[1]),
        next_id=next_id,
        next_text=tokenizer.token_text(next_id),
    )


def _stage_traces(config: ModelConfig, length: int, num_fed: int, recording: _Recording) -> tuple[StageTrace, ...]:
    """The stages in the order in which they ran; what is counted for all layers is divided among them.

    A pass over several tokens reads every matrix once, but one embedding row for each of them.
    """
    total = bytes_per_stage(config, length)
    total["embed"] *= num_fed
    return tuple(
        StageTrace(stage, layer, total[stage] // (1 if layer is None else config.num_layers), rms)
        for (stage, layer), rms in recording.rms.items()
    )
