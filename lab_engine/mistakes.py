"""Decoders with one real mistake in them: the switches of lab 08's bug desk.

A mistake sits where it would in real code: in the reader of the weights, in the backend, in the attention, or in who
owns a page. Everything else is the decoder of `decoder.py`, in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lab_engine.attention_bugs import behaviour_of
from lab_engine.backends.torch import TorchBackend
from lab_engine.decoder import Attention, Decoder
from lab_engine.errors import whole_number
from lab_engine.int4 import dequantize, unpack_words
from lab_engine.int4_mistakes import INT4_MISTAKES, misread
from lab_engine.kv_pages import Sequence as CachedSequence
from lab_engine.kv_pages import pages_for
from lab_engine.paged_attention import paged_attention
from lab_engine.tokenizer import Tokenizer
from lab_engine.weights import Int4Matrix, WeightSource

FORMER_OWNER = """import json


def load_config(path):
    with open(path) as file:
        return json.load(file)


"""
"""What another request wrote before, again and again: slots without a token still hold its keys and values."""

FORMER_TOKENS = 80
"""The length of that text: its five pages are the first to be handed out again."""

OTHER_REQUEST = "import os\nimport sys\n\n\ndef main():\n"
"""What the other request writes once a page has two owners."""

FREED_AT = 24
"""Tokens in the cache when `freed_page` gives the last page back."""


def exact_decoder(
    source: WeightSource,
    tokenizer: Tokenizer,
    num_pages: int,
    mistake: Mistake | None = None,
) -> Decoder:
    """A float32 decoder, right or with a mistake; every page of its pool has had another owner.

    The pages of its next FORMER_TOKENS tokens hold that owner's text in order. A mistake that is `poisoned` finds NaN
    in all of them: what undefined memory may hold, and what makes that mistake visible.
    """
    mistake = mistake or RIGHT
    backend = mistake.backend(source.config, torch.float32)
    decoder = mistake.decoder(source, tokenizer, backend, num_pages=num_pages)
    Decoder.prefill(decoder, (tokenizer.encode(FORMER_OWNER) * FORMER_TOKENS)[:FORMER_TOKENS])
    data = decoder.cache.data
    data[:, :, :, pages_for(FORMER_TOKENS) :] = data[:, :, :, :1]
    if mistake.poisoned:
        data.fill_(math.nan)
    if mistake.attention_bug:
        decoder.attention = attention_with(mistake.attention_bug, mistake.num_splits)
    return decoder


def attention_with(bug: str | None, num_splits: int = 1) -> Attention:
    """paged_attention.py's attention with one of its bugs, in the form that `Decoder.attention` takes.

    NanoqwenError at once, not in the first step: an unknown bug, or less than one worker.
    """
    behaviour_of(bug)
    num_splits = whole_number("num_splits", num_splits, 1)

    def attend(q: Tensor, k_pages: Tensor, v_pages: Tensor, page_table: Tensor, length: int) -> Tensor:
        return paged_attention(q, k_pages, v_pages, page_table, length, bug, num_splits)[0]

    return attend


class UncheckedArgmax(TorchBackend):
    """Argmax as GPU kernels without a check do it: `x > best` is false for NaN, so a NaN never wins.

    Logits that are all NaN give token 0, which is "!" in the vocabulary of Qwen2.5: the text goes on as "!!!!".
    """

    def argmax(self, logits: Tensor) -> int:
        """The first of the largest logits that are numbers, or 0."""
        return int(torch.where(logits.isnan(), -math.inf, logits).argmax())


class FrozenStep(TorchBackend):
    """Every step takes position, slot, page table and length of the first one after the prompt: a bad capture."""

    _written: tuple[Tensor, Tensor, Tensor] | None = None
    _read: tuple[Tensor, int] | None = None

    def rope_and_append(
        self, qkv: Tensor, bias: Tensor, cos: Tensor, sin: Tensor, layer_data: Tensor, slots: Tensor
    ) -> Tensor:
        """Turn and write at the captured place."""
        if len(qkv) > 1:
            self._written = None
        else:
            cos, sin, slots = self._written = self._written or (cos, sin, slots)
        return super().rope_and_append(qkv, bias, cos, sin, layer_data, slots)

    def paged_attention(self, q: Tensor, k_pages: Tensor, v_pages: Tensor, page_table: Tensor, length: int) -> Tensor:
        """Read as far as the captured length."""
        if len(q) > 1:
            self._read = None
        else:
            page_table, length = self._read = self._read or (page_table.clone(), length)
        return super().paged_attention(q, k_pages, v_pages, page_table, length)


class FreedPage(Decoder):
    """At FREED_AT tokens the last page goes back to the pool while it is in use; another request gets it and writes."""

    _other: CachedSequence | None = None
    _other_token = 0

    def step(self, token_id: int) -> Tensor:
        """A step of this request, then one of the other."""
        logits = super().step(token_id)
        if self._other is not None:
            self._run_other([self._other_token])
        elif self.sequence.length == FREED_AT:
            self.cache.pool.release(self.sequence.page_table[-1])
            self._other = self.cache.new_sequence()
            self._run_other(self.tokenizer.encode(OTHER_REQUEST))
        return logits

    def _run_other(self, token_ids: list[int]) -> None:
        assert self._other is not None
        mine, self.sequence = self.sequence, self._other
        self._other_token = self.backend.argmax(self._forward(token_ids)[: self.tokenizer.vocab_size])
        self.sequence = mine


class NoCache(Decoder):
    """Every step runs the whole text again: right, and slower with every token."""

    _text: tuple[int, ...] = ()

    def prefill(self, token_ids: Sequence[int]) -> Tensor:
        """Remember the text."""
        self._text = tuple(token_ids)
        return super().prefill(token_ids)

    def step(self, token_id: int) -> Tensor:
        """A prefill in disguise."""
        return self.prefill((*self._text, token_id))


def misreader(mistake: str) -> Callable[[Int4Matrix], Tensor]:
    """A reader of packed weights with one of the mistakes of int4_mistakes.py."""

    def read(packed: Int4Matrix) -> Tensor:
        return dequantize(misread(unpack_words(packed.words), mistake), packed.scales)

    return read


@dataclass(frozen=True)
class Mistake:
    """A switch: its name, what went wrong in one line, the lab that opens it, and the part that is exchanged.

    attention_bug: a name of paged_attention.BUGS, with num_splits workers. poisoned: unused slots hold NaN.
    """

    name: str
    cause: str
    lab: str
    reader: Callable[[Int4Matrix], Tensor] = Int4Matrix.float
    backend: type[TorchBackend] = TorchBackend
    decoder: type[Decoder] = Decoder
    attention_bug: str | None = None
    num_splits: int = 1
    poisoned: bool = False


def attention_mistake(bug: str, num_splits: int = 1) -> Mistake:
    """The switch of any bug of paged_attention.BUGS, for `exact_decoder`; empty_split shows from 2 splits on.

    A decoder with it goes on where logits are NaN (see UncheckedArgmax). nan_in_v finds NaN in unused slots.
    """
    return Mistake(
        bug,
        behaviour_of(bug).cause,
        "05_paged_attention",
        backend=UncheckedArgmax,
        attention_bug=bug,
        num_splits=num_splits,
        poisoned=bug == "nan_in_v",
    )


DESK_BUGS = ("no_tail_mask", "mask_to_zero", "length_minus_one", "floor_pages", "no_rescale", "head_modulo")
"""The bugs of the attention that are switches of the desk; lab 05 has more."""

RIGHT = Mistake("none", "nothing", "")
MISTAKES = {
    mistake.name: mistake
    for mistake in (
        *(Mistake(name, cause, "01_int4", misreader(name)) for name, cause in INT4_MISTAKES.items()),
        Mistake(
            "frozen_step",
            "position, slot and length are those of the first step: a capture froze them",
            "07_graph_capture",
            backend=FrozenStep,
        ),
        Mistake(
            "freed_page",
            "a page went back to the pool while in use, and another request writes into it",
            "04_kv_pages",
            decoder=FreedPage,
        ),
        Mistake(
            "no_cache", "the cache is not used: every step runs the whole text again", "04_kv_pages", decoder=NoCache
        ),
        *(attention_mistake(bug) for bug in DESK_BUGS),
    )
}
"""Every switch of the desk by name."""
