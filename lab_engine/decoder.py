"""The decoder: from token ids to logits, once for a prompt (prefill) and once a token (step).

    embed -> for each layer: qkv -> attention -> o -> gate_up -> down -> lm_head

The residual stream x is float32 (tokens, hidden_size). The past lies in the paged KV cache: a pass first takes the
slots of its tokens, then every layer writes K and V there and reads the whole sequence back through the page table.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterator, Sequence
from operator import index

import torch
from torch import Tensor

from lab_engine.backends import Backend
from lab_engine.config import ModelConfig
from lab_engine.errors import NanoqwenError, PromptError, counted
from lab_engine.kv_pages import PAGE_SLOTS, KVCache, pages_for
from lab_engine.prefix_cache import PrefixCache
from lab_engine.reference import rope_tables
from lab_engine.tokenizer import Tokenizer
from lab_engine.weights import Weights, WeightSource, gather_weights

STAGES = ("embed", "qkv", "attention", "o", "gate_up", "down", "lm_head")
"""The stages of a pass, in order; qkv to down are run once a layer. Timer, trace and charts use these names."""

PREFILL_TOKENS = 1024
"""A longer prompt goes through the layers in pieces of this many tokens, which bounds the memory of a pass."""

DEFAULT_CACHE_TOKENS = 32768
"""The default cache holds no more than this, whatever positions a model claims: 1.75 GiB for the 7B."""

Attention = Callable[[Tensor, Tensor, Tensor, Tensor, int], Tensor]
"""(q, k_pages, v_pages, page_table, length) -> output; shapes as Backend.paged_attention."""

Observer = Callable[[str, int | None, Tensor], None]
"""Called as observer(stage, layer, output of the stage) after each stage of a pass."""


class Decoder:
    """A model, its cache, and the one sequence that it drives.

    `attention` and `observer` may be replaced: another attention is any function of the same shape, and an observer
    sees every stage's output. The cache holds any number of other sequences beside the current one. With
    `prefix_cache = PrefixCache(decoder.cache)` a prompt begins with the pages of earlier prompts that began alike.
    """

    def __init__(
        self,
        source: WeightSource,
        tokenizer: Tokenizer,
        backend: Backend,
        model_name: str = "model",
        num_pages: int | None = None,
        page_order: Sequence[int] | None = None,
    ) -> None:
        """Load the weights into the backend and reserve the cache.

        num_pages: default one sequence of all positions, at most DEFAULT_CACHE_TOKENS; memory is only reserved.
        """
        self.config: ModelConfig = source.config
        self.tokenizer = tokenizer
        self.backend = backend
        self.model_name = model_name
        self.weights: Weights = gather_weights(source, backend)
        if num_pages is None:
            num_pages = pages_for(min(self.config.max_positions, DEFAULT_CACHE_TOKENS))
        self.cache = KVCache(self.config, num_pages, backend.dtype, backend.device, page_order)
        self.sequence = self.cache.new_sequence()
        self.attention: Attention = backend.paged_attention
        self.observer: Observer | None = None
        self.prefix_cache: PrefixCache | None = None
        self._cos, self._sin = rope_tables(self.config, min(self.config.max_positions, num_pages * PAGE_SLOTS))

    def prefill(self, token_ids: Sequence[int]) -> Tensor:
        """Run a prompt as a new sequence, freeing the one before; logits of its last token, float32 (vocab_size,).

        With a prefix cache only what follows the longest known prefix is run, and the whole prompt is known then.
        """
        token_ids = self._check_tokens(token_ids)
        if not token_ids:
            raise PromptError("prompt: found 0 tokens, expected at least 1")
        prefixes = self._known_prefixes()
        self._restart()
        if prefixes is not None:
            self.sequence = prefixes.start(token_ids)
        most = self.sequence.length + self.room()
        if len(token_ids) > most:
            self._restart()
            raise PromptError(
                f"prompt: found {counted(len(token_ids), 'token')}, expected at most {most}: the model has "
                f"{self.config.max_positions} positions, the pool {counted(self._num_available(), 'free page')} of 16"
            )
        for start in range(self.sequence.length, len(token_ids), PREFILL_TOKENS):
            logits = self._forward(token_ids[start : start + PREFILL_TOKENS])
        if prefixes is not None:
            prefixes.remember(self.sequence, token_ids)
        return logits

    def step(self, token_id: int) -> Tensor:
        """Feed one more token of the current sequence; logits of what follows it, float32 (vocab_size,)."""
        if not self.sequence.length:
            raise PromptError("step: there is no sequence yet; call prefill first")
        token_ids = self._check_tokens([token_id])
        if not self.room():
            raise PromptError(f"step: the sequence has {self.sequence.length} tokens, and there is room for no more")
        return self._forward(token_ids)

    def generate(
        self,
        token_ids: Sequence[int],
        max_new_tokens: int = 256,
        stop_token_ids: frozenset[int] | None = None,
        sampler: Callable[[Tensor], int] | None = None,
    ) -> Iterator[int]:
        """Yield new tokens until a stop token (not yielded) or max_new_tokens; greedy unless a sampler is given.

        Prompt and count are checked before the first token. Only ids that the tokenizer knows are chosen (Qwen2.5
        pads its embedding). Generation ends early when the model's positions or the pages do; the last token
        yielded is not fed back: nobody would read its logits.
        """
        if not isinstance(max_new_tokens, int) or max_new_tokens < 0:
            raise PromptError(f"max_new_tokens: found {max_new_tokens!r}, expected a whole number, 0 or more")
        logits = self.prefill(token_ids)
        stop = self.tokenizer.stop_token_ids if stop_token_ids is None else stop_token_ids
        return self._continue(logits, max_new_tokens, stop, sampler or self.backend.argmax)

    def _continue(
        self, logits: Tensor, max_new_tokens: int, stop: frozenset[int], choose: Callable[[Tensor], int]
    ) -> Iterator[int]:
        sequence = self.sequence
        for count in range(1, max_new_tokens + 1):
            token_id = choose(logits[: self.tokenizer.vocab_size])
            if token_id in stop:
                return
            yield token_id
            if count == max_new_tokens or self.room() == 0:
                return
            if self.sequence is not sequence:
                raise PromptError("generate: another prompt has replaced this one; finish one text before the next")
            logits = self.step(token_id)

    def room(self) -> int:
        """Tokens that the current sequence can still take, by the model's positions and the pages.

        Pages that only the prefix cache holds count as free: it gives them up when they are needed.
        """
        by_pages = self.cache.room(self.sequence, self._num_available())
        return min(self.config.max_positions - self.sequence.length, by_pages)

    def _num_available(self) -> int:
        """Pages that are free, or that the prefix cache would give up."""
        prefixes = self._known_prefixes()
        return self.cache.pool.num_free + (prefixes.num_evictable if prefixes is not None else 0)

    def _known_prefixes(self) -> PrefixCache | None:
        """The prefix cache, if one is set; one of another cache is refused: its page ids name other memory."""
        if self.prefix_cache is not None and self.prefix_cache.cache is not self.cache:
            raise NanoqwenError(
                "prefix_cache: knows pages of another cache; set decoder.prefix_cache = PrefixCache(decoder.cache)"
            )
        return self.prefix_cache

    def _check_tokens(self, token_ids: Sequence[int]) -> list[int]:
        try:
            checked = [index(token_id) for token_id in token_ids]
        except TypeError:
            raise PromptError(f"token ids: found {reprlib.repr(token_ids)}, expected a list of whole numbers") from None
        for token_id in checked:
            if not 0 <= token_id < self.config.vocab_size:
                raise PromptError(f"token id {token_id}: expected 0 to {self.config.vocab_size - 1}")
        return checked

    def _forward(self, token_ids: list[int]) -> Tensor:
        """One pass of T tokens through the model; a pass that fails half-way ends the sequence."""
        try:
            with torch.inference_mode():
                logits = self._run(token_ids)
        except BaseException:
            self._restart()
            raise
        return logits.clone()  # an ordinary tensor, which a sampler may change in place

    def _restart(self) -> None:
        if not self.sequence.freed:
            self.cache.free(self.sequence)
        self.sequence = self.cache.new_sequence()

    def _run(self, token_ids: list[int]) -> Tensor:
        ops, eps, count = self.backend, self.config.rms_norm_eps, len(token_ids)
        start = self.sequence.length
        if self.prefix_cache is not None:
            self.prefix_cache.evict(self.cache.pages_needed(self.sequence, count) - self.cache.pool.num_free)
        self.cache.append(self.sequence, count)
        slots = self.cache.slots(self.sequence, start, count)
        page_table = self.sequence.page_table.tensor().to(self.backend.device)
        cos, sin = (table[start : start + count, None] for table in (self._cos, self._sin))

        x = ops.embed(self.weights.embed, torch.tensor(token_ids, device=self.backend.device))
        self._observe("embed", None, x)
        for i, layer in enumerate(self.weights.layers):
            k_pages, v_pages = self.cache.data[i]
            h = ops.rms_norm(x, layer.input_norm, eps)
            qkv = ops.linear(h, layer.qkv)
            q = ops.rope_and_append(qkv, layer.qkv_bias, cos, sin, self.cache.data[i], slots)
            self._observe("qkv", i, qkv)
            attended = self.attention(q, k_pages, v_pages, page_table, self.sequence.length)
            self._observe("attention", i, attended)
            x = x + ops.linear(attended.reshape(count, -1).to(ops.dtype), layer.o)
            self._observe("o", i, x)
            h = ops.rms_norm(x, layer.post_attention_norm, eps)
            gated = ops.silu_mul(ops.linear(h, layer.gate_up))
            self._observe("gate_up", i, gated)
            x = x + ops.linear(gated, layer.down)
            self._observe("down", i, x)
        logits = ops.logits(ops.rms_norm(x[-1:], self.weights.norm, eps), self.weights.lm_head)
        self._observe("lm_head", None, logits)
        return logits

    def _observe(self, stage: str, layer: int | None, output: Tensor) -> None:
        if self.observer is not None:
            self.observer(stage, layer, output)
