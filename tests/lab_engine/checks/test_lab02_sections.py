import zlib

import numpy as np
import pytest
import xxhash

from lab_engine.checks.lab02_sections import EXERCISE as SECTIONS
from lab_engine.checks.lab02_sections import damaged_sections
from tests.lab_engine.checks.answers import names


def sections_with(checksum=xxhash.xxh3_64_intdigest, *, keep=lambda _: True, found=list):
    """A damaged_sections that does one thing differently."""

    def find(sections, checksums):
        pairs = enumerate(zip(sections, checksums, strict=True))
        return found(i for i, (section, expected) in pairs if keep(section) and checksum(section) != expected)

    return find


def stops_at_the_first(sections, checksums):
    return damaged_sections(sections, checksums)[:1]


def keeps_the_last(sections, checksums):
    return damaged_sections(sections, checksums)[-1:]


def compares_lengths(sections, checksums):
    return [] if len(sections) == len(checksums) else [0]


def looks_the_section_up(sections, checksums):
    pairs = zip(sections, checksums, strict=True)
    return [sections.index(section) for section, expected in pairs if xxhash.xxh3_64_intdigest(section) != expected]


def the_intact_ones(sections, checksums):
    return [i for i in range(len(sections)) if i not in damaged_sections(sections, checksums)]


def zeros_are_damage(sections, checksums):
    return sorted({*damaged_sections(sections, checksums), *(i for i, s in enumerate(sections) if not any(s))})


TWO = {"two damaged", "the same damage twice", "two exchanged, a third damaged", "one bit of a checksum"}
FIVE = {"two exchanged, a third damaged", "one bit of a checksum"}
DAMAGED = names(SECTIONS) - {"nothing is damaged", "a section of zeros as written"}
WRONG_SECTIONS = {
    "any checksum of the list": (
        lambda sections, sums: [i for i, s in enumerate(sections) if xxhash.xxh3_64_intdigest(s) not in sums],
        "Each section with its own checksum",
        {"two exchanged, a third damaged"},
    ),
    "the first four": (lambda *a: [i for i in damaged_sections(*a) if i < 4], "", {*FIVE}),
    "two at most": (lambda *a: damaged_sections(*a)[:2], "", {*FIVE}),
    "the low byte": (
        lambda sections, sums: [i for i, s in enumerate(sections) if (xxhash.xxh3_64_intdigest(s) ^ sums[i]) & 0xFF],
        "All 64 bits",
        {"one bit of a checksum"},
    ),
    "stops at the first": (stops_at_the_first, "Report all", TWO),
    "keeps the last": (keeps_the_last, "Report all", TWO),
    "sum of bytes": (sections_with(sum), "Order matters", None),
    "CRC-32": (sections_with(zlib.crc32), "XXH3-64 as an int", None),
    "XXH64": (sections_with(xxhash.xxh64_intdigest), "XXH3-64 as an int", None),
    "hexadecimal digest": (sections_with(xxhash.xxh3_64_hexdigest), "text never equals an int", None),
    "first 64 bytes": (sections_with(lambda s: xxhash.xxh3_64_intdigest(s[:64])), "All of it", None),
    "skips zero sections": (sections_with(keep=any), "Zeros are data", {"a section zeroed"}),
    "zeros are damage": (zeros_are_damage, "Zeros are data", {"a section of zeros as written"}),
    "compares lengths": (compares_lengths, "Damage keeps the length", DAMAGED),
    "looks the section up": (looks_the_section_up, "count with `enumerate`", {"the same damage twice"}),
    "the intact ones": (the_intact_ones, "report where the checksum differs", None),
    "in descending order": (lambda *a: damaged_sections(*a)[::-1], "in ascending order", TWO),
    "the example's answer": (lambda *_: list(range(1, 2)), "Nothing is damaged here", None),
}


@pytest.mark.parametrize("name", WRONG_SECTIONS)
def test_a_wrong_verification_fails_with_its_own_hint(name, failing_cases):
    wrong, hint, only = WRONG_SECTIONS[name]
    verdict = SECTIONS.check(wrong)
    assert verdict.status == "failed"
    assert hint in verdict.hint, verdict
    if only is not None:
        assert failing_cases(SECTIONS, wrong) == only


def test_a_sum_of_bytes_would_miss_the_swap_alone():
    """With sums as checksums: all damages but one change the sum."""
    intact = SECTIONS.cases[1].args[0]
    same_sum = {
        case.name
        for case in SECTIONS.cases
        if case.name in DAMAGED and [*map(sum, case.args[0])] == [*map(sum, intact)]
    }
    assert same_sum == {"two bytes swapped"}


def by_digests(sections, checksums):
    found = []
    for section in sections:
        digest = xxhash.xxh3_64()
        for start in range(0, len(section), 10):
            digest.update(section[start : start + 10])
        if digest.intdigest() != checksums[len(found)]:
            found.append(True)
        else:
            found.append(False)
    return [i for i, damaged in enumerate(found) if damaged]


def in_numpy(sections, checksums):
    found = np.array([xxhash.xxh3_64_intdigest(s) for s in sections], np.uint64)
    return np.flatnonzero(found != np.array(checksums, np.uint64)).tolist()


@pytest.mark.parametrize("right", [damaged_sections, sections_with(), by_digests, in_numpy])
def test_a_right_verification_passes(right):
    verdict = SECTIONS.check(right)
    assert verdict.status == "passed", verdict


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (sections_with(found=set), "returned a set; expected a list of ints: the indices of the damaged sections"),
        (sections_with(found=tuple), "returned a tuple of 1; expected a list of ints"),
        (lambda *_: [False, True], "returned a list that holds a bool; expected a list of ints"),
        (lambda s, c: np.array(damaged_sections(s, c)), "returned an int64 ndarray of shape (1,); expected a list"),
    ],
)
def test_indices_of_another_form_are_refused_in_words(wrong, message):
    assert SECTIONS.check(wrong).message.startswith(message)


def test_emptying_the_lists_is_told_and_spoils_no_later_case():
    def empties(sections, checksums):
        found = damaged_sections(sections, checksums)
        sections.clear()
        return found

    assert "changed one of its arguments" in SECTIONS.check(empties).message
    assert SECTIONS.check(damaged_sections).status == "passed"
