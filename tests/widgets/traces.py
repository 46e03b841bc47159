"""A GenerationTrace made by hand in the shape of the running example, for tests that need no model."""

import random
from functools import cache

from lab_engine.config import ModelConfig
from lab_engine.decoder_trace import GenerationTrace, StageTrace, StepTrace, bytes_per_stage

PROMPT = ("def", " fib", "on", "acci", "(", "n", "):")
NEW_TEXT = (
    '\n    |"""|Return| the| n|-th| Fibonacci| number|.|"""|\n    |if| n| <=| 1|:|\n        |return| n|'
    "\n    |a|,| b| =| 0|,| 1|\n    |for| _| in| range|(|n| -| 1|):|\n        |a|,| b| =| b|,| a| +| b|"
    "\n    |return| b|\n\n\n|def"
)
NEW = tuple(NEW_TEXT.split("|"))
PAGE_ORDER = (5, 9, 2, 12, 7, 0, 14, 3)
CONFIG = ModelConfig(
    hidden_size=512,
    intermediate_size=1024,
    num_layers=4,
    num_q_heads=4,
    num_kv_heads=2,
    head_dim=128,
    vocab_size=4096,
    max_positions=2048,
    rope_theta=1e4,
    rms_norm_eps=1e-6,
    tie_embeddings=True,
)


@cache
def made_up_trace(tokens: int = 56, prompt: tuple[str, ...] = PROMPT, seed: int = 1) -> GenerationTrace:
    """`tokens` tokens in the cache at the end; every number distinct, page ids out of order, the text readable."""
    rng = random.Random(seed)
    texts = (*prompt, *NEW)
    steps = [_step(rng, texts, 0, len(prompt))]
    steps += [_step(rng, texts, at, 1) for at in range(len(prompt), tokens)]
    return GenerationTrace(
        model="made-up",
        config=CONFIG,
        prompt="".join(prompt),
        prompt_tokens=len(prompt),
        num_pages=16,
        steps=tuple(steps),
        text="".join(step.next_text for step in steps),
    )


def _step(rng: random.Random, texts: tuple[str, ...], start: int, fed: int) -> StepTrace:
    length = start + fed
    table = PAGE_ORDER[: -(-length // 16)]
    before = PAGE_ORDER[: -(-start // 16)]
    next_id = 100 + length
    others = rng.sample([" self", " x", "(", " None", "\n", " i", "<b>&amp;", "return"], 4)
    best = 0.25 + 0.7 * rng.random()
    rest = sorted((rng.random() for _ in others), reverse=True)
    top = [(next_id, texts[length], best)]
    scale = (1 - best) / (sum(rest) + 0.3)
    top += [(7 + at, other, scale * part) for at, (other, part) in enumerate(zip(others, rest, strict=True))]
    return StepTrace(
        kind="prefill" if fed > 1 else "step",
        token_ids=tuple(range(100 + start, 100 + length)),
        token_texts=texts[start:length],
        start=start,
        page_table=table,
        pages_taken=table[len(before) :],
        page=(length - 1) // 16,
        page_id=table[-1],
        slot=(length - 1) % 16,
        stages=_stages(length),
        attention=tuple(_attention(rng, length) for _ in range(CONFIG.num_layers)),
        top=tuple(sorted(top, key=lambda one: -one[2])),
        margin=0.03 + 4 * rng.random(),
        next_id=next_id,
        next_text=texts[length],
    )


def _stages(length: int) -> tuple[StageTrace, ...]:
    total = bytes_per_stage(CONFIG, length)
    inner = [
        (stage, layer) for layer in range(CONFIG.num_layers) for stage in ("qkv", "attention", "o", "gate_up", "down")
    ]
    found = [("embed", None), *inner, ("lm_head", None)]
    return tuple(
        StageTrace(s, i, total[s] // (1 if i is None else CONFIG.num_layers), 1.0 + n) for n, (s, i) in enumerate(found)
    )


def _attention(rng: random.Random, length: int) -> tuple[float, ...]:
    raw = [rng.random() ** 3 + (2.5 if position == 0 else 0.0) for position in range(length)]
    return tuple(value / sum(raw) for value in raw)
