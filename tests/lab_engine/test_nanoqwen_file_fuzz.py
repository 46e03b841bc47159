"""Damage that nobody thought of: a file opens and reads, or a NanoqwenError says why not, in little memory."""

import contextlib
import copy
import functools
import math
import operator
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab_engine.errors import NanoqwenError
from lab_engine.nanoqwen_file import NanoqwenFile
from lab_engine.tokenizer import Tokenizer
from tests.lab_engine.file_damage import GoodFile


@pytest.fixture(scope="module")
def good(shared_file):
    """`shared_file` in parts."""
    return GoodFile(shared_file)


values = st.one_of(st.none(), st.booleans(), st.integers(-1, 9), st.integers(), st.floats(), st.text(max_size=8))
values |= st.sampled_from([[], {}, [1], {"a": 1}])


def paths(value, prefix=()):
    """Every place in a JSON value, as the keys that lead to it."""
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from paths(value[key], (*prefix, key))
    if prefix:
        yield prefix


def open_and_read(path) -> None:
    """What inspect, verify and load do first; may raise NanoqwenError and nothing else."""
    tracemalloc.start()
    try:
        file = NanoqwenFile(path)
        assert all(math.prod(file.array(name).shape) for name in file.sections)
        file.verify()
        Tokenizer(file.tokenizer_spec())
    except NanoqwenError as error:
        assert "\n" not in str(error)  # noqa: PT017
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 32 << 20


@given(st.data())
def test_any_value_in_any_place_of_the_header_opens_or_is_refused(good, tmp_path, data):
    changed = copy.deepcopy(good.header)
    for *way, last in data.draw(st.lists(st.sampled_from(list(paths(good.header))), min_size=1, max_size=2)):
        with contextlib.suppress(LookupError, TypeError):  # the first change may have removed the second's place
            functools.reduce(operator.getitem, way, changed)[last] = data.draw(values)
    path = tmp_path / "fuzz.nanoqwen"
    path.write_bytes(good.with_header(changed))
    open_and_read(path)


@given(st.lists(st.tuples(st.integers(0, 2**30), st.integers(0, 255)), min_size=1, max_size=4), st.integers(0, 2**30))
def test_any_changed_or_missing_bytes_open_or_are_refused(good, tmp_path, changes, cut):
    data = bytearray(good.data)
    for place, byte in changes:
        data[place % (good.length + 64)] = byte
    path = tmp_path / "fuzz.nanoqwen"
    path.write_bytes(data[: cut % (2 * len(data))])
    open_and_read(path)


@given(st.binary(max_size=200))
def test_any_bytes_after_a_good_preamble_open_or_are_refused(good, tmp_path, text):
    path = tmp_path / "fuzz.nanoqwen"
    path.write_bytes(good.with_header(text))
    open_and_read(path)
