"""Prefixes that were computed before: whole pages of K and V, found again by the tokens that they hold.

K and V of a token depend on every token before it, so a page is known only together with all pages before it: its key
is the hash of its 16 tokens and of the key of the page before. Two chains of tokens may have one hash, so the tokens
are compared too. The cache holds one reference to each of its pages; nobody writes into a page that is held twice.
"""

from __future__ import annotations

import collections.abc
from collections import OrderedDict
from dataclasses import dataclass
from math import inf

from lab_engine.errors import NanoqwenError, whole_number
from lab_engine.kv_pages import PAGE_SLOTS, KVCache, PageTable, Sequence

Tokens = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class KnownPage:
    """A full page: its tokens, its id, and the page before it (None for the first of a prompt)."""

    key: int
    tokens: Tokens
    page_id: int
    before: KnownPage | None


class PrefixCache:
    """The full pages of earlier prompts, for prompts that begin alike; `Decoder.prefix_cache` uses one.

    Several sequences of one KVCache may share its pages; it never gives up a page that a sequence holds.
    """

    def __init__(self, cache: KVCache) -> None:
        """Nothing is known yet; the pages are those of this cache."""
        self.cache = cache
        self._pages: OrderedDict[int, KnownPage] = OrderedDict()  # least recently used first, a page before its prefix

    def __len__(self) -> int:
        """Pages that are known."""
        return len(self._pages)

    @property
    def page_ids(self) -> tuple[int, ...]:
        """The ids of all known pages, the least recently used first."""
        return tuple(page.page_id for page in self._pages.values())

    @property
    def num_evictable(self) -> int:
        """Pages that `evict` can give up now: neither they nor pages after them are in use."""
        return len(self._evictable())

    def start(self, token_ids: collections.abc.Sequence[int]) -> Sequence:
        """A sequence that begins with the longest known prefix of token_ids, in whole pages; its length is a
        multiple of 16. At least the last token is left to compute, because only computing it gives logits.
        """
        known = self._known(_whole_pages(token_ids[:-1]))
        self._touch(known)
        for page in known:
            self.cache.pool.share(page.page_id)
        return Sequence(PageTable(page.page_id for page in known), len(known) * PAGE_SLOTS)

    def remember(self, sequence: Sequence, token_ids: collections.abc.Sequence[int]) -> None:
        """Keep the full pages of a sequence whose tokens are token_ids, one for each, K and V written.

        A page whose tokens are known with the same prefix is not kept twice. NanoqwenError for another number of ids.
        """
        if len(token_ids) != sequence.length:
            raise NanoqwenError(
                f"token_ids: found {len(token_ids)}, expected {sequence.length}: one for each token of the sequence"
            )
        pages = _whole_pages(token_ids)
        chain = self._known(pages)
        for number in range(len(chain), len(pages)):
            before = chain[-1] if chain else None
            key = chain_hash(before, pages[number])
            if key in self._pages:  # other tokens of the same hash: they were there first
                break
            page_id = sequence.page_table[number]
            self.cache.pool.share(page_id)
            self._pages[key] = KnownPage(key, pages[number], page_id, before)
            chain.append(self._pages[key])
        self._touch(chain)

    def evict(self, num_pages: int) -> int:
        """Give up to num_pages pages back to the pool, the least recently used first; returns how many they were.

        The end of a prefix goes before its beginning, and a page that a sequence holds stays.
        """
        if whole_number("num_pages", num_pages, -inf) <= 0:
            return 0
        evicted = self._evictable()[:num_pages]
        for page in evicted:
            del self._pages[page.key]
            self.cache.pool.release(page.page_id)
        return len(evicted)

    def _known(self, pages: list[Tokens]) -> list[KnownPage]:
        """The chain of known pages that hold these tokens, as far as it goes."""
        chain: list[KnownPage] = []
        for tokens in pages:
            before = chain[-1] if chain else None
            page = self._pages.get(chain_hash(before, tokens))
            if page is None or page.tokens != tokens or page.before is not before:
                break
            chain.append(page)
        return chain

    def _touch(self, chain: list[KnownPage]) -> None:
        """Mark pages as just used, the last first: so a page always stands before its prefix, and leaves before it."""
        for page in reversed(chain):
            self._pages.move_to_end(page.key)

    def _evictable(self) -> list[KnownPage]:
        """In the order in which they may go."""
        needed: set[KnownPage | None] = set()
        evictable = []
        for page in self._pages.values():
            if page in needed or self.cache.pool.ref_count(page.page_id) > 1:
                needed.add(page.before)
            else:
                evictable.append(page)
        return evictable


def chain_hash(before: KnownPage | None, tokens: Tokens) -> int:
    """The key of a page: a hash of its tokens and of the key of the page before it."""
    return hash((None if before is None else before.key, tokens))


def _whole_pages(token_ids: collections.abc.Sequence[int]) -> list[Tokens]:
    ids = [whole_number("token id", token_id) for token_id in token_ids]
    return [tuple(ids[start : start + PAGE_SLOTS]) for start in range(0, len(ids) - PAGE_SLOTS + 1, PAGE_SLOTS)]
