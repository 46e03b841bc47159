"""The eight damaged files of lab 02: each is refused in the words that the lab promises, and leaves nothing behind."""

import copy
import json
import re
import tempfile

import pytest
import xxhash

from lab_engine.damaged_files import DAMAGES, refusal_of, with_header
from lab_engine.nanoqwen_file import NanoqwenFile
from tests.lab_engine.file_damage import GoodFile


@pytest.fixture(scope="module")
def good(shared_file):
    """`shared_file` in parts."""
    return GoodFile(shared_file)


def written(data: bytes, tmp_path) -> NanoqwenFile:
    path = tmp_path / "other.nanoqwen"
    path.write_bytes(data)
    return NanoqwenFile(path)


def test_the_good_file_is_not_refused(good):
    assert refusal_of(good.data) is None


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.name)
def test_each_damage_is_refused_in_one_line_of_field_found_and_expected(good, damage):
    message = refusal_of(damage.apply(good.data))
    assert message is not None
    assert "\n" not in message
    assert re.fullmatch(".*".join(map(re.escape, damage.words)) + ".*", message)
    assert re.search(r": found .*, expected ", message)


def test_the_words_of_a_damage_are_said_of_no_other(good):
    messages = [refusal_of(damage.apply(good.data)) for damage in DAMAGES]
    for damage in DAMAGES:
        assert sum(all(word in message for word in damage.words) for message in messages) == 1


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.name)
def test_a_damage_leaves_the_good_bytes_and_the_disk_as_they_were(good, damage, tmp_path, monkeypatch):
    before = bytes(bytearray(good.data))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert refusal_of(damage.apply(good.data))
    assert good.data == before
    assert not list(tmp_path.iterdir())


def test_there_are_eight_with_different_names():
    assert len({damage.name for damage in DAMAGES}) == len(DAMAGES) == 8


def test_another_header_of_the_same_size_moves_nothing(good):
    assert with_header(good.data, good.header) == good.data


def test_a_longer_header_that_fits_moves_nothing(good):
    first = min(entry["offset"] for entry in good.header["sections"].values())
    data = with_header(good.data, {**good.header, "note": "x"})
    assert len(data) == len(good.data)
    assert data[first:] == good.data[first:]
    assert refusal_of(data) is None


@pytest.mark.parametrize("length", [4096, 8191, 100_000])
def test_a_header_that_does_not_fit_moves_every_section_by_whole_pages(good, tmp_path, length):
    file = written(with_header(good.data, {**good.header, "note": "x" * length}), tmp_path)
    shift = file.size - len(good.data)
    assert shift > 0
    assert shift % 4096 == 0
    assert file.verify() == []
    for name, entry in good.header["sections"].items():
        assert file.sections[name].offset == entry["offset"] + shift


def test_the_new_header_has_its_own_length_and_checksum(good):
    data = with_header(good.data, b'{"t": 1}')
    assert data[:8] == b"NANOQWEN"
    assert int.from_bytes(data[12:16], "little") == 8
    assert int.from_bytes(data[16:24], "little") == xxhash.xxh3_64_intdigest(b'{"t": 1}')
    assert data[24:32] == b'{"t": 1}'
    assert not data[32:4096].strip(b"\0")


def test_a_header_as_bytes_may_say_a_key_twice(good):
    text = json.dumps(good.header).replace('"config"', '"config": {}, "config"', 1)
    assert "stands twice" in refusal_of(with_header(good.data, text.encode()))


def test_the_header_of_the_caller_stays_as_it_is(good):
    header = {**copy.deepcopy(good.header), "note": "x" * 9000}
    before = copy.deepcopy(header)
    with_header(good.data, header)
    assert header == before
