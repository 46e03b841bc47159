"""Three real mistakes in a paged KV cache, run on the shipped model with two texts that are decoded in turns.

    floor_pages        the pages of a sequence are counted with // 16: the tail is never read
    double_free        a page goes back to the pool twice, so the free list hands it out twice
    shared_half_page   a fork writes into a half-filled page that the other one holds too

All three leave every number finite and every index in range: only the text is wrong. Everything runs in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from lab_engine import SHIPPED_MODEL, data_path
from lab_engine.backends.torch import TorchBackend
from lab_engine.decoder import Decoder
from lab_engine.errors import NanoqwenError
from lab_engine.kv_pages import PAGE_SLOTS, KVCache, PagePool, Sequence, pages_for
from lab_engine.kv_turns import NAMES, PageState, Turns, Write
from lab_engine.loading import open_source
from lab_engine.mistakes import attention_with
from lab_engine.running_example import RUNNING_EXAMPLE
from lab_engine.tokenizer import Tokenizer
from lab_engine.weights import DenseSource, WeightSource


class CarelessPool(PagePool):
    """A pool whose `release` lacks one line: the refusal of an id that is free already."""

    def release(self, page_id: int) -> None:
        """Count one holder less; an id without a holder goes into the free list, also when it stands there already."""
        self._ref_counts[page_id] = max(0, self._ref_counts[page_id] - 1)
        if not self._ref_counts[page_id]:
            self._free.append(page_id)


class SharingCache(KVCache):
    """A cache whose `append` lacks one line: a tail that others hold is copied first. A fork shares ids, not content.

    Without the copy the next token of each fork goes to the same slot, and the second write wins for both.
    """

    def append(self, sequence: Sequence, num_tokens: int = 1) -> list[int]:
        """Make room for num_tokens more tokens, in the tail of both if there is one."""
        sequence.length += num_tokens
        taken = [self.pool.take() for _ in range(pages_for(sequence.length) - len(sequence.page_table))]
        for page_id in taken:
            sequence.page_table.append(page_id)
        return taken


def _never_read_the_tail(decoder: Decoder) -> None:
    decoder.attention = attention_with("floor_pages")


def _free_twice(decoder: Decoder) -> None:
    """A request ends, and its clean-up, which kept the ids, releases them once more."""
    right = decoder.cache.pool
    pool = decoder.cache.pool = CarelessPool(right.num_pages, right.free_ids, right.bytes_per_id)
    decoder.prefill(decoder.tokenizer.encode(FORMER_REQUEST))
    page_ids = list(decoder.sequence.page_table)
    decoder.cache.free(decoder.sequence)
    for page_id in page_ids:
        pool.release(page_id)


def _share_the_tail(decoder: Decoder) -> None:
    right = decoder.cache
    order = right.pool.free_ids
    decoder.cache = SharingCache(decoder.config, len(order), right.data.dtype, free_order=order)
    decoder.sequence = decoder.cache.new_sequence()


FORMER_REQUEST = "import os\nimport sys\n"
"""What the ended request of `double_free` was about: one page."""

STACK = "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def"


@dataclass(frozen=True)
class KVMistake:
    """A mistake and two texts that show it.

    prompts: one for each sequence, or a single one that is forked; follow: what each is fed after it; install puts the
    mistake into a right decoder.
    """

    name: str
    cause: str
    prompts: tuple[str, ...]
    install: Callable[[Decoder], None]
    new_tokens: int
    follow: tuple[str, str] = ("", "")


KV_MISTAKES = {
    mistake.name: mistake
    for mistake in (
        KVMistake(
            "floor_pages",
            "the number of pages is rounded down, so the tail is never read",
            (
                f"{STACK} push(self, item):\n        self.items.append(item)\n\n    def pop(self):\n"
                "        return self.items.pop()\n\n    def peek",
                "def add(a, b):\n    return a + b\n\n\ndef sub(a, b):\n    return a - b\n\n\ndef mul(a, b):\n   ",
            ),
            _never_read_the_tail,
            new_tokens=16,
        ),
        KVMistake(
            "double_free",
            "a page was released twice, so it stands in the free list twice and gets two owners",
            ("class Stack:\n", "class Account:\n"),
            _free_twice,
            new_tokens=22,
        ),
        KVMistake(
            "shared_half_page",
            "a fork writes into a half-filled page that the other one holds too",
            (STACK,),
            _share_the_tail,
            new_tokens=24,
            follow=(" push", " pop"),
        ),
    )
}
"""Every mistake by name. The prompts of `floor_pages` have 48 and 32 tokens: whole pages, read rightly."""


@dataclass(frozen=True)
class BrokenText:
    """What one sequence was to write and what it wrote.

    fed: the text after a common prompt. right, wrong: the new tokens as text; departs: the first new token that is
    wrong, or None. page_table, length and read (the tokens that attention reads) are those at the trace's moment.
    margin: the smallest gap of two best logits on the way of both texts.
    """

    name: str
    prompt: str
    fed: str
    right: tuple[str, ...]
    wrong: tuple[str, ...]
    departs: int | None
    page_table: tuple[int, ...]
    length: int
    read: int
    margin: float


@dataclass(frozen=True)
class KVMistakeTrace:
    """One mistake and both texts. moment: new tokens that each had when the first wrong one came; pages: at it.

    same_text: whether both wrote the same wrong text to the end.
    """

    mistake: str
    cause: str
    moment: int
    texts: tuple[BrokenText, BrokenText]
    pages: tuple[PageState, ...]

    @property
    def same_text(self) -> bool:
        """Whether both sequences wrote the same text."""
        return self.texts[0].wrong == self.texts[1].wrong

    @property
    def overwritten(self) -> tuple[tuple[int, int, Write, Write], ...]:
        """(page id, slot, the write that was lost, the one that stands there) for every slot that two wrote."""
        return tuple(
            (page.page_id, slot, *writes)
            for page in self.pages
            for slot, writes in enumerate(page.slots)
            if len(writes) == 2
        )


def trace_kv_mistake(name: str, follow: tuple[str, str] | None = None) -> KVMistakeTrace:
    """Run the shipped model with and without a mistake (see KV_MISTAKES); the same on every machine.

    follow: other texts to feed to the two forks of `shared_half_page`; equal ones hide the mistake.
    """
    if name not in KV_MISTAKES:
        raise NanoqwenError(f"mistake {name!r}: expected one of {', '.join(KV_MISTAKES)}")
    mistake = KV_MISTAKES[name]
    source, tokenizer = open_source(data_path(SHIPPED_MODEL))
    weights = DenseSource(source)
    right, wrong = _decoder(weights, tokenizer), _decoder(weights, tokenizer)
    mistake.install(wrong)
    follow = follow or mistake.follow
    runs = (Turns(one, mistake.prompts, follow, mistake.new_tokens) for one in (right, wrong))
    return _described(mistake, follow, tokenizer, *runs)


def _decoder(weights: WeightSource, tokenizer: Tokenizer) -> Decoder:
    example, backend = RUNNING_EXAMPLE, TorchBackend(weights.config, torch.float32)
    return Decoder(weights, tokenizer, backend, num_pages=example.num_pages, page_order=example.page_order)


def _described(
    mistake: KVMistake, follow: tuple[str, str], tokenizer: Tokenizer, right: Turns, wrong: Turns
) -> KVMistakeTrace:
    departs = [
        next((at for at, (a, b) in enumerate(zip(*pair, strict=True)) if a != b), None)
        for pair in zip(right.ids, wrong.ids, strict=True)
    ]
    moment = min((at for at in departs if at is not None), default=mistake.new_tokens - 1)
    books = wrong.rounds[moment]
    prompts = mistake.prompts * (2 // len(mistake.prompts))

    def text(at: int) -> BrokenText:
        length = books.lengths[at]
        return BrokenText(
            name=NAMES[at],
            prompt=prompts[at],
            fed=follow[at],
            right=tuple(map(tokenizer.token_text, right.ids[at])),
            wrong=tuple(map(tokenizer.token_text, wrong.ids[at])),
            departs=departs[at],
            page_table=books.tables[at],
            length=length,
            read=length // PAGE_SLOTS * PAGE_SLOTS if mistake.name == "floor_pages" else length,
            margin=min(right.margins[at], wrong.margins[at]),
        )

    return KVMistakeTrace(mistake.name, mistake.cause, moment, (text(0), text(1)), books.pages)
