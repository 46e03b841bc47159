import json
import struct

import numpy as np
import pytest
import xxhash

from lab_engine import nanoqwen_file
from lab_engine.checks.lab02_damage import EXERCISE as DAMAGE
from lab_engine.checks.lab02_header import EXERCISE as HEADER
from lab_engine.checks.lab02_header import parse_header
from lab_engine.errors import FileFormatError
from tests.lab_engine.checks.answers import names

EXAMPLE = bytes.fromhex("4e414e4f5157454e0100000008000000dd68bcec4ca92071") + b'{"t": 1}'


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


def saying(**words):
    """A right parser that says these words, {}: the value found, in place of the field's: preamble, magic, …"""

    def parse(data):
        try:
            return parse_header(data)
        except FileFormatError as error:
            field, _, rest = str(error).partition(":")
            found = rest.removeprefix(" found ").partition(", ")[0]
            said = words.get(field.replace(" ", "_"), f"{field}: {found}")
            raise FileFormatError(said.format(found)) from None

    return parse


ALL_FIELDS = "bad preamble, magic, version, header length or checksum"


def one_message_for_everything(data):
    try:
        return parse_header(data)
    except FileFormatError:
        raise FileFormatError(ALL_FIELDS) from None


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


def misspelt(data):
    return struct.unpack_form("<8sIIQ", data)


def test_a_misspelt_name_gets_no_hint_about_bytes():
    verdict = HEADER.check(misspelt)
    assert "AttributeError" in verdict.message
    assert not verdict.hint


def asserts(data):
    assert data[:8] == b"NANOQWEN"
    return parse_header(data)


REFUSED = {case.name for case in HEADER.cases[4:]}
SHORT = {"no bytes", "7 bytes", "23 bytes"}
BIG_ENDIAN, SIZES = "Little-endian", "the length is 4 bytes, the checksum"
MAGICS = {"magic NANOQWEM", "magic XANOQWEN", "magic nanoqwen"}
VERSIONS = {"version 0", "version 999", "version 65537"}
LENGTH = "length 2²⁴ + 8"
STORED = {f"byte {at} of the stored checksum changed" for at in (16, 20, 23)}


def reading(**masks):
    """A parser that sees only these bits of a number, or compares magic by a function."""

    def parse(data):
        if len(data) < 24:
            raise FileFormatError("preamble: cut")
        magic, version, length, checksum = struct.unpack_from("<8sIIQ", data)
        same = masks.get("magic", lambda found: found == b"NANOQWEN")
        bits = {name: masks.get(name, (1 << 64) - 1) for name in ("version", "length", "checksum")}
        if not same(magic):
            raise FileFormatError("magic")
        if version & bits["version"] != 1:
            raise FileFormatError("version")
        length &= bits["length"]
        if not 0 < length <= 1 << 20:
            raise FileFormatError("header length")
        if len(text := data[24 : 24 + length]) < length:
            raise FileFormatError("header is cut")
        if (xxhash.xxh3_64_intdigest(text) ^ checksum) & bits["checksum"]:
            raise FileFormatError("checksum")
        return 1, json.loads(text)

    return parse


HALF = (1 << 32) - 1
BLIND = {
    "version as u8": ({"version": 0xFF}, {"version 65537"}),
    "version as u16": ({"version": 0xFFFF}, {"version 65537"}),
    "length of 3 bytes": ({"length": 0xFFFFFF}, {LENGTH}),
    "low byte of the checksum": ({"checksum": 0xFF}, STORED - {"byte 16 of the stored checksum changed"}),
    "low half of the checksum": ({"checksum": HALF}, STORED - {"byte 16 of the stored checksum changed"}),
    "high half of the checksum": ({"checksum": HALF << 32}, {"byte 16 of the stored checksum changed"}),
    "last byte of the magic": ({"magic": lambda found: found[7:] == b"N"}, {"magic XANOQWEN"}),
    "middle of the magic": ({"magic": lambda found: found[4:] == b"QWEN"}, {"magic XANOQWEN"}),
    "magic in any case": ({"magic": lambda found: found.upper() == b"NANOQWEN"}, {"magic nanoqwen"}),
}


@pytest.mark.parametrize("name", BLIND)
def test_a_parser_that_sees_a_field_in_part_fails_the_case_made_for_it(name, failing_cases):
    masks, only = BLIND[name]
    assert failing_cases(HEADER, reading(**masks)) == only
    assert HEADER.check(reading()).status == "passed"


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
        STORED | {"one bit of the header changed"},
    ),
    "no version check": (parse_with(version_=False), "Refuse what you do not know", VERSIONS),
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
    "magic not compared": (parse_with(magic_=False), "A FileFormatError that names the magic", MAGICS),
    "ValueError": (parse_with(error=ValueError), "JSON can be valid and wrong", REFUSED),
    "assert": (asserts, "A FileFormatError that names the field", None),
    "one message for everything": (
        one_message_for_everything,
        "names the one field that is wrong",
        REFUSED - SHORT,  # a cut preamble may be said to hold all that
    ),
    "version and magic in one message": (
        saying(magic="magic or version {}", version="magic or version {}"),
        "names the one field that is wrong",
        MAGICS | VERSIONS,
    ),
    "length and checksum in one message": (
        saying(header_length="header length or checksum", header="header length or checksum"),
        "names the one field that is wrong",
        {"length 0", LENGTH, "length 2³² − 1", "a header of 1 MiB and a byte"}
        | {"cut in the header", "the length is one too many"},
    ),
    "a cut preamble called a bad version": (
        saying(preamble="version {}"),
        "names the field, not an error of Python's",
        {"23 bytes"},
    ),
    "refusals without a name": (without_names, "JSON can be valid and wrong", REFUSED),
    "None for a bad file": (refuses_by_returning_none, "JSON can be valid and wrong", REFUSED),
    "the example's answer": (always_the_example, "The length says where", None),
    "refuses everything": (refuses_everything, "Little-endian, version first", names(HEADER) - SHORT),
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


def field_by_field(data):
    """Reads one field after the other, and says which one is cut."""
    for name, stop in (("magic", 8), ("version", 12), ("length", 16), ("checksum", 24)):
        if len(data) < stop:
            raise FileFormatError(f"{name} is cut: the file ends at byte {len(data)}")
    return parse_header(data)


RIGHT_WORDS = [
    saying(preamble="preamble: magic, version, header length and checksum have 24 bytes, found {}"),
    saying(preamble="cut in the header after {}"),
    saying(magic="preamble: bad magic {}", version="header version {} is unknown", checksum="CHECKSUM of the header"),
    saying(magic="the header's magic is {}, a conversion failed", version="file_version={}"),
    saying(header_length="header_length={}", header="header: {}, expected another length"),
    saying(header_length="the header is too long or empty", header="length of the header: {}"),
    saying(checksum="checksum of a header of length 8: {}", header="the preamble's length says more than {}"),
]


@pytest.mark.parametrize("right", RIGHT_WORDS)
def test_a_refusal_may_name_its_field_in_any_words(right):
    verdict = HEADER.check(right)
    assert verdict.status == "passed", verdict


@pytest.mark.parametrize("right", [parse_header, parse_with(), the_engines, by_hand, through_numpy, field_by_field])
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
        (parse_with(checksum_=False), "accepted the file; expected a FileFormatError that names the checksum"),
        (saying(magic="magic, version"), "the FileFormatError says `magic, version`; it names the version too"),
        (without_names, "the FileFormatError says `bad file`; it does not name the checksum"),
        (parse_with(error=ValueError), "raised ValueError: wrong checksum, in line"),
    ],
)
def test_a_refusal_that_is_missing_or_of_another_kind_is_named(wrong, message):
    assert HEADER.check(wrong).message.startswith(message)
