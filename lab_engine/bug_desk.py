"""What a mistake does to text and logits: the data that lab 08's bug desk draws.

A broken decoder writes a text of its own; then it is fed the right text token by token, so that its logits can be
compared with the right ones at every length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from lab_engine import SHIPPED_MODEL, data_path
from lab_engine.decoder import Decoder
from lab_engine.errors import NanoqwenError
from lab_engine.kv_pages import pages_for
from lab_engine.loading import open_source
from lab_engine.mistakes import MISTAKES, RIGHT, DenseSource, Mistake, exact_decoder
from lab_engine.running_example import RUNNING_EXAMPLE
from lab_engine.tokenizer import Tokenizer
from lab_engine.weights import WeightSource

ROUNDING = 1e-3
"""Logits nearer than this are called equal: float32 sums differ by less from CPU to CPU."""

DESK = ("no_tail_mask", "wrong_layout", "frozen_step", "no_rescale", "freed_page", "no_cache")
"""The six mistakes of the lab, in the order of its cases; NEW_TOKENS cross three page boundaries."""

NEW_TOKENS = 44


@dataclass(frozen=True)
class Symptom:
    """What one mistake did; all lists run over the new tokens.

    departs: the first new token that is not the right one, or None. differences: the largest |logit - right logit|
    with the right text in the cache, 0 below ROUNDING. token_passes: tokens that ran through the layers for that text.
    """

    mistake: str
    cause: str
    lab: str
    token_texts: tuple[str, ...]
    departs: int | None
    differences: tuple[float, ...]
    token_passes: int


@dataclass(frozen=True)
class DeskTrace:
    """The right text and what became of it; differences[i] of a symptom is at prompt_tokens + i tokens in the cache."""

    prompt: str
    prompt_tokens: int
    right: Symptom
    symptoms: tuple[Symptom, ...]


def trace_desk() -> DeskTrace:
    """The lab's six mistakes on the running example and the shipped model; the same on every machine."""
    source, tokenizer = open_source(data_path(SHIPPED_MODEL))
    return trace_mistakes(source, tokenizer, RUNNING_EXAMPLE.prompt, NEW_TOKENS, DESK)


def trace_mistakes(
    source: WeightSource, tokenizer: Tokenizer, prompt: str, new_tokens: int, names: Sequence[str]
) -> DeskTrace:
    """Write new_tokens tokens with the right decoder and with each named mistake (see MISTAKES).

    source: packed weights. Stop tokens do not end a text here, so that all texts have the same length.
    """
    if unknown := [name for name in names if name not in MISTAKES]:
        raise NanoqwenError(f"mistake {unknown[0]!r}: expected one of {', '.join(MISTAKES)}")
    desk = _Desk(source, tokenizer, tokenizer.encode(prompt), new_tokens)
    symptoms = tuple(desk.symptom(MISTAKES[name]) for name in names)
    return DeskTrace(prompt, len(desk.ids), desk.symptom(RIGHT), symptoms)


class _Desk:
    """One prompt, with the right ids and logits to compare with."""

    def __init__(self, source: WeightSource, tokenizer: Tokenizer, ids: list[int], new_tokens: int) -> None:
        self.source, self.tokenizer, self.ids = source, tokenizer, ids
        self.num_pages = pages_for(len(ids) + new_tokens) + pages_for(64 + new_tokens)  # for another request too
        self.dense = DenseSource(source)
        self.right = list(self._decoder(RIGHT, self.dense).generate(ids, new_tokens, frozenset()))
        self.logits = self._logits_along(self._decoder(RIGHT, self.dense))

    def symptom(self, mistake: Mistake) -> Symptom:
        weights = self.dense if mistake.reader is RIGHT.reader else DenseSource(self.source, mistake.reader)
        decoder = self._decoder(mistake, weights)
        passes = _count_passes(decoder)
        logits = self._logits_along(decoder)
        chosen = [decoder.backend.argmax(row[: self.tokenizer.vocab_size]) for row in logits]
        departs = next((at for at, token_id in enumerate(self.right) if chosen[at] != token_id), None)
        if departs is not None:  # from there on the broken decoder reads its own text
            chosen = list(self._decoder(mistake, weights).generate(self.ids, len(self.right), frozenset()))
        return Symptom(
            mistake=mistake.name,
            cause=mistake.cause,
            lab=mistake.lab,
            token_texts=tuple(self.tokenizer.token_text(token_id) for token_id in chosen),
            departs=departs,
            differences=tuple(_difference(a, b) for a, b in zip(logits, self.logits, strict=True)),
            token_passes=sum(passes),
        )

    def _decoder(self, mistake: Mistake, weights: WeightSource) -> Decoder:
        return exact_decoder(weights, self.tokenizer, self.num_pages, mistake)

    def _logits_along(self, decoder: Decoder) -> list[Tensor]:
        """Logits after the prompt, and after each right token but the last."""
        return [decoder.prefill(self.ids), *(decoder.step(token_id) for token_id in self.right[:-1])]


def _count_passes(decoder: Decoder) -> list[int]:
    """A list that gets the number of tokens of each pass of the decoder from now on."""
    passes: list[int] = []

    def observe(stage: str, _: int | None, output: Tensor) -> None:
        if stage == "embed":
            passes.append(len(output))

    decoder.observer = observe
    return passes


def _difference(found: Tensor, right: Tensor) -> float:
    """The largest difference of two rows of logits with two digits, 0 where rounding explains it."""
    largest = float((found - right).abs().max())
    return 0.0 if largest < ROUNDING else float(f"{largest:.2g}")
