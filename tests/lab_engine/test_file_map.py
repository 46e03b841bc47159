"""What every byte means and which pages it lies on, against a reading with struct and json, and counts by hand."""

import itertools
import json
import math
import struct
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab_engine import SHIPPED_MODEL, data_path
from lab_engine.bench.models import QWEN_05B, QWEN_7B
from lab_engine.checkpoint import Checkpoint
from lab_engine.config import ModelConfig
from lab_engine.decoder_trace import bytes_per_stage
from lab_engine.errors import NanoqwenError
from lab_engine.file_map import (
    byte_meaning,
    group_region,
    header_entries,
    pages_per_row,
    pages_touched,
    preamble_regions,
    regions,
    row_region,
    scale_region,
    sections_of_a_step,
    step_pages,
)
from lab_engine.int4 import unpack_words
from lab_engine.nanoqwen_file import NanoqwenFile
from lab_engine.nanoqwen_writer import NanoqwenWriter
from tests.lab_engine.test_nanoqwen_writer import random_pieces

DATA = data_path(SHIPPED_MODEL).read_bytes()
HEADER_LENGTH = struct.unpack_from("<I", DATA, 12)[0]
HEADER = DATA[24 : 24 + HEADER_LENGTH]
SECTIONS = json.loads(HEADER)["sections"]
GATE = "model.layers.0.mlp.gate_proj.weight"


@pytest.fixture(scope="module")
def file():
    return NanoqwenFile(data_path(SHIPPED_MODEL))


@pytest.fixture(scope="module")
def linear_file(tmp_path_factory):
    """An untied file of random bytes in the layout `linear`."""
    config = ModelConfig(256, 384, 1, 2, 2, 128, 10, 32, 1e6, 1e-6, tie_embeddings=False)
    path = tmp_path_factory.mktemp("linear") / "linear.nanoqwen"
    with NanoqwenWriter(path, config, {"a": "ü"}, "linear") as writer:
        for name, array in random_pieces(config):
            writer.append(name, array)
    return NanoqwenFile(path)


# Regions ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["file", "linear_file"])
def test_every_byte_belongs_to_exactly_one_region(which, request):
    found = regions(request.getfixturevalue(which))
    size = request.getfixturevalue(which).size
    assert found[0].offset == 0
    assert all(one.stop == after.offset for one, after in itertools.pairwise(found))
    assert found[-1].stop == size
    assert all(region.length > 0 for region in found)


def test_the_sections_lie_where_the_header_says_and_the_rest_is_preamble_header_and_padding(file):
    found = {(one.name, one.kind): (one.offset, one.length) for one in regions(file)}
    for name, entry in SECTIONS.items():
        assert found.pop((name, entry["dtype"])) == (entry["offset"], entry["length"])
    assert found.pop(("header", "header")) == (24, HEADER_LENGTH)
    assert {kind for _, kind in found} == {"preamble", "padding"}


def test_padding_is_zeros_and_ends_before_a_multiple_of_4096(file):
    padding = [one for one in regions(file) if one.kind == "padding"]
    assert padding[0].name == "padding before model.embed_tokens.weight"
    assert (padding[0].offset, padding[0].length) == (16650, 3830)
    for one in padding:
        assert one.stop % 4096 == 0
        assert one.length < 4096
        assert not any(DATA[one.offset : one.stop])


def test_the_preamble_has_the_fields_that_struct_reads():
    fields = {one.name: DATA[one.offset : one.stop] for one in preamble_regions()}
    magic, version, length, checksum = struct.unpack_from("<8sIIQ", DATA)
    assert fields["magic"] == magic == b"NANOQWEN"
    assert int.from_bytes(fields["version"], "little") == version
    assert int.from_bytes(fields["header length"], "little") == length
    assert int.from_bytes(fields["checksum"], "little") == checksum
    assert list(fields) == ["magic", "version", "header length", "checksum"]


def test_each_entry_of_the_header_is_its_section_s_json():
    entries = header_entries(HEADER)
    texts = {one.name: DATA[one.offset : one.stop].decode() for one in entries}
    assert {name: json.loads("{" + text + "}")[name] for name, text in texts.items()} == {
        **{name: value for name, value in json.loads(HEADER).items() if name != "sections"},
        **SECTIONS,
    }
    assert [one.name for one in entries] == ["config", "quantization", *SECTIONS]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(
    outer=st.dictionaries(st.text().filter(lambda name: name != "sections"), json_values, max_size=4),
    inner=st.dictionaries(st.text(), json_values, max_size=4),
    ascii_only=st.booleans(),
    indent=st.sampled_from([None, 0, 3]),
)
def test_entries_are_found_in_any_json_object_in_any_spelling(outer, inner, ascii_only, indent):
    header = json.dumps({**outer, "sections": inner}, ensure_ascii=ascii_only, indent=indent).encode()
    entries = header_entries(header)
    members = [*outer.items(), *inner.items()]
    assert len(entries) == len(members)
    for one, (name, value) in zip(entries, members, strict=True):
        assert json.loads(b"{" + header[one.offset - 24 : one.stop - 24] + b"}") == {name: value}


# Pages --------------------------------------------------------------------------------------------------------------


@given(offset=st.integers(0, 40_000), length=st.integers(0, 20_000))
def test_pages_are_those_of_the_bytes_one_by_one(offset, length):
    assert list(pages_touched(offset, length)) == sorted({byte // 4096 for byte in range(offset, offset + length)})


@given(row_bytes=st.integers(1, 10_000))
def test_pages_of_a_row_repeat_and_equal_those_of_its_bytes(row_bytes):
    pattern = pages_per_row(row_bytes)
    for row in (0, 1, 2, len(pattern) - 1, len(pattern), 2 * len(pattern) + 1):
        first, last = row * row_bytes // 4096, ((row + 1) * row_bytes - 1) // 4096
        assert pattern[row % len(pattern)] == last - first + 1


@pytest.mark.parametrize(
    ("k", "period", "crossing"),
    [(384, 64, [21, 42]), (512, 16, []), (3584, 16, [2, 4, 6, 9, 11, 13]), (896, 64, [9, 18, 27, 36, 45, 54])],
)
def test_rows_that_lie_on_two_pages(k, period, crossing):
    pattern = pages_per_row(k // 2)
    assert len(pattern) in (period, period // 2)  # the pattern may repeat sooner
    assert [row for row in range(period) if pattern[row % len(pattern)] == 2] == crossing
    assert set(pattern) <= {1, 2}


def test_every_row_of_the_7b_s_down_proj_spans_3_or_4_pages():
    assert set(pages_per_row(18944 // 2)) == {3, 4}


def test_row_21_of_a_matrix_of_384_columns_is_bytes_4032_to_4223_of_its_section(file):
    section = file.sections[GATE]
    row = row_region(section, 21)
    assert (row.offset - section.offset, row.stop - 1 - section.offset) == (4032, 4223)
    assert row.pages == range(section.offset // 4096, section.offset // 4096 + 2)


def test_a_step_of_the_shipped_model_touches_all_pages_but_header_and_tokenizer(file):
    """By hand: 1512 pages, of which the header (24 + 16626 bytes) has 5 and the tokenizer (122690 bytes) has 30."""
    assert -(-len(DATA) // 4096) == 1512
    assert step_pages(file.config).total == 1512 - 5 - 30 == 1477
    touched = {page for name in sections_of_a_step(file.config) for page in pages_of(SECTIONS[name])}
    assert touched == set(range(5, 1512 - 30))


def pages_of(entry):
    return range(entry["offset"] // 4096, -(-(entry["offset"] + entry["length"]) // 4096))


def test_pages_of_a_step_by_kind(file):
    """By hand, a layer's nibbles: q, o 24 pages, k, v 12, gate, up, down 42; 13 norms and 18 biases fill no page."""
    found = step_pages(file.config)
    assert found.matrices == 192 + 6 * (2 * 24 + 2 * 12 + 3 * 42) == 1380
    assert found.scales == 6 + 6 * (2 * 1 + 2 * 1 + 3 * 2) == 66
    assert found.vectors == 2 * 6 + 1 + 3 * 6 == 31
    assert found.embedding_row == 0


def test_a_step_of_the_7b_touches_890439_pages_and_its_embedding_row():
    """By hand, a layer: q, o 1617 pages of nibbles and scales, k, v 231, gate, up, down 8547, norms 8, biases 6."""
    layer = 2 * 1617 + 2 * 231 + 3 * 8547 + 8 + 6
    head = 66528 + 2079
    assert step_pages(QWEN_7B).total == 28 * layer + head + 4 + 2 == 890_441
    assert step_pages(QWEN_7B, token=2).embedding_row == 3  # row 2 of 1792 bytes crosses a page, its scales do not


def test_matrices_hold_the_bytes_that_the_stages_read(file):
    for config in (file.config, QWEN_05B, QWEN_7B):
        stages = bytes_per_stage(config, context=1)
        weights = sum(count for stage, count in stages.items() if stage not in ("attention", "embed"))
        pages = step_pages(config)
        assert 0 <= (pages.matrices + pages.scales) * 4096 - weights < 4096 * 14 * (config.num_layers + 1)


# Rows, groups, bytes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["file", "linear_file"])
@given(data=st.data())
def test_a_byte_s_nibbles_are_the_codes_and_weights_that_the_engine_unpacks(which, data, request):
    file = request.getfixturevalue(which)
    matrices = [one for one in file.sections.values() if one.dtype == "INT4"]
    section = data.draw(st.sampled_from(matrices))
    row = data.draw(st.integers(0, section.shape[0] - 1))
    group = data.draw(st.integers(0, section.shape[1] // 128 - 1))
    byte = data.draw(st.integers(0, 63))
    found = byte_meaning(file, section.name, row, group, byte)
    codes = unpack_words(words_of(file, section, row), section.layout)[0].tolist()
    whole = file.path.read_bytes()
    scale = struct.unpack_from("<e", whole, found.scale_offset)[0]
    assert found.value == whole[found.offset]
    assert found.word == struct.unpack_from("<I", whole, found.word_offset)[0]
    assert found.scale == scale or math.isnan(scale)  # random bytes may be a NaN
    for nibble in (found.low, found.high):
        assert nibble.q == codes[nibble.weight] == nibble.n - 8
        assert nibble.n == found.word >> 4 * nibble.place & 15
        assert nibble.value == nibble.q * scale or math.isnan(scale)
    assert found.value == found.high.n << 4 | found.low.n


def words_of(file, section, row):
    import torch

    return torch.from_numpy(file.array(section.name)[row : row + 1].copy())


def test_regions_nest(file):
    section = file.sections[GATE]
    row, group = row_region(section, 895), group_region(section, 895, 2)
    assert (row.stop, row.length) == (section.offset + section.length, 192)
    assert (group.stop, group.length) == (row.stop, 64)
    scales = file.sections["model.layers.0.mlp.gate_proj.scales"]
    assert scale_region(scales, 895, 2).stop == scales.offset + scales.length


def test_the_course_s_group_reads_as_the_checkpoint_s_weights(file):
    """Row 5, group 0 of layer 0's gate_proj: each weight is within half a step of the checkpoint's own."""
    weights = Checkpoint(data_path("tiny-coder")).tensor(GATE)[5, :128].float().tolist()
    for byte in range(64):
        found = byte_meaning(file, GATE, 5, 0, byte)
        for nibble in (found.low, found.high):
            clipped = nibble.q in (-8, 7)
            assert clipped or abs(nibble.value - weights[nibble.weight]) <= abs(found.scale) / 2 + 1e-6


def test_value_shuffle_puts_weights_0_and_2_into_the_first_byte_and_linear_0_and_1(file, linear_file):
    shuffled, plain = (
        byte_meaning(one, GATE, 0, 1, 4) for one in (file, linear_file)
    )  # the second word of the second group
    assert (shuffled.low.weight, shuffled.high.weight) == (136, 138)
    assert (plain.low.weight, plain.high.weight) == (136, 137)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda f: row_region(f.sections[GATE], 896), f"row: found 896, expected 0 to 895, the rows of {GATE}"),
        (lambda f: row_region(f.sections[GATE], -1), "row: found -1, expected 0 to 895"),
        (lambda f: byte_meaning(f, GATE, 0, 3, 0), f"group: found 3, expected 0 to 2, the groups of a row of {GATE}"),
        (lambda f: byte_meaning(f, GATE, 0, 0, 64), "byte: found 64, expected 0 to 63, the bytes of a group"),
        (lambda f: byte_meaning(f, "model.norm.weight", 0, 0, 0), "model.norm.weight: found F32, expected INT4"),
        (lambda f: byte_meaning(f, "tokenizer", 0, 0, 0), "tokenizer: found JSON, expected INT4; only a matrix has"),
        (lambda f: byte_meaning(f, GATE + "s", 0, 0, 0), f"has none of this name; did you mean {GATE}?"),
        (lambda f: group_region(f.sections["tokenizer"], 0, 0), "tokenizer: found JSON, expected INT4"),
        (lambda _: step_pages(QWEN_7B, 152064), "token: found 152064, expected 0 to 152063"),
    ],
)
def test_what_is_not_there_is_refused_with_the_range(file, call, message):
    with pytest.raises(NanoqwenError) as error:
        call(file)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_the_map_needs_no_torch():
    code = "import sys, lab_engine.file_map, lab_engine.file_pages; print('torch' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert run.stdout == "False\n"
