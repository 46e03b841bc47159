"""What a mistake does to text and logits: the data that lab 08's bug desk draws.

A broken decoder writes a text of its own; then it is fed the right text token by token, so that its logits can be
compared with the right ones at every length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from lab_engine import SHIPPED_MODEL, data_path
from lab_engine.decoder import Decoder
from lab_engine.errors import NanoqwenError
from lab_engine.kv_pages import pages_for
from lab_engine.loading import open_source
from lab_engine.mistakes import FORMER_TOKENS, MISTAKES, RIGHT, Mistake, exact_decoder
from lab_engine.running_example import RUNNING_EXAMPLE
from lab_engine.tokenizer import Tokenizer
from lab_engine.weights import DenseSource, WeightSource

ROUNDING = 1e-3
"""Logits nearer than this are called equal: float32 sums differ by less from CPU to CPU."""

DESK = ("no_tail_mask", "wrong_layout", "frozen_step", "no_rescale", "freed_page", "no_cache")
"""The six mistakes of the lab, in the order of its cases; NEW_TOKENS cross three page boundaries."""

NEW_TOKENS = 41


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

    source: packed weights. Stop tokens do not end a text here, so that all texts have the same length. Prompt and
    text together are at most FORMER_TOKENS tokens: further slots would hold undefined memory.
    """
    tokens = len(tokenizer.encode(prompt)) + new_tokens
    if tokens > FORMER_TOKENS:
        raise NanoqwenError(f"prompt and new tokens: found {tokens}, expected at most {FORMER_TOKENS}")
    if unknown := [name for name in names if name not in MISTAKES]:
        raise NanoqwenError(f"mistake {unknown[0]!r}: expected one of {', '.join(MISTAKES)}")
    desk = _Desk(source, tokenizer, tokenizer.encode(prompt), new_tokens)
    return DeskTrace(prompt, len(desk.ids), desk.right, tuple(desk.symptom(MISTAKES[name]) for name in names))


class _Desk:
    """One prompt, with the right ids and logits to compare with."""

    def __init__(self, source: WeightSource, tokenizer: Tokenizer, ids: list[int], new_tokens: int) -> None:
        self.source, self.tokenizer, self.ids = source, tokenizer, ids
        self.num_pages = 2 * pages_for(FORMER_TOKENS)  # two requests, in one of the mistakes
        self.dense = DenseSource(source)
        decoder = self._decoder(RIGHT, self.dense)
        passes = _count_passes(decoder)
        self.right_ids, self.right_logits = self._run(decoder, new_tokens, decoder.backend.argmax)
        self.right = self._described(RIGHT, self.right_ids, self.right_logits, sum(passes))

    def symptom(self, mistake: Mistake) -> Symptom:
        """What the mistake does on the way of the right text, and the text that it writes itself."""
        weights = self.dense if mistake.reader is RIGHT.reader else DenseSource(self.source, mistake.reader)
        decoder, right = self._decoder(mistake, weights), iter(self.right_ids)
        passes = _count_passes(decoder)
        _, logits = self._run(decoder, len(self.right_ids), lambda _: next(right))
        written = [decoder.backend.argmax(row) for row in logits]
        if written != self.right_ids:  # where it departs, it goes on with its own tokens
            decoder = self._decoder(mistake, weights)
            written, _ = self._run(decoder, len(self.right_ids), decoder.backend.argmax)
        return self._described(mistake, written, logits, sum(passes))

    def _decoder(self, mistake: Mistake, weights: WeightSource) -> Decoder:
        return exact_decoder(weights, self.tokenizer, self.num_pages, mistake)

    def _run(
        self, decoder: Decoder, new_tokens: int, choose: Callable[[Tensor], int]
    ) -> tuple[list[int], list[Tensor]]:
        """The chosen ids, and the logits of the known ids before each choice."""
        ids: list[int] = []
        rows: list[Tensor] = []
        while len(ids) < new_tokens:
            logits = decoder.step(ids[-1]) if ids else decoder.prefill(self.ids)
            rows.append(logits[: self.tokenizer.vocab_size])
            ids.append(choose(rows[-1]))
        return ids, rows

    def _described(self, mistake: Mistake, written: list[int], logits: list[Tensor], passes: int) -> Symptom:
        return Symptom(
            mistake=mistake.name,
            cause=mistake.cause,
            lab=mistake.lab,
            token_texts=tuple(self.tokenizer.token_text(token_id) for token_id in written),
            departs=next((at for at, token_id in enumerate(self.right_ids) if written[at] != token_id), None),
            differences=tuple(_difference(a, b) for a, b in zip(logits, self.right_logits, strict=True)),
            token_passes=passes,
        )


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
