"""Two texts that are decoded in turns on one cache: their tokens, who wrote which slot, and the books of each round.

The two have prompts of their own, or they are forks of one prompt that are fed different tokens after it.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from lab_engine.decoder import Decoder
from lab_engine.kv_pages import PAGE_SLOTS, Sequence

NAMES = ("A", "B")
BOTH = "AB"
"""Who wrote the common past of two forks."""


@dataclass(frozen=True)
class Write:
    """One token's K and V, put into a slot: by which sequence (A, B, or AB before a fork), the token's place in it."""

    sequence: str
    token: int
    text: str


@dataclass(frozen=True)
class PageState:
    """One page in use. count: the pool's reference count; holders: the sequences whose table names it.

    slots: 16 tuples of the writes into each slot, first one first; all but the last one of a slot are lost.
    """

    page_id: int
    count: int
    holders: tuple[str, ...]
    slots: tuple[tuple[Write, ...], ...]


@dataclass(frozen=True)
class Round:
    """The books when both have chosen a token and not fed it yet: tables and lengths of both, every page in use."""

    tables: tuple[tuple[int, ...], ...]
    lengths: tuple[int, ...]
    pages: tuple[PageState, ...]


class Turns:
    """Greedy decoding of two sequences, A first in each round. ids and margins (smallest top-2 gap) run over both."""

    def __init__(self, decoder: Decoder, prompts: tuple[str, ...], follow: tuple[str, str], new_tokens: int) -> None:
        """prompts: two, or one that is forked; follow: what each fork is fed after it, token by token in turns."""
        self._decoder = decoder
        self._writes: dict[tuple[int, int], list[Write]] = {}
        self._sequences: list[Sequence] = []
        self._logits: list[Tensor] = []
        self.ids: tuple[list[int], list[int]] = ([], [])
        self.margins = [float("inf")] * 2
        self.rounds: list[Round] = []
        for name, prompt in zip(NAMES if len(prompts) > 1 else [BOTH], prompts, strict=True):
            self._prefill(name, prompt)
        if len(prompts) == 1:
            self._fork(follow)
        for _ in range(new_tokens):
            self._take_turns()

    def _prefill(self, name: str, prompt: str) -> None:
        decoder = self._decoder
        token_ids = decoder.tokenizer.encode(prompt)
        decoder.sequence = decoder.cache.new_sequence()  # else the prefill would free the other one
        self._logits.append(decoder.prefill(token_ids))
        self._sequences.append(decoder.sequence)
        self._remember(name, decoder.sequence, token_ids)

    def _fork(self, follow: tuple[str, str]) -> None:
        self._sequences.append(self._decoder.cache.fork(self._sequences[0]))
        self._logits *= 2
        fed = [self._decoder.tokenizer.encode(text) for text in follow]
        for turn in range(max(map(len, fed))):
            for at in (0, 1):
                if turn < len(fed[at]):
                    self._feed(at, fed[at][turn])

    def _take_turns(self) -> None:
        """One more token of both; those of the round before are fed first."""
        for at in (0, 1):
            if self.ids[at]:
                self._feed(at, self.ids[at][-1])
        for at in (0, 1):
            known = self._logits[at][: self._decoder.tokenizer.vocab_size]
            first, second = known.topk(2).values.tolist()
            self.ids[at].append(self._decoder.backend.argmax(known))
            self.margins[at] = min(self.margins[at], first - second)
        self.rounds.append(self._round())

    def _feed(self, at: int, token_id: int) -> None:
        sequence = self._decoder.sequence = self._sequences[at]
        self._logits[at] = self._decoder.step(token_id)
        self._remember(NAMES[at], sequence, [token_id])

    def _remember(self, name: str, sequence: Sequence, token_ids: list[int]) -> None:
        for token, token_id in enumerate(token_ids, sequence.length - len(token_ids)):
            write = Write(name, token, self._decoder.tokenizer.token_text(token_id))
            self._writes.setdefault(sequence.locate(token), []).append(write)

    def _round(self) -> Round:
        tables = tuple(tuple(sequence.page_table) for sequence in self._sequences)
        pages = tuple(self._page(page_id, tables) for page_id in dict.fromkeys(sum(tables, ())))
        return Round(tables, tuple(sequence.length for sequence in self._sequences), pages)

    def _page(self, page_id: int, tables: tuple[tuple[int, ...], ...]) -> PageState:
        holders = tuple(name for name, table in zip(NAMES, tables, strict=True) if page_id in table)
        slots = tuple(tuple(self._writes.get((page_id, slot), ())) for slot in range(PAGE_SLOTS))
        return PageState(page_id, self._decoder.cache.pool.ref_count(page_id), holders, slots)
