import dataclasses
import json

import pytest

from lab_engine import nanoqwen_file
from lab_engine.checks.lab02_damage import EXERCISE as DAMAGE
from lab_engine.checks.lab02_damage import damage_file
from lab_engine.damaged_files import DAMAGES, refusal_of, with_header


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
    assert f"The check that refuses one of the eight: {damage.name}." in verdict.hint


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
    "length 0": (
        lambda data: data[:12] + bytes(4) + data[16:],
        "The check that refuses one of the eight: header of 4 GiB",
    ),
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
    "a path": (lambda _: "damaged.nanoqwen", "not a path"),
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
