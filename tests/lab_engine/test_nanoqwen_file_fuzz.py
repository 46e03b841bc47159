"""Damage that nobody thought of: a file opens and reads, or a NanoqwenError says why not, in little memory."""

import contextlib
import copy
import functools
import itertools
import json
import math
import operator
import random
import resource
import string
import sys
import time
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


FILES = 10_000
SECONDS = 1.0
GROWTH = 100 << 20  # bytes
ROUNDS = 20

JSON_TEXTS = (
    *("0", "-0", "-1", "1", "8", "64", "128", "4096", "8192", "1.0", "128.0", "1e400", "-1e400", "NaN", "Infinity"),
    *(str(n) for n in (2**24, 2**31, 2**40 - 1, 2**63, 2**64, 10**4299)),
    *("9" * 5000, "true", "false", "null", "[]", "{}", "[[]]", "[0]", "[4096]", '{"a":1}', "[" * 1000 + "]" * 1000),
    *("[" * 100_000 + "]" * 100_000, '{"a":' * 50_000 + "1" + "}" * 50_000, f"[{','.join(['1099511627775'] * 300)}]"),
    *('""', r'"\ud800"', r'"\u0000"', r'"\n\r"', f'"{"x" * 5000}"', '"INT4"', '"F16"', '"JSON"', '"linear"'),
)
"""What is put in place of a value: JSON, and what Python's reader takes beside it."""


class Raw(dict):
    """JSON text that stands in a header as it is."""


def dump(value) -> str:
    if isinstance(value, Raw):
        return value["text"]
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{dump(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(dump, value)) + "]"
    return json.dumps(value)


def mutated_header(chance, header, places) -> bytes:
    """The header with one to three places replaced, removed, renamed or copied over; now and then bytes changed."""
    changed = copy.deepcopy(header)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        *way, last = chance.choice(places)
        with contextlib.suppress(LookupError, TypeError):  # an earlier change may have removed the place
            parent = functools.reduce(operator.getitem, way, changed)
            action = chance.random()
            if action < 0.7:
                parent[last] = Raw(text=chance.choice(JSON_TEXTS))
            elif action < 0.8:
                del parent[last]
            elif action < 0.9 and isinstance(parent, dict):
                parent[chance.choice(("", "a\nb", "\0", "dtype", "tokenizer", "sections"))] = parent.pop(last)
            else:
                parent[last] = functools.reduce(operator.getitem, chance.choice(places), header)
    text = bytearray(dump(changed).encode())
    for _ in range(chance.choice((0,) * 30 + (1, 4))):
        text[chance.randrange(len(text))] = chance.randrange(256)
    return bytes(text)


def mutated_bytes(chance, good) -> bytes:
    """Some bytes of preamble, header or data changed; the file perhaps cut or longer."""
    data = bytearray(good.data)
    for _ in range(chance.choice((1, 2, 8))):
        data[chance.randrange(good.length + 64 if chance.random() < 0.8 else len(data))] = chance.randrange(256)
    end = chance.random()
    return bytes(data[: chance.randrange(len(data))] if end < 0.2 else data + bytes(9) if end < 0.3 else data)


def resident() -> int:
    """The most bytes that this process had resident so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def open_in_bounds(path) -> bool:
    """Whether a file opens; what is refused must be in one short line, and both in time and memory."""
    most, start, opened = resident(), time.perf_counter(), True
    try:
        file = NanoqwenFile(path)
        file.verify()
    except NanoqwenError as error:
        opened = False
        assert "\n" not in str(error)  # noqa: PT017
        assert len(str(error)) < 2000  # noqa: PT017
    assert time.perf_counter() - start < SECONDS
    assert resident() - most < GROWTH
    return opened


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_ten_thousand_mutated_files_open_or_are_refused_in_time_and_memory(good, tmp_path, seed):
    chance, places, path = random.Random(seed), list(paths(good.header)), tmp_path / "fuzz.nanoqwen"
    outcomes = []
    for _ in range(FILES // ROUNDS):
        by_header = chance.random() < 0.75
        text = mutated_header(chance, good.header, places) if by_header else b""
        path.write_bytes(good.with_header(text) if by_header else mutated_bytes(chance, good))
        outcomes.append(open_in_bounds(path))
    assert 0 < sum(outcomes) < len(outcomes)


def names_of_three_letters(count):
    return list(
        map("".join, itertools.islice(itertools.product(string.ascii_letters + string.digits, repeat=3), count))
    )


def header_of(good, **changes) -> bytes:
    return json.dumps(good.header | changes, separators=(",", ":")).encode()


def one_section(good, **changes) -> bytes:
    sections = good.header["sections"]
    return header_of(good, sections=sections | {"model.norm.weight": sections["model.norm.weight"] | changes})


def keys_once(count) -> bytes:
    return json.dumps(dict.fromkeys(names_of_three_letters(count), 0), separators=(",", ":")).encode()


COSTLY = {
    "a shape of 400 numbers": lambda good: one_section(good, shape=[2**40 - 1] * 400),
    "a shape of 70,000 numbers": lambda good: one_section(good, shape=[2**40 - 1] * 70_000),
    "an offset of 4300 digits": lambda good: one_section(good, offset=(10**4299 // 4096) * 4096),
    "one of 20,000 keys twice": lambda _: keys_once(20_000)[:-1] + b',"aaa":0}',
    "116,000 layers": lambda good: header_of(
        good,
        sections=dict.fromkeys(names_of_three_letters(116_000), 0),
        config=good.header["config"] | {"num_layers": 116_000},
    ),
    "80,000 fields of a config": lambda good: header_of(good, config={f"k{i}": 0 for i in range(80_000)}),
}
"""Headers of at most 1 MiB, right in length and checksum, that cost much to believe."""


@pytest.mark.parametrize("name", COSTLY)
def test_a_header_that_is_costly_to_believe_is_refused_first(good, tmp_path, name):
    path = tmp_path / "costly.nanoqwen"
    text = COSTLY[name](good)
    assert len(text) <= 1 << 20
    path.write_bytes(good.with_header(text))
    assert not open_in_bounds(path)


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
