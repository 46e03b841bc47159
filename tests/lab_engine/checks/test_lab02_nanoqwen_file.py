import dataclasses
import json
import struct
import zlib

import numpy as np
import pytest
import xxhash

from lab_engine import nanoqwen_file
from lab_engine.checks import exercises
from lab_engine.checks.lab02_damage import SmallFile, damage_file
from lab_engine.checks.lab02_header import parse_header
from lab_engine.checks.lab02_rows import row_bytes
from lab_engine.checks.lab02_sections import damaged_sections
from lab_engine.damaged_files import DAMAGES, refusal_of, with_header
from lab_engine.errors import FileFormatError
from tests.lab_engine.checks.odd_answers import odd_functions

HEADER, ROWS, SECTIONS, DAMAGE = ALL = tuple(exercises("02_nanoqwen_file").values())
EXAMPLE = bytes.fromhex("4e414e4f5157454e0100000008000000dd68bcec4ca92071") + b'{"t": 1}'


def names(exercise):
    return {case.name for case in exercise.cases}


@pytest.mark.parametrize("exercise", ALL, ids=lambda exercise: exercise.name)
@pytest.mark.parametrize("name", odd_functions())
def test_whatever_a_function_returns_ends_in_a_verdict(exercise, name):
    verdict = exercise.check(odd_functions()[name])
    assert verdict.status == "failed"
    assert verdict.message or verdict.yours
    assert "Traceback" not in str(verdict)
    assert verdict._repr_html_()


# --- parse_header ---


def parse_with(
    form="<8sIIQ",
    *,
    swapped=False,
    text_of=lambda data, length: data[24 : 24 + length],
    short=True,
    magic_=True,
    version_=True,
    limit=1 << 20,
    least=1,
    cut=True,
    checksum_=True,
    error=FileFormatError,
):
    """A parse_header that does one thing differently."""

    def parse(data):
        if short and len(data) < 24:
            raise error(f"preamble: {len(data)} bytes")
        magic, version, length, checksum = struct.unpack_from(form, data)
        if swapped:
            version, length = length, version
        if magic_ and magic != b"NANOQWEN":
            raise error(f"magic {magic}")
        if version_ and version != 1:
            raise error(f"version {version} is unknown")
        if limit and not least <= length <= limit:
            raise error(f"header length {length} is not from {least} to {limit}")
        text = text_of(data, length)
        if cut and len(data) < 24 + length:
            raise error(f"the header is cut: {len(data)} bytes")
        if checksum_ and xxhash.xxh3_64_intdigest(text) != checksum:
            raise error("wrong checksum")
        return version, json.loads(text)

    return parse


def up_to_the_end(data, length):
    return data[24:]


def in_characters(data, length):
    return data[24:].decode()[:length].encode()


def always_the_example(data):
    return 1, {"t": 1}


def refuses_everything(data):
    raise FileFormatError("magic, version, header length, checksum, preamble: wrong")


def without_names(data):
    try:
        return parse_header(data)
    except FileFormatError:
        raise FileFormatError("bad file") from None


def refuses_by_returning_none(data):
    try:
        return parse_header(data)
    except FileFormatError:
        return None


def asserts(data):
    assert data[:8] == b"NANOQWEN"
    return parse_header(data)


JSON_PAST_THE_END = {"bytes after the header", "names outside ASCII"}
REFUSED = {case.name for case in HEADER.cases[4:]}
BIG_ENDIAN, SIZES = "Little-endian", "the length is 4 bytes, the checksum"
WRONG_HEADER = {
    "big-endian": (parse_with(">8sIIQ"), BIG_ENDIAN, None),
    "big-endian, nothing checked": (
        parse_with(">8sIIQ", version_=False, limit=None, cut=False, checksum_=False),
        "Little-endian",
        None,
    ),
    "big-endian version": (lambda data: (int.from_bytes(data[8:12], "big"), parse_header(data)[1]), BIG_ENDIAN, None),
    "u64 length": (parse_with("<8sIQI"), "The length is 4 bytes, the checksum 8", None),
    "u64 length, nothing checked": (parse_with("<8sIQI", limit=None, cut=False), SIZES, None),
    "u64 version": (parse_with("<8sQII"), SIZES, None),
    "version and length swapped": (parse_with(swapped=True), "Version first", None),
    "swapped, nothing checked": (
        parse_with(swapped=True, version_=False, checksum_=False, text_of=lambda data, _: data[24:32], cut=False),
        "Version first",
        None,
    ),
    "JSON up to the end": (parse_with(text_of=up_to_the_end, checksum_=False), "The length says where", None),
    "checksum up to the end": (parse_with(text_of=up_to_the_end), "The length says where", None),
    "length in characters": (
        parse_with(text_of=in_characters, checksum_=False),
        "slice bytes, then decode",
        None,
    ),
    "length in characters, with checksum": (
        parse_with(text_of=in_characters),
        "slice bytes, then decode",
        {"names outside ASCII"},
    ),
    "checksum not compared": (
        parse_with(checksum_=False),
        "JSON can be valid and wrong",
        {"one bit of the header changed"},
    ),
    "no version check": (parse_with(version_=False), "Refuse what you do not know", {"version 0", "version 999"}),
    "version 0 accepted": (
        lambda data: parse_header(data[:8] + data[8:12].replace(b"\0" * 4, b"\1\0\0\0") + data[12:]),
        "Refuse what you do not know",
        {"version 0"},
    ),
    "no limit": (
        parse_with(limit=None),
        "Python's slice hides a length that is too large",
        {"length 0", "a header of 1 MiB and a byte"},
    ),
    "no limit, no truncation check": (parse_with(limit=None, cut=False), "compare len(text) with the length", None),
    "no lower limit": (parse_with(least=0), "1 to 1 MiB", {"length 0"}),
    "limit one too low": (
        parse_with(limit=(1 << 20) - 1),
        "1 MiB itself is still legal",
        {"a header of exactly 1 MiB"},
    ),
    "limit one too high": (parse_with(limit=(1 << 20) + 1), "1 to 1 MiB", {"a header of 1 MiB and a byte"}),
    "no truncation check of the preamble": (
        parse_with(short=False),
        "A FileFormatError that names the field, not an error of Python's",
        {"no bytes", "7 bytes", "23 bytes"},
    ),
    "no truncation check of the header": (parse_with(cut=False), "compare len(text) with the length", None),
    "magic not compared": (parse_with(magic_=False), "A FileFormatError that names the magic", {"magic NANOQWEM"}),
    "ValueError": (parse_with(error=ValueError), "JSON can be valid and wrong", REFUSED),
    "assert": (asserts, "A FileFormatError that names the field", None),
    "refusals without a name": (without_names, "JSON can be valid and wrong", REFUSED),
    "None for a bad file": (refuses_by_returning_none, "JSON can be valid and wrong", REFUSED),
    "the example's answer": (always_the_example, "The length says where", None),
    "refuses everything": (refuses_everything, "Little-endian, version first", names(HEADER) - REFUSED),
}


@pytest.mark.parametrize("name", WRONG_HEADER)
def test_a_wrong_parser_fails_with_its_own_hint(name, failing_cases):
    wrong, hint, only = WRONG_HEADER[name]
    verdict = HEADER.check(wrong)
    assert verdict.status == "failed"
    assert hint in verdict.hint, verdict
    if only is not None:
        assert failing_cases(HEADER, wrong) == only


def test_a_length_that_is_one_too_many_is_hidden_by_the_slice(failing_cases):
    assert "the length is one too many" in failing_cases(HEADER, parse_with(cut=False))
    assert "bytes after the header" not in failing_cases(HEADER, parse_with(text_of=in_characters))


def the_engines(data):
    return nanoqwen_file.parse_header(data)


def by_hand(data):
    if data[:8] != b"NANOQWEN":
        raise FileFormatError(f"found the magic {data[:8]!r}")
    version, length = int.from_bytes(data[8:12], "little"), int.from_bytes(data[12:16], "little")
    rest = data[24:]
    if len(rest) < length:
        raise FileFormatError(f"the header has {len(rest)} bytes, expected {length}")
    if not length or length > 2**20:
        raise FileFormatError(f"length {length} of the header")
    if xxhash.xxh3_64_digest(rest[:length]) != data[16:24][::-1]:
        raise FileFormatError("CHECKSUM")
    if version != 1:
        raise FileFormatError(f"Version {version}")
    return version, json.loads(rest[:length].decode("utf-8"))


def through_numpy(data):
    if len(data) < 24:
        raise FileFormatError("a preamble that is cut")
    magic, version, length, checksum = np.frombuffer(data, "S8,<u4,<u4,<u8", 1)[0].tolist()
    for wrong, field in (
        (magic != b"NANOQWEN", "magic"),
        (version != 1, "version"),
        (not 1 <= length <= 1048576, "length"),
    ):
        if wrong:
            raise FileFormatError(field)
    if 24 + length > len(data):
        raise FileFormatError("header is cut")
    if xxhash.xxh3_64(data[24 : 24 + length]).intdigest() != checksum:
        raise FileFormatError("header checksum")
    return version, json.loads(data[24 : 24 + length])


@pytest.mark.parametrize("right", [parse_header, parse_with(), the_engines, by_hand, through_numpy])
def test_a_right_parser_passes(right):
    verdict = HEADER.check(right)
    assert verdict.status == "passed", verdict


def test_parse_header_reads_the_bytes_of_the_lesson_and_agrees_with_the_engine():
    assert parse_header(EXAMPLE) == (1, {"t": 1})
    assert HEADER.cases[0].args == (EXAMPLE,)
    for small in (case.args[0] for case in DAMAGE.cases):
        assert parse_header(small.data) == nanoqwen_file.parse_header(small.data)


def test_where_the_length_is_the_fault_the_checksum_is_right():
    args = {case.name: case.args[0] for case in HEADER.cases}
    for name in ("the length is one too many", "length 0", "length 2³² − 1", "a header of 1 MiB and a byte"):
        data = args[name]
        length, checksum = struct.unpack_from("<IQ", data, 12)
        assert xxhash.xxh3_64_intdigest(data[24 : 24 + length]) == checksum, name


def test_the_bytes_are_shown_field_by_field_and_a_wrong_version_in_words():
    verdict = HEADER.check(WRONG_HEADER["big-endian version"][0])
    assert verdict.message == "returned the version 16777216; expected 1"
    assert [row.label for row in verdict.given] == ["magic", "version", "header length", "checksum", "then"]
    assert verdict.given[2].values == ("08", "00", "00", "00")
    assert verdict.given[2].note == "8"
    assert verdict.given[4].note == "'{\"t\": 1}'"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda data: parse_header(data)[1], "returned a dict; expected (version, header): (an int, a dict)"),
        (lambda data: parse_header(data)[::-1], "returned (a dict, an int); expected (version, header)"),
        (lambda data: list(parse_header(data)), "returned a list; expected (version, header)"),
        (lambda data: (True, parse_header(data)[1]), "returned (a bool, a dict); expected"),
        (lambda _: (1, {}), "returned the header {}; expected {'t': 1}"),
        (refuses_everything, "refused a good file: FileFormatError: magic, version"),
    ],
)
def test_a_header_of_another_form_is_refused_in_words(wrong, message):
    assert HEADER.check(wrong).message.startswith(message)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (parse_with(checksum_=False), "accepted the file; expected a FileFormatError that names the checksum of the"),
        (without_names, "the FileFormatError says `bad file`; it does not name the checksum of the header"),
        (parse_with(error=ValueError), "raised ValueError: wrong checksum, in line"),
    ],
)
def test_a_refusal_that_is_missing_or_of_another_kind_is_named(wrong, message):
    assert HEADER.check(wrong).message.startswith(message)


# --- row_bytes ---


def row_with(numerator=1, denominator=2, *, side=1, plus_offset=True, last=0, check=True, length=False, first=0):
    """A row_bytes that does one thing differently."""

    def find(offset, shape, row):
        if check and not 0 <= row < shape[0]:
            raise ValueError(f"no row {row}")
        size = shape[side] * numerator // denominator
        start = offset * plus_offset + (row - first) * size
        return start, size if length else start + size - last

    return find


def rows_and_columns_of_another_length(offset, shape, row):
    start, _ = row_with(side=0)(offset, shape, row)
    return start, start + shape[1] // 2


def negative_rows_accepted(offset, shape, row):
    if row >= shape[0]:
        raise ValueError(f"row {row}")
    return row_with(check=False)(offset, shape, row)


def index_error(offset, shape, row):
    return row_bytes(offset, shape, range(shape[0])[row])


def raises_index_error(offset, shape, row):
    if not 0 <= row < shape[0]:
        raise IndexError(f"row {row}")
    return row_bytes(offset, shape, row)


OUTSIDE = {"row = rows", "row −1"}
INSIDE = names(ROWS) - OUTSIDE
WRONG_ROWS = {
    "a byte a weight": (row_with(1, 1), "Two weights a byte", INSIDE),
    "shape[0] as row length": (row_with(side=0), "shape is (rows, columns)", INSIDE - {"as many rows as columns"}),
    "shape[0] for the start": (
        rows_and_columns_of_another_length,
        "shape is (rows, columns)",
        INSIDE - {"as many rows as columns", "row 0"},
    ),
    "offset forgotten": (row_with(plus_offset=False), "From the start of the file", INSIDE),
    "inclusive stop": (row_with(last=1), "Half-open", INSIDE),
    "scales in between": (row_with(66, 128), "Scales are a section of their own", INSIDE),
    "no range check": (row_with(check=False), "a ValueError that names the row: there are rows 0 to 63", OUTSIDE),
    "−1 accepted": (negative_rows_accepted, "−1 is the row before: another tensor's bytes", {"row −1"}),
    "Python's own index": (index_error, "a ValueError that names the row", OUTSIDE),
    "IndexError": (raises_index_error, "a ValueError that names the row", OUTSIDE),
    "length for stop": (row_with(length=True), "not (start, length)", INSIDE),
    "counted from 1": (row_with(first=1), "Rows count from 0", INSIDE),
    "a word a weight": (row_with(4, 1), "How many bytes has one row", INSIDE),
    "the example's answer": (lambda *_: (9152, 9344), "The first row begins where its section begins", None),
}


@pytest.mark.parametrize("name", WRONG_ROWS)
def test_a_wrong_place_of_a_row_fails_with_its_own_hint(name, failing_cases):
    wrong, hint, only = WRONG_ROWS[name]
    verdict = ROWS.check(wrong)
    assert verdict.status == "failed"
    assert hint in verdict.hint, verdict
    if only is not None:
        assert failing_cases(ROWS, wrong) == only


def by_a_range(offset, shape, row):
    starts = range(offset, offset + shape[0] * shape[1] // 2, shape[1] // 2)
    if row not in range(len(starts)):
        raise ValueError(f"row {row} is not there")
    return starts[row], starts[row] + shape[1] // 2


def by_words(offset, shape, row):
    if row < 0 or row >= shape[0]:
        raise ValueError(f"{row} of {shape[0]} rows")
    words = shape[1] // 8
    return offset + 4 * words * row, offset + 4 * words * (row + 1)


@pytest.mark.parametrize("right", [row_bytes, row_with(), by_a_range, by_words])
def test_a_right_place_of_a_row_passes(right):
    verdict = ROWS.check(right)
    assert verdict.status == "passed", verdict


def test_row_bytes_gives_the_known_bytes_and_those_of_a_real_file():
    assert row_bytes(8192, (1024, 384), 5) == (9152, 9344)
    assert row_bytes(0, (64, 384), 21) == (4032, 4224)
    data = SmallFile(1, True, "linear").data
    entry = nanoqwen_file.parse_header(data)[1]["sections"]["model.layers.0.mlp.down_proj.weight"]
    words = np.frombuffer(data, "<i4", entry["length"] // 4, entry["offset"]).reshape(entry["shape"][0], -1)
    start, stop = row_bytes(entry["offset"], tuple(entry["shape"]), 77)
    assert data[start:stop] == words[77].tobytes()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda *a: row_bytes(*a)[0], "returned an int; expected (start, stop)"),
        (lambda *a: tuple(map(float, row_bytes(*a))), "returned a tuple that holds a float; expected two ints"),
        (lambda *a: slice(*row_bytes(*a)), "returned a slice; expected (start, stop)"),
    ],
)
def test_a_place_of_another_form_is_refused_in_words(wrong, message):
    assert ROWS.check(wrong).message == message


# --- damaged_sections ---


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


TWO = {"two damaged", "the same damage twice"}
DAMAGED = names(SECTIONS) - {"nothing is damaged", "a section of zeros as written"}
WRONG_SECTIONS = {
    "stops at the first": (stops_at_the_first, "Report all", TWO),
    "keeps the last": (keeps_the_last, "Report all", TWO),
    "sum of bytes": (sections_with(sum), "Order matters", None),
    "CRC-32": (sections_with(zlib.crc32), "XXH3-64 as an int", None),
    "XXH64": (sections_with(xxhash.xxh64_intdigest), "XXH3-64 as an int", None),
    "hexadecimal digest": (sections_with(xxhash.xxh3_64_hexdigest), "as an int", None),
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


# --- damage_file ---


def with_section(name, **fields):
    """A damage_file that changes fields of a section, and writes the header with a right checksum."""

    def damage(data):
        header = nanoqwen_file.parse_header(data)[1]
        header["sections"][name].update(fields)
        return with_header(data, header)

    return damage


def key_twice(data):
    text = json.dumps(nanoqwen_file.parse_header(data)[1])
    return with_header(data, text.replace('"config"', '"config": 1, "config"', 1).encode())


def cut_in_the_header(data):
    return data[:1000]


def without_config(data):
    header = nanoqwen_file.parse_header(data)[1]
    del header["config"]["head_dim"]
    return with_header(data, header)


def a_section_too_many(data):
    header = nanoqwen_file.parse_header(data)[1]
    header["sections"]["model.extra"] = header["sections"]["tokenizer"]
    return with_header(data, header)


def over_the_header(data):
    return with_section("model.embed_tokens.weight", offset=0)(data)


NORM = "model.norm.weight"
NINTH = {
    "a zero dimension": (damage_file, "shape: found [0]"),
    "a key twice": (key_twice, "stands twice"),
    "an offset inside a page": (with_section(NORM, offset=4097), "expected a multiple of 4096"),
    "a byte after the last section": (lambda data: data + b"\0", "end of file"),
    "cut in the header": (cut_in_the_header, "header: found 976 bytes"),
    "another dtype that is known": (with_section(NORM, dtype="F16", length=256), "found F16 [128]"),
    "a wrong length": (with_section(NORM, length=7), "length: found 7"),
    "a config without head_dim": (without_config, "config: found the fields"),
    "a section too many": (a_section_too_many, "not expected"),
    "a section over the header": (over_the_header, "overlaps the header"),
    "a layout where none belongs": (with_section(NORM, layout="linear"), "layout: found 'linear', expected none"),
    "a header that is a list": (lambda data: with_header(data, b"[]"), "found a JSON list"),
    "as a bytearray": (lambda data: bytearray(data + b"\0"), "end of file"),
}


@pytest.mark.parametrize("name", NINTH)
def test_a_ninth_damage_passes_and_the_verdict_says_what_the_reader_answered(name):
    damage, words = NINTH[name]
    verdict = DAMAGE.check(damage)
    assert verdict.status == "passed", verdict
    assert verdict.message.startswith("the reader says: ")
    assert words in verdict.message
    assert verdict.message in str(verdict)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.name)
def test_each_of_the_eight_is_named_and_does_not_count(damage):
    verdict = DAMAGE.check(damage.apply)
    assert verdict.status == "failed"
    assert verdict.message == f"the reader says: {refusal_of(damage.apply(DAMAGE.cases[0].args[0].data))}"
    assert f"That is one of the eight: {damage.name}." in verdict.hint


def flipped(at):
    return lambda data: data[: at % len(data)] + bytes([data[at] ^ 1]) + data[at % len(data) :][1:]


def checksum_left_old(data):
    """The duplicate key of above, but written by hand: length renewed, checksum not."""
    good = key_twice(data)
    return good[:16] + data[16:24] + good[24:]


def other_known_layout(data):
    header = nanoqwen_file.parse_header(data)[1]
    for entry in header["sections"].values():
        if "layout" in entry:
            entry["layout"] = {"linear": "value_shuffle", "value_shuffle": "linear"}[entry["layout"]]
    return with_header(data, header)


NOT_NINTH = {
    "another cut of the preamble": (lambda data: data[:5], "one of the eight: cut at 23 bytes"),
    "nothing left": (lambda _: b"", "one of the eight: cut at 23 bytes"),
    "another magic": (lambda data: b"GGUF" + data[4:], "one of the eight: magic NANOQWEM"),
    "version 0": (lambda data: data[:8] + bytes(4) + data[12:], "one of the eight: version 999"),
    "length 0": (lambda data: data[:12] + bytes(4) + data[16:], "one of the eight: header of 4 GiB"),
    "the last page cut": (lambda data: data[:-1000], "one of the eight: section past the end"),
    "another overlap": (
        with_section("model.embed_tokens.scales", offset=4096),
        "one of the eight: two tensors overlap",
    ),
    "dtype BF16": (with_section(NORM, dtype="BF16"), "one of the eight: dtype INT3"),
    "layout marlin": (with_section("model.embed_tokens.weight", layout="marlin"), "one of the eight: layout tiled"),
    "a bit of the header": (flipped(100), "Only the checksum caught it"),
    "the checksum itself": (flipped(20), "Only the checksum caught it"),
    "the checksum left old": (checksum_left_old, "`with_header` renews it"),
    "a bit of a tensor": (flipped(8192), "Content is checked on request"),
    "the last byte": (flipped(-1), "Content is checked on request"),
    "a checksum of a section": (with_section(NORM, xxh3="not hexadecimal"), "Content is checked on request"),
    "padding": (flipped(4095), "Nobody reads padding"),
    "another known layout": (other_known_layout, "Which promise of the header can you break?"),
    "the same file": (lambda data: data, "bytes never change in place"),
    "a copy": (lambda data: bytes(bytearray(data)), "bytes never change in place"),
    "a path": (lambda _: "damaged.nanoqwen", "Which promise"),
}


@pytest.mark.parametrize("name", NOT_NINTH)
def test_what_is_no_ninth_damage_fails_with_its_own_hint(name):
    damage, hint = NOT_NINTH[name]
    verdict = DAMAGE.check(damage)
    assert verdict.status == "failed"
    assert hint in verdict.hint, verdict


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a bit of a tensor", "the reader opened the file; only verify finds section model."),
        ("padding", "the reader opened the file: the bytes you changed are padding"),
        ("another known layout", "the reader opened the file: what its header says now is legal"),
        ("a bit of the header", "the reader says: header checksum: found"),
        ("a path", "returned a str; expected bytes, all of a file"),
    ],
)
def test_the_verdict_says_what_became_of_the_file(name, message):
    assert DAMAGE.check(NOT_NINTH[name][0]).message.startswith(message)


def test_a_damage_must_break_more_than_one_file():
    def of_the_first_only(data):
        return data + b"\0" if len(data) == len(DAMAGE.cases[0].args[0].data) else data[:-1] + b"?"

    verdict = DAMAGE.check(of_the_first_only)
    assert (verdict.status, verdict.passed) == ("failed", 1)


def test_the_small_files_are_good_and_different():
    files = [case.args[0] for case in DAMAGE.cases]
    assert all(refusal_of(file.data) is None for file in files)
    assert len({file.data for file in files}) == len(files)
    assert all(len(file.data) < 300_000 for file in files)
    assert all(dataclasses.replace(file).data is file.data for file in files)
