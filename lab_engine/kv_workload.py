"""Five hundred requests come and go: what a paged cache takes for them, and what a contiguous one would reserve.

The requests go through the allocator of kv_pages.py step by step; only the tensor behind it is left out (device
"meta"). A contiguous cache reserves the longest possible text for every request that is being served. Both serve the
same requests in the same steps, so that nothing but the memory differs, even where it would not be enough.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch

from lab_engine.bench.models import QWEN_7B
from lab_engine.config import ModelConfig
from lab_engine.errors import NanoqwenError
from lab_engine.kv_pages import PAGE_SLOTS, KVCache, pages_for
from lab_engine.kv_pages import Sequence as CachedSequence

LONGEST = 2048
"""The most tokens of a request: prompt and answer together."""

MEAN_GAP = 10.0
"""Steps between two arrivals, on average."""

MAX_RUNNING = 64
"""Requests that are served at once; others wait."""

BUDGET_BYTES = 76 * 10**9
"""Memory for the cache: 80 GB less 4 GB for the INT4 weights of the 7B."""


@dataclass(frozen=True)
class Request:
    """When it arrives (a step), the tokens of its prompt, and how many it gets, 1 or more.

    The last new token is not fed back, so prompt_tokens + new_tokens - 1 tokens lie in the cache at the end.
    """

    arrival: int
    prompt_tokens: int
    new_tokens: int

    @property
    def cached_tokens(self) -> int:
        """Tokens in the cache at the end."""
        return self.prompt_tokens + self.new_tokens - 1


@dataclass(frozen=True)
class StepUse:
    """A step: requests being served and waiting, tokens in the cache, and page ids that hold them."""

    running: int
    waiting: int
    tokens: int
    page_ids: int

    def slots(self, contiguous: int | None = None) -> int:
        """Tokens that there is memory for: in pages, or in a contiguous cache of so many tokens a request."""
        return self.page_ids * PAGE_SLOTS if contiguous is None else self.running * contiguous


@dataclass(frozen=True)
class Workload:
    """The requests, and every step from 0 to the last answer. bytes_per_token: K and V of a token in all layers."""

    requests: tuple[Request, ...]
    steps: tuple[StepUse, ...]
    bytes_per_token: int

    def windows(self, num_steps: int) -> Iterator[tuple[int, tuple[StepUse, ...]]]:
        """(first step, the steps) of one stretch of num_steps after the other; the last may be shorter."""
        for start in range(0, len(self.steps), num_steps):
            yield start, self.steps[start : start + num_steps]

    def wasted_bytes(self, steps: Sequence[StepUse], contiguous: int | None = None) -> float:
        """Bytes that are reserved and hold no token, on average over these steps."""
        return self.bytes_per_token * sum(step.slots(contiguous) - step.tokens for step in steps) / len(steps)

    def waste(self, contiguous: int | None = None) -> float:
        """The share of all reserved bytes that hold no token, over the whole time."""
        return _waste(sum(step.tokens for step in self.steps), sum(step.slots(contiguous) for step in self.steps))


def arrivals(seed: int = 0, count: int = 500) -> tuple[Request, ...]:
    """Poisson arrivals: the gaps are exponential, MEAN_GAP steps on average; the same for a seed on every machine.

    Tokens in the cache at the end: uniform from 1 to LONGEST. Of these the prompt is uniform from 1 to all.
    """
    generator = random.Random(seed)
    time, requests = 0.0, []
    for _ in range(count):
        time += generator.expovariate(1 / MEAN_GAP)
        cached = generator.randint(1, LONGEST)
        prompt = generator.randint(1, cached)
        requests.append(Request(int(time), prompt, cached - prompt + 1))
    return tuple(requests)


def serve(requests: Iterable[Request], max_running: int = MAX_RUNNING, config: ModelConfig = QWEN_7B) -> Workload:
    """Serve requests in the order of their arrival, at most max_running at once; a step gives each one token.

    A request begins with its whole prompt in the first step that has a place for it and leaves with its last token.
    NanoqwenError for a request without a prompt or without a new token, and for no place at all.
    """
    requests = tuple(requests)
    if max_running < 1:
        raise NanoqwenError(f"max_running: found {max_running}, expected 1 or more")
    for request in requests:
        if request.prompt_tokens < 1 or request.new_tokens < 1:
            raise NanoqwenError(f"{request}: expected at least 1 prompt token and 1 new token")
    longest = max((request.cached_tokens for request in requests), default=1)
    cache = KVCache(config, max_running * pages_for(longest), torch.bfloat16, "meta")
    coming = deque(sorted(requests, key=lambda request: request.arrival))
    waiting: deque[Request] = deque()
    running: dict[CachedSequence, Request] = {}
    steps: list[StepUse] = []
    while coming or waiting or running:
        while coming and coming[0].arrival <= len(steps):
            waiting.append(coming.popleft())
        cache.append_each(list(running))
        while waiting and len(running) < max_running:
            sequence = cache.new_sequence()
            running[sequence] = waiting.popleft()
            cache.append(sequence, running[sequence].prompt_tokens)
        tokens = sum(sequence.length for sequence in running)
        steps.append(StepUse(len(running), len(waiting), tokens, cache.pool.num_used))
        _leave(cache, running)
    return Workload(requests, tuple(steps), cache.bytes_per_token)


def final_waste(requests: Sequence[Request], contiguous: int | None = None) -> float:
    """The share of the reserved bytes that hold no token if all requests lay in the cache at once, at their end."""
    lengths = [request.cached_tokens for request in requests]
    slots = [pages_for(length) * PAGE_SLOTS if contiguous is None else contiguous for length in lengths]
    return _waste(sum(lengths), sum(slots))


def served_at_once(
    tokens: int, contiguous: int | None = None, budget_bytes: int = BUDGET_BYTES, config: ModelConfig = QWEN_7B
) -> int:
    """How many requests of so many tokens a budget holds, in pages, or in contiguous caches of so many tokens."""
    if tokens < 1:
        raise NanoqwenError(f"tokens: found {tokens}, expected 1 or more")
    if contiguous is not None and contiguous < tokens:
        raise NanoqwenError(
            f"tokens: found {tokens}, expected at most {contiguous}, the length of the contiguous cache"
        )
    cache = KVCache(config, 1, torch.bfloat16, "meta")
    if contiguous is not None:
        return budget_bytes // (contiguous * cache.bytes_per_token)
    return budget_bytes // cache.pool.bytes_per_id // pages_for(tokens)


def _leave(cache: KVCache, running: dict[CachedSequence, Request]) -> None:
    """Free the sequences that have all their tokens."""
    for sequence in [one for one, request in running.items() if one.length == request.cached_tokens]:
        cache.free(sequence)
        del running[sequence]


def _waste(tokens: int, slots: int) -> float:
    return 1 - tokens / slots if slots else 0.0
