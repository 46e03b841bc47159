"""Lab 02, damaged_sections: which sections no longer have the checksum of the header."""

from typing import Any

import xxhash

from lab_engine.checks.case import Args, Case, Mismatch
from lab_engine.checks.exercise import Exercise
from lab_engine.checks.values import describe, different_sequences, first_true
from lab_engine.checks.verdict import Row


def damaged_sections(sections: list[bytes], checksums: list[int]) -> list[int]:
    """Indices of all sections whose bytes do not have their checksum, ascending.

    sections: the bytes of each section; checksums: what the header says of each, its XXH3-64 as
    an int, `xxhash.xxh3_64_intdigest(section)`.

    >>> damaged_sections([b"abcd", b"abdc"], [xxhash.xxh3_64_intdigest(b"abcd")] * 2)
    [1]
    """
    return [
        index
        for index, (section, checksum) in enumerate(zip(sections, checksums, strict=True))
        if xxhash.xxh3_64_intdigest(section) != checksum
    ]


def _judge(args: Args, expected: list[int], yours: Any) -> Mismatch | None:
    if not isinstance(yours, list) or not all(type(i) is int for i in yours):
        found = describe(yours)
        if isinstance(yours, list):
            found += f" that holds {describe(next(i for i in yours if type(i) is not int))}"
        message = f"returned {found}; expected a list of ints: the indices of the damaged sections"
        return Mismatch(message, about_form=True)
    if yours == expected:
        return None
    return different_sequences("indices", expected, yours, _hint(args, expected, yours))


def _hint(args: Args, expected: list[int], yours: list[int]) -> str:
    """The wrong answers that people give, computed."""
    sections, checksums = args
    everything = list(range(len(sections)))
    start_only = [i for i in everything if xxhash.xxh3_64_intdigest(sections[i][:64]) != checksums[i]]
    zeros = {i for i in everything if not any(sections[i])}
    elsewhere = [i for i in everything if xxhash.xxh3_64_intdigest(sections[i]) not in checksums]
    by_content = [sections.index(sections[i]) for i in expected]
    return first_true(
        (0 < len(elsewhere) < len(expected) and yours == elsewhere, _OWN),
        (len(expected) > 1 and yours in (expected[:1], expected[-1:]), "Report all: the loop goes on after a find."),
        (yours == start_only, "All of it: the checksum is that of every byte of a section, not of its beginning."),
        (yours == [i for i in expected if i not in zeros], "Zeros are data: a zeroed section has a checksum too."),
        (yours == sorted({*expected, *zeros}), "Zeros are data: a section of zeros may be as it was written."),
        (yours == by_content, "Two sections may hold the same bytes: count with `enumerate`, don't look them up."),
        (yours == [i for i in everything if i not in expected], "The other ones: report where the checksum differs."),
        (yours == everything, _OTHER_CHECKSUM),
        (sorted(set(yours)) == expected, "Each index once, in ascending order."),
        (not yours, "Damage keeps the length: compare the checksum of the bytes."),
    )


def _show(args: Args) -> tuple[Row, ...]:
    sections, checksums = args
    return tuple(
        Row(f"section {i}", (f"{len(section)} bytes",), f"{section[:8].hex(' ')} … · checksum {checksum:016x}")
        for i, (section, checksum) in enumerate(zip(sections, checksums, strict=True))
    )


def _section(seed: int, length: int) -> bytes:
    """Bytes that differ from their neighbours and from those of another seed."""
    return bytes((37 * i + 101 * seed + i * i // 7) % 251 + 1 for i in range(length))


def _changed(section: bytes, at: int, new: bytes) -> bytes:
    at %= len(section)
    return section[:at] + new + section[at + len(new) :]


def _case(name: str, hint: str, damage: dict[int, bytes], intact: list[bytes] | None = None) -> Case:
    """Sections, four if none are given, of which some are replaced after their checksum was taken."""
    intact = intact or [_FIRST, _SECOND, _SHORT, _LAST]
    checksums = [xxhash.xxh3_64_intdigest(section) for section in intact]
    return Case(name, ([damage.get(i, section) for i, section in enumerate(intact)], checksums), hint)


_ORDER = "Order matters: a sum of bytes sees no swap."
_OTHER_CHECKSUM = (
    "The checksum is XXH3-64 as an int, `xxhash.xxh3_64_intdigest`. `hexdigest` gives text: text never equals an int. "
    + _ORDER
)
_OWN = "Each section with its own checksum: one that stands elsewhere in the list is another section's."
_COLLECT = "One loop: compare the checksum of each section with its own, collect the index."
_FIRST, _SECOND, _SHORT, _LAST = (_section(seed, length) for seed, length in enumerate((96, 131, 40, 257)))
_SAME = [_section(5, 80), _section(6, 80), _section(6, 80), _section(5, 80)]

_FIVE = [_section(seed, 90 + 7 * seed) for seed in range(10, 15)]
_FLIPPED = (1 << 63, 0, 1, 0, 1 << 32)
_ALMOST = [xxhash.xxh3_64_intdigest(section) ^ bit for section, bit in zip(_FIVE, _FLIPPED, strict=True)]

CASES = (
    _case(
        "one bit",
        "Damage keeps the length: compare the checksum of the bytes.",
        {1: _changed(_SECOND, 7, bytes([_SECOND[7] ^ 4]))},
    ),
    _case("nothing is damaged", "Nothing is damaged here: an empty list.", {}),
    _case("two bytes swapped", _ORDER, {1: _changed(_SECOND, 3, _SECOND[4:2:-1])}),
    _case(
        "the last byte",
        "All of it: the last byte counts as the first.",
        {3: _changed(_LAST, -1, bytes([_LAST[-1] ^ 1]))},
    ),
    _case("a section zeroed", "Zeros are data: a zeroed section has a checksum too.", {0: bytes(96)}),
    _case(
        "a section of zeros as written",
        "Zeros are data: this section is as it was written.",
        {},
        [_FIRST, bytes(64), _SHORT, bytes(8)],
    ),
    _case(
        "two damaged",
        "Report all: the loop goes on after a find.",
        {0: _changed(_FIRST, 50, b"??"), 3: _changed(_LAST, 0, b"\0")},
    ),
    _case(
        "two exchanged, a third damaged",
        _OWN,
        {1: _FIVE[3], 3: _FIVE[1], 4: _changed(_FIVE[4], 20, b"!")},
        _FIVE,
    ),
    Case("one bit of a checksum", (_FIVE, _ALMOST), "All 64 bits of the checksum count."),
    _case("the same damage twice", _COLLECT, {1: _changed(_SAME[1], 9, b"!"), 2: _changed(_SAME[2], 9, b"!")}, _SAME),
)


EXERCISE = Exercise(
    lab="02_nanoqwen_file",
    solution=damaged_sections,
    cases=CASES,
    judge=_judge,
    show=_show,
    first_hints=(
        "One loop over the sections. What do you compare in each round?",
        "Collect the index of each section whose `xxhash.xxh3_64_intdigest` is not its checksum.",
    ),
)
