"""The bug clinic of lab 05: ten symptoms, each the real output of an attention with one of six bugs.

    curve   the error of each query head at 1 … 64 tokens in the cache, in one layer
    row     the weights that one query head gives to the slots of its pages, right and wrong
    text    what the model writes after two prompts, right and wrong, with the bug in every layer

The six can be told apart by where they are right. A symptom names no cause; `trace_symptom` makes the same observation
with any of the six, so that a wrong answer can be met with what it would have shown. float32 throughout.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Literal

import torch
from torch import Tensor

from lab_engine import SHIPPED_MODEL, data_path
from lab_engine.attention_layer import MOST_TOKENS, Layer, RunSpec, relative_errors, right_run
from lab_engine.attention_texts import best_choice, restarted
from lab_engine.decoder import Attention, Decoder
from lab_engine.errors import NanoqwenError
from lab_engine.kv_pages import PAGE_SLOTS, pages_for
from lab_engine.loading import open_source
from lab_engine.mistakes import FORMER_TOKENS, attention_with, exact_decoder
from lab_engine.weights import DenseSource

CAUSES = ("no_tail_mask", "nan_in_v", "stale_page", "no_rescale", "head_modulo", "length_minus_one")
"""The six that a symptom may have, as in paged_attention.BUGS."""

ROUNDING = 1e-4
"""Relative errors below this are called 0: float32 sums differ by less from CPU to CPU."""

Kind = Literal["curve", "row", "text"]


@dataclass(frozen=True)
class Curve:
    """errors[head][n - 1]: |wrong - right| / |right| of a head's output at n tokens, 0 below ROUNDING; may be NaN."""

    errors: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Row:
    """The newest of `length` tokens looks at the slots of its pages, in logical order: weights that sum to 1."""

    length: int
    head: int
    right: tuple[float, ...]
    wrong: tuple[float, ...]


@dataclass(frozen=True)
class Text:
    """What the model writes after a prompt. departs: the first new token that is not the right one, or None.

    Token i was chosen with prompt_tokens + i tokens in the cache. margin: the least gap of two best logits, both texts.
    """

    prompt: str
    prompt_tokens: int
    right: tuple[str, ...]
    wrong: tuple[str, ...]
    departs: int | None
    margin: float


Observation = Curve | Row | tuple[Text, ...]


@dataclass(frozen=True)
class Symptom:
    """One case of the clinic; number is 1 to 10. It does not say what the cause is."""

    number: int
    kind: Kind
    shown: Observation


@dataclass(frozen=True)
class _Case:
    """What is observed, and the cause. At: (length, head) of a row; texts: (prompt, its first tokens, new tokens)."""

    kind: Kind
    cause: str
    at: tuple[int, int] = (0, 0)
    texts: tuple[tuple[str, int, int], ...] = ()


_ACCOUNT = "class Account:\n    def __init__(self, name: str, account_id: str, region_name: str):\n"
_JSON = (
    "import json\n\n\ndef load_config(path):\n    with open(path) as file:\n        return json.load(file)\n\n\n"
    "def save_config(path, config):\n    with open(path, 'w') as file:\n"
)
_CASES = (
    _Case("curve", "no_rescale"),
    _Case("row", "no_tail_mask", at=(56, 1)),
    _Case("text", "nan_in_v", texts=((_ACCOUNT, 12, 8), (_ACCOUNT, 16, 8))),
    _Case("curve", "stale_page"),
    _Case("text", "no_rescale", texts=((_ACCOUNT, 12, 12), (_JSON, 32, 5))),
    _Case("curve", "length_minus_one"),
    _Case("text", "no_tail_mask", texts=((_ACCOUNT, 6, 6), (_JSON, 32, 5))),
    _Case("curve", "head_modulo"),
    _Case("row", "length_minus_one", at=(16, 0)),
    _Case("text", "stale_page", texts=((_JSON, 6, 13), (_JSON, 20, 5))),
)
_ORDER = torch.randperm(len(_CASES), generator=torch.Generator().manual_seed(5)).tolist()
NUMBERS = range(1, len(_CASES) + 1)


def symptoms() -> tuple[Symptom, ...]:
    """The ten symptoms, in the order of their numbers; the same on every machine."""
    return tuple(Symptom(number, _case(number).kind, trace_symptom(number, _case(number).cause)) for number in NUMBERS)


def cause_of(number: int) -> str:
    """The cause of a symptom, for the checker."""
    return _case(number).cause


@cache
def trace_symptom(number: int, cause: str) -> Observation:
    """What symptom `number` would look like with another of CAUSES: the same observation, really computed."""
    if number not in NUMBERS:
        raise NanoqwenError(f"symptom {number!r}: expected 1 to {len(NUMBERS)}")
    if cause not in CAUSES:
        raise NanoqwenError(f"cause {cause!r}: expected one of {', '.join(CAUSES)}")
    case = _case(number)
    if case.kind == "curve":
        return _curve(cause)
    if case.kind == "row":
        return _row(cause, *case.at)
    return tuple(_text(cause, *text) for text in case.texts)


def _case(number: int) -> _Case:
    return _CASES[_ORDER[number - 1]]


# Curves and rows: one layer of the running example ------------------------------------------------------------------


@cache
def _model() -> tuple[Decoder, Tensor]:
    """The right decoder, and its cache as another request left it: the pages that come next hold that one's tokens."""
    source, tokenizer = open_source(data_path(SHIPPED_MODEL))
    decoder = exact_decoder(DenseSource(source), tokenizer, num_pages=2 * pages_for(FORMER_TOKENS))
    return decoder, decoder.cache.data.clone()


@cache
def _layer() -> Layer:
    return right_run(*_model()).layer


def _spec(cause: str) -> RunSpec:
    """nan_in_v shows where nothing was ever written; the others where a former request's tokens lie."""
    return RunSpec(cause, cause, unwritten=cause == "nan_in_v")


def _curve(cause: str) -> Curve:
    layer, spec = _layer(), _spec(cause)
    by_length = []
    for length in range(1, MOST_TOKENS + 1):
        wrong, right = (layer.attend(length, one).out for one in (spec, spec.without_bug()))
        by_length.append([0.0 if error < ROUNDING else error for error in relative_errors(wrong, right)])
    return Curve(tuple(zip(*by_length, strict=True)))


def _row(cause: str, length: int, head: int) -> Row:
    spec, shown = _spec(cause), PAGE_SLOTS * pages_for(length)
    right, wrong = (_layer().weights(length, one).out[head, :shown].tolist() for one in (spec.without_bug(), spec))
    return Row(length, head, tuple(right), tuple(wrong))


# Texts --------------------------------------------------------------------------------------------------------------


def _text(cause: str, prompt: str, prompt_tokens: int, new_tokens: int) -> Text:
    decoder, memory = _model()
    token_text = decoder.tokenizer.token_text
    ids = decoder.tokenizer.encode(prompt)[:prompt_tokens]
    right, right_margin = _written(ids, new_tokens, memory, decoder.attention)
    fresh = math.nan if cause == "nan_in_v" else memory
    wrong, margin = _written(ids, new_tokens, fresh, attention_with(cause))
    departs = next((at for at, pair in enumerate(zip(right, wrong, strict=True)) if pair[0] != pair[1]), None)
    return Text(
        prompt=decoder.tokenizer.decode(ids),
        prompt_tokens=len(ids),
        right=tuple(map(token_text, right)),
        wrong=tuple(map(token_text, wrong)),
        departs=departs,
        margin=min(margin, right_margin),
    )


def _written(ids: list[int], new_tokens: int, memory: Tensor | float, attention: Attention) -> tuple[list[int], float]:
    """New ids, and the least gap of two best logits; NaN logits choose token 0. memory: the cache before."""
    decoder, chosen, least = _model()[0], list[int](), math.inf
    with restarted(decoder, memory):
        decoder.attention = attention
        logits = decoder.prefill(ids)
        while True:
            token_id, margin = best_choice(decoder, logits)
            chosen.append(token_id)
            least = min(least, margin)
            if len(chosen) == new_tokens:
                return chosen, least
            logits = decoder.step(token_id)
