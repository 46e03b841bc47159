"""The running example of every lab: one prompt, 56 tokens, four pages whose ids are out of order.

With the table [0, 1, 2, 3] the usual mistakes (page number for page id) would stay invisible.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lab_engine.decoder import Decoder
    from lab_engine.decoder_trace import GenerationTrace


@dataclass(frozen=True)
class RunningExample:
    """A prompt, how many tokens it is continued to in the cache, and the order of the pool's free list."""

    prompt: str
    num_tokens: int
    num_pages: int
    page_order: tuple[int, ...]

    @property
    def page_table(self) -> tuple[int, ...]:
        """The page ids that num_tokens tokens take, in logical order."""
        return self.page_order[: -(-self.num_tokens // 16)]


RUNNING_EXAMPLE = RunningExample(
    prompt="class Stack:\n",
    num_tokens=56,
    num_pages=16,
    page_order=(5, 9, 2, 12, 7, 0, 14, 3, 10, 1, 13, 6, 15, 4, 11, 8),
)


def running_decoder(example: RunningExample = RUNNING_EXAMPLE) -> Decoder:
    """The shipped model in exact float32, with a pool that hands out pages in the example's order.

    The INT4 weights are made dense once: the same bits in every product, without unpacking them in every step.
    """
    import torch

    from lab_engine import SHIPPED_MODEL, data_path
    from lab_engine.backends import make_backend
    from lab_engine.decoder import Decoder
    from lab_engine.loading import open_source
    from lab_engine.weights import DenseSource

    path = data_path(SHIPPED_MODEL)
    source, tokenizer = open_source(path)
    backend = make_backend("torch", source.config, torch.float32)
    return Decoder(DenseSource(source), tokenizer, backend, path.stem, example.num_pages, example.page_order)


def trace_running_example(example: RunningExample = RUNNING_EXAMPLE) -> GenerationTrace:
    """The example continued greedily until its tokens are in the cache; the same on every machine."""
    from lab_engine.decoder_trace import trace_generation

    return trace_generation(running_decoder(example), example.prompt, example.num_tokens)
