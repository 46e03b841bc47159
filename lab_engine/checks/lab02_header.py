"""Lab 02, parse_header: from the first bytes of a file to version and header, or to a refusal that names the field."""

import json
import re
import reprlib
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import xxhash

from lab_engine.checks.case import Args, Case, Mismatch
from lab_engine.checks.exercise import Exercise
from lab_engine.checks.values import describe, first_true
from lab_engine.checks.verdict import Row
from lab_engine.errors import FileFormatError
from lab_engine.nanoqwen_writer import preamble_and_header


def parse_header(data: bytes) -> tuple[int, dict[str, object]]:
    """Version and header from the first bytes of a .nanoqwen file; what follows is ignored.

    The preamble is 24 bytes, little-endian: magic `NANOQWEN`, version u32, header length u32,
    and the XXH3-64 checksum of the header u64. Then the header, UTF-8 JSON.
    FileFormatError that names the one field that is wrong: less than a preamble, another magic,
    a version that is not 1, a header length of 0 or over 1 MiB, a cut header, another checksum.

    >>> preamble = bytes.fromhex("4e414e4f5157454e0100000008000000dd68bcec4ca92071")
    >>> parse_header(preamble + b'{"t": 1}')
    (1, {'t': 1})
    """
    if len(data) < 24:
        raise FileFormatError(f"preamble: found {len(data)} bytes, expected 24")
    magic, version, length, checksum = struct.unpack_from("<8sIIQ", data)
    if magic != b"NANOQWEN":
        raise FileFormatError(f"magic: found {magic!r}, expected b'NANOQWEN'")
    if version != 1:
        raise FileFormatError(f"version: found {version}, expected 1")
    if not 0 < length <= 1 << 20:
        raise FileFormatError(f"header length: found {length}, expected 1 to {1 << 20}")
    text = data[24 : 24 + length]
    if len(text) < length:
        raise FileFormatError(f"header: found {len(text)} bytes, expected {length}")
    if (found := xxhash.xxh3_64_intdigest(text)) != checksum:
        raise FileFormatError(f"checksum: found {found:016x}, expected {checksum:016x}")
    return version, json.loads(text)


FIELDS = (("magic", 0, 8), ("version", 8, 12), ("header length", 12, 16), ("checksum", 16, 24))
NAMES = {"header length": {"length", "header"}, "header": {"header", "length"}}
"""Words of which a refusal must hold one, by the field of the solution's own refusal; others: the field itself."""
PLACES = {"preamble", "header"}
"""Words for where a field lies: any refusal may hold them. "Of length 8" says how long something is."""
WORD = re.compile(r"(?<![a-z])(preamble|magic|version|(?<!of )length|checksum|header)")


@dataclass(frozen=True)
class Refusal:
    """The function raised a FileFormatError with this message."""

    message: str


def _with_refusals(function: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def run(data: bytes) -> Any:
        try:
            return function(data)
        except FileFormatError as error:
            return Refusal(str(error))

    return run


def _judge(args: Args, expected: Any, yours: Any) -> Mismatch | None:
    if isinstance(expected, Refusal):
        return _judge_refusal(args[0], expected.message.partition(":")[0], yours)
    if isinstance(yours, Refusal):
        return Mismatch(f"refused a good file: FileFormatError: {yours.message}", hint=_hint(args[0], yours.message))
    if not isinstance(yours, tuple) or len(yours) != 2 or type(yours[0]) is not int or not isinstance(yours[1], dict):
        found = describe(yours)
        if isinstance(yours, tuple) and len(yours) == 2:
            found = f"({describe(yours[0])}, {describe(yours[1])})"
        return Mismatch(f"returned {found}; expected (version, header): (an int, a dict)", about_form=True)
    if yours == expected:
        return None
    part = 0 if yours[0] != expected[0] else 1
    message = f"returned the {('version', 'header')[part]} {reprlib.repr(yours[part])}; expected {expected[part]!r}"
    return Mismatch(message, hint=_hint(args[0], f"version {yours[0]}") if part == 0 else "")


def _judge_refusal(data: bytes, field: str, yours: Any) -> Mismatch | None:
    if not isinstance(yours, Refusal):
        return Mismatch(f"accepted the file; expected a FileFormatError that names the {field}")
    named = set(WORD.findall(yours.message.lower()))
    right = _words_for_a_cut(data, named) if field == "preamble" else NAMES.get(field, {field})
    others = named - right - PLACES
    says = f"the FileFormatError says `{yours.message}`"
    if not named & right:
        return Mismatch(f"{says}; it does not name the {field}")
    if others:
        return Mismatch(f"{says}; it names the {' and the '.join(sorted(others))} too", hint=_ONE_FIELD)
    return None


def _words_for_a_cut(data: bytes, named: set[str]) -> set[str]:
    """A cut preamble may be called by its name and what it holds, or by a field that is not whole."""
    words = {name.split()[-1] for name, _, stop in FIELDS if stop > len(data) or "preamble" in named}
    return words | PLACES


def _hint(data: bytes, text: str) -> str:
    """A wrong reading of the preamble shows as a number that stands there if one reads it so."""
    numbers = {int(digits) for digits in re.findall(r"\b\d{1,20}\b", text)}
    length = int.from_bytes(data[12:16], "little")
    backwards = {int.from_bytes(data[start:stop], "big") for _, start, stop in FIELDS[1:]}
    return first_true(
        (not numbers.isdisjoint(backwards), "Little-endian: the lowest byte comes first."),
        (int.from_bytes(data[12:20], "little") in numbers, "The length is 4 bytes, the checksum 8."),
        ("version" in text.lower() and length in numbers, "Version first, then the length of the header."),
    )


def _hint_without_value(case: Case, error: BaseException | None) -> str:
    """Python's own refusals of bad bytes, or None in place of a refusal; the rest are slips of the pen."""
    refused = isinstance(_with_refusals(parse_header)(*case.args), Refusal)
    of_the_bytes = isinstance(error, struct.error | ValueError | AssertionError | IndexError)
    return case.hint if of_the_bytes or (error is None and refused) else ""


def _show(args: Args) -> tuple[Row, ...]:
    (data,) = args
    meaning = {"magic": repr(data[:8])[1:], "header length": f"{int.from_bytes(data[12:16], 'little'):,}"}
    meaning["version"] = f"{int.from_bytes(data[8:12], 'little')}"
    rows = [_bytes_row(name, data[start:stop], meaning.get(name, "")) for name, start, stop in FIELDS]
    rest = data[24:]
    note = repr(rest[:40])[1:] + (f" … {len(rest):,} bytes" if len(rest) > 40 else "")
    shown = [*rows, _bytes_row("then", rest[:8], note)]
    return tuple(row for row in shown if row.values) or (Row("bytes", ("none",)),)


def _bytes_row(label: str, content: bytes, note: str) -> Row:
    return Row(label, tuple(f"{byte:02x}" for byte in content), note)


def _file(text: bytes = b'{"t": 1}', tail: bytes = b"") -> bytes:
    return preamble_and_header(text) + tail


def _patched(at: int, new: bytes, data: bytes | None = None) -> bytes:
    data = _file() if data is None else data
    return data[:at] + new + data[at + len(new) :]


def _says_length(length: int, data: bytes) -> bytes:
    return _patched(12, length.to_bytes(4, "little"), data)


_ORDER = "Little-endian, version first: the length is 4 bytes, the checksum of 8 bytes comes after it."
_ENDS = "The length says where the header ends: slice before you decode, parse or hash."
_SHORT = "A FileFormatError that names the field, not an error of Python's: ask how many bytes are there, first."
_UNKNOWN = "Refuse what you do not know, by a FileFormatError that names the version: only 1 is known."
_ONE_FIELD = "Each check raises its own FileFormatError, which names the one field that is wrong."
_LIMIT = "1 to 1 MiB, and before you slice: Python's slice hides a length that is too large."
_CUT = "Python's slice is silent about bytes that are not there: compare len(text) with the length."
_OTHER_FILE = "A FileFormatError that names the magic: this may be a file of another kind."
_VALID_AND_WRONG = "JSON can be valid and wrong: compare the checksum, `xxhash.xxh3_64_intdigest(text)`."

_WHOLE = "All 8 bytes of the checksum count, little-endian."

_PADDED = b"\0" * 11 + b'{"t": 2}'
_NAMES = json.dumps({"größe": [3, 5], "重み": {"offset": 4096}}, ensure_ascii=False).encode()
_MIB = 1 << 20

CASES = (
    Case("the example", (_file(),), _ORDER),
    Case("bytes after the header", (_file(b'{"sections": {"a": [1, 2]}}', _PADDED),), _ENDS),
    Case("names outside ASCII", (_file(_NAMES, _PADDED),), "The length counts bytes: slice bytes, then decode."),
    Case("a header of exactly 1 MiB", (_file(b'{"t": 1}'.ljust(_MIB)),), "1 MiB itself is still legal."),
    Case("one bit of the header changed", (_patched(30, b"0"),), _VALID_AND_WRONG),
    *(
        Case(f"byte {at} of the stored checksum changed", (_patched(at, bytes([_file()[at] ^ 0x40])),), _WHOLE)
        for at in (16, 20, 23)
    ),
    Case("no bytes", (b"",), _SHORT),
    Case("7 bytes", (_file()[:7],), _SHORT),
    Case("23 bytes", (_file()[:23],), _SHORT),
    Case("cut in the header", (_file()[:29],), _CUT),
    Case("the length is one too many", (_says_length(9, _file()),), _CUT),
    Case("magic NANOQWEM", (_patched(7, b"M"),), _OTHER_FILE),
    Case("magic XANOQWEN", (_patched(0, b"X"),), _OTHER_FILE),
    Case("magic nanoqwen", (_patched(0, b"nanoqwen"),), _OTHER_FILE),
    Case("version 0", (_patched(8, b"\0"),), _UNKNOWN),
    Case("version 999", (_patched(8, (999).to_bytes(4, "little")),), _UNKNOWN),
    Case("version 65537", (_patched(8, (65537).to_bytes(4, "little")),), _UNKNOWN),
    Case("length 0", (_file(b""),), _LIMIT),
    Case("length 2²⁴ + 8", (_says_length((1 << 24) + 8, _file()),), _LIMIT),
    Case("length 2³² − 1", (_says_length((1 << 32) - 1, _file()),), _LIMIT),
    Case("a header of 1 MiB and a byte", (_file(b'{"t": 1}'.ljust(_MIB + 1)),), _LIMIT),
)


EXERCISE = Exercise(
    lab="02_nanoqwen_file",
    solution=parse_header,
    cases=CASES,
    judge=_judge,
    show=_show,
    first_hints=(
        'The preamble is `struct.unpack_from("<8sIIQ", data)`: which four things does it hold, and when does it fail?',
        "Six refusals before `json.loads`, each a `FileFormatError`: cut preamble, magic, version, header length, cut "
        "header, checksum.",
    ),
    adapt=_with_refusals,
    hint_without_value=_hint_without_value,
)
