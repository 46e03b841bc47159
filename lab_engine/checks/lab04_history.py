"""What lab 04's append is fed: a pool with sequences as they came to be, some appends, and what they all hold then."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lab_engine.checks.values import describe
from lab_engine.errors import OutOfPages
from lab_engine.kv_pages import PAGE_SLOTS, Sequence
from lab_engine.running_example import RUNNING_EXAMPLE
from lab_engine.value_pages import ValuePool

Append = Callable[[ValuePool, Sequence, object], Any]

NO_PAGE = "–"
"""Stands for the value of a token whose page is in no table."""


@dataclass(frozen=True)
class History:
    """A pool of num_pages; sequences with so many tokens; forks of a; which are freed again; who appends, in order.

    cut: to so many tokens a is truncated, after the forks.
    """

    num_pages: int
    tokens: dict[str, int]
    forks: str = ""
    freed: str = ""
    cut: int | None = None
    appends: str = ""

    @property
    def before(self) -> str:
        """In words, what was there: `pool of 8 pages · a: 20 tokens · b: fork of a`."""
        parts = [f"pool of {self.num_pages} page{'s' if self.num_pages > 1 else ''}"]
        parts += [f"{name}: {count} tokens" for name, count in self.tokens.items()]
        parts += [f"{name}: fork of a" for name in self.forks]
        parts += [f"{name} freed" for name in self.freed]
        parts += [f"a cut to {self.cut} tokens"] if self.cut is not None else []
        return " · ".join(parts)

    @property
    def then(self) -> str:
        """In words, what is appended: `A20 to a · B20 to b`, the ends alone of a long list."""
        lengths = {**self.tokens, **dict.fromkeys(self.forks, self.tokens["a"])}
        if self.cut is not None:
            lengths["a"] = self.cut
        parts = []
        for name in self.appends:
            parts.append(f"{_value(name, lengths[name])} to {name}")
            lengths[name] += 1
        return " · ".join(parts if len(parts) <= 4 else [*parts[:2], "…", parts[-1]])


@dataclass(frozen=True)
class Held:
    """One sequence after all appends: what its table names, and what is read through it."""

    length: int
    page_ids: tuple[int, ...]
    values: tuple[str, ...]
    ref_counts: tuple[int, ...]


@dataclass(frozen=True)
class State:
    """All sequences, the values that found no page, and what is counted for ids that stand in no table.

    broken: why the play stopped early, because a sequence can no longer be read or did not grow.
    """

    held: dict[str, Held] = field(default_factory=dict)
    refused: tuple[str, ...] = ()
    lost: dict[int, int] = field(default_factory=dict)
    broken: str = ""


def replayed(function: Append, solution: Append) -> Callable[[History], State]:
    """Plays a history: what was there before by the solution, the appends by the function."""

    def run(history: History) -> State:
        pool, sequences = _begun(history, solution)
        refused = []
        for name in history.appends:
            sequence = sequences[name]
            before, value = sequence.length, _value(name, sequence.length)
            try:
                function(pool, sequence, value)
            except OutOfPages:
                refused.append(value)
            broken = _broken(name, sequence, pool)
            if not broken and value not in refused and sequence.length != before + 1:
                broken = f"the length of {name} is {sequence.length}; expected {before + 1}"
            if broken:
                return State(broken=f"after {value} was appended, {broken}")
        held = {name: _held(pool, sequence) for name, sequence in sequences.items()}
        named = {page_id for one in held.values() for page_id in one.page_ids}
        lost = {page_id: pool.ref_count(page_id) for page_id in range(pool.num_pages) if page_id not in named}
        return State(held, tuple(refused), {page_id: count for page_id, count in lost.items() if count})

    return run


def _value(name: str, token: int) -> str:
    """The value of a sequence's token: A20 is token 20 of a."""
    return f"{name.upper()}{token}"


def _begun(history: History, solution: Append) -> tuple[ValuePool, dict[str, Sequence]]:
    order = [page_id for page_id in RUNNING_EXAMPLE.page_order if page_id < history.num_pages]
    pool = ValuePool(history.num_pages, order)
    sequences = {name: Sequence() for name in history.tokens}
    for name, count in history.tokens.items():
        for token in range(count):
            solution(pool, sequences[name], f"{name}{token}")
    sequences |= {name: pool.fork(sequences["a"]) for name in history.forks}
    for name in history.freed:
        pool.free(sequences.pop(name))
    if history.cut is not None:
        sequences["a"].length = history.cut
    return pool, sequences


def _broken(name: str, sequence: Sequence, pool: ValuePool) -> str:
    """What keeps a sequence from being read, or an empty string."""
    if type(sequence.length) is not int or sequence.length < 0:
        return f"the length of {name} is {describe(sequence.length)}; expected a count, an int"
    for page_id in sequence.page_table:
        if type(page_id) is not int or not 0 <= page_id < pool.num_pages:
            found = page_id if type(page_id) is int else describe(page_id)
            return f"the table of {name} holds {found}; expected page ids from 0 to {pool.num_pages - 1}"
    return ""


def _held(pool: ValuePool, sequence: Sequence) -> Held:
    ids = tuple(sequence.page_table)
    most = min(sequence.length, PAGE_SLOTS * (len(ids) + 1))
    places = [divmod(token, PAGE_SLOTS) for token in range(most)]
    values = tuple(str(pool.read(ids[page], slot)) if page < len(ids) else NO_PAGE for page, slot in places)
    return Held(sequence.length, ids, values, tuple(map(pool.ref_count, ids)))
