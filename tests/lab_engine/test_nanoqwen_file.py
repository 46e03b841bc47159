"""Reading a .nanoqwen file: every kind of damage is refused by name, at once, before anything is allocated."""

import copy
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import tracemalloc

import numpy as np
import pytest
import torch
import xxhash

from lab_engine.config import ModelConfig
from lab_engine.errors import FileFormatError, NanoqwenError
from lab_engine.int4 import dequantize, quantize_rows, unpack_words
from lab_engine.nanoqwen_file import (
    ALIGNMENT,
    PREAMBLE,
    NanoqwenFile,
    parse_header,
    scales_name,
    section_length,
    tensor_shapes,
)
from lab_engine.nanoqwen_writer import preamble_and_header
from lab_engine.tokenizer import Tokenizer
from tests.lab_engine.file_damage import GoodFile

Q = "model.layers.1.self_attn.q_proj.weight"


@pytest.fixture(scope="module")
def good(shared_file):
    """`shared_file` in parts."""
    return GoodFile(shared_file)


@pytest.fixture
def refusal(good, tmp_path):
    """Write damaged bytes, open them, and return the one-line message."""

    def refuse(data: bytes) -> str:
        path = tmp_path / "damaged.nanoqwen"
        path.write_bytes(data)
        start = time.perf_counter()
        with pytest.raises(FileFormatError) as error:
            NanoqwenFile(path)
        assert time.perf_counter() - start < 1
        message = str(error.value)
        assert str(path) in message
        assert "\n" not in message
        assert len(message) < 1000
        return message.replace(str(path), "")

    return refuse


@pytest.fixture
def refusal_of_header(good, refusal):
    """As `refusal`, for a change of the header (its checksum is right again)."""

    def refuse(change) -> str:
        changed = copy.deepcopy(good.header)
        change(changed)
        return refusal(good.with_header(changed))

    return refuse


# What a good file holds


def test_every_section_lies_where_the_format_says(shared_file):
    file = NanoqwenFile(shared_file)
    end = PREAMBLE.size + file.header_length
    for section in file.sections.values():
        assert section.offset % ALIGNMENT == 0
        assert 0 <= section.offset - end < ALIGNMENT
        end = section.offset + section.length
    assert end == file.size == shared_file.stat().st_size
    assert file.verify() == []


def test_the_preamble_is_24_little_endian_bytes(shared_file):
    data = shared_file.read_bytes()
    assert data[:8] == b"NANOQWEN"
    assert int.from_bytes(data[8:12], "little") == 1
    length = int.from_bytes(data[12:16], "little")
    assert int.from_bytes(data[16:24], "little") == xxhash.xxh3_64_intdigest(data[24 : 24 + length])
    assert set(json.loads(data[24 : 24 + length])) == {"config", "quantization", "sections"}


def test_three_biases_a_layer_are_stored_and_none_for_o(shared_file):
    names = [name for name in NanoqwenFile(shared_file).sections if name.endswith(".bias")]
    assert names == [f"model.layers.{layer}.self_attn.{p}_proj.bias" for layer in (0, 1) for p in "qkv"]


def test_each_matrix_is_followed_by_the_section_of_its_scales(shared_file):
    sections = list(NanoqwenFile(shared_file).sections.values())
    for matrix, scales in itertools.pairwise(sections):
        if matrix.dtype == "INT4":
            assert scales.name == scales_name(matrix.name)
            assert scales.shape == (matrix.shape[0], matrix.shape[1] // 128)


def test_a_section_holds_the_words_and_scales_of_its_tensor(shared_file, shared_checkpoint):
    from safetensors.torch import load_file

    file, tensors = NanoqwenFile(shared_file), load_file(shared_checkpoint / "model.safetensors")
    q, scales = quantize_rows(tensors[Q])
    assert np.array_equal(file.array(Q.replace("weight", "scales")), scales.numpy())
    assert torch.equal(unpack_words(torch.from_numpy(file.array(Q))), q)
    assert (dequantize(q, scales) - tensors[Q]).norm() < 0.11 * tensors[Q].norm()
    norm = "model.layers.0.input_layernorm.weight"
    assert np.array_equal(file.array(norm), tensors[norm].numpy())


def test_the_tokenizer_comes_back_from_the_file(shared_file, shared_checkpoint):
    spec = NanoqwenFile(shared_file).tokenizer_spec()
    assert spec == Tokenizer.from_hf_folder(shared_checkpoint).to_spec()


def test_writing_into_an_array_never_changes_the_file(shared_file, tmp_path):
    path = shutil.copy(shared_file, tmp_path / "copy.nanoqwen")
    file = NanoqwenFile(path)
    file.array("model.norm.weight")[:] = 7.0
    assert path.read_bytes() == shared_file.read_bytes()


def test_a_section_that_is_not_there_is_refused_with_the_nearest_name(shared_file):
    file = NanoqwenFile(shared_file)
    assert file.section(Q) is file.sections[Q]
    with pytest.raises(NanoqwenError) as error:
        file.array("model.layers.1.self_attn.q_proj.weigth")
    found = f"'model.layers.1.self_attn.q_proj.weigth': {shared_file.name} has none of this name"
    assert str(error.value) == f"section {found}; did you mean {Q}?"


def test_opening_4_gib_neither_reads_nor_allocates_them(good, tmp_path):
    """A sparse file whose every section but the first has moved behind a giant embedding."""
    header = copy.deepcopy(good.header)
    header["config"].update(vocab_size=2**24, hidden_size=512)
    shapes = {**tensor_shapes(ModelConfig.from_dict(header["config"])), "tokenizer": ("JSON", (2,))}
    offset = 65536
    for name, (dtype, shape) in shapes.items():
        length = section_length(dtype, shape)
        header["sections"][name].update(shape=list(shape), offset=offset, length=length)
        offset = -(-(offset + length) // ALIGNMENT) * ALIGNMENT
    path = tmp_path / "giant.nanoqwen"
    with path.open("wb") as file:
        file.write(preamble_and_header(header))
        file.truncate(header["sections"]["tokenizer"]["offset"] + 2)
    assert path.stat().st_size > 4 << 30
    tracemalloc.start()
    start = time.perf_counter()
    assert NanoqwenFile(path).array("model.embed_tokens.weight").shape == (2**24, 64)
    seconds, peak = time.perf_counter() - start, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert seconds < 1
    assert peak < 1 << 18  # the header and what it says, not the first MiB


OPEN_CUT_BEHIND_THE_MAPPING = """
import mmap, os, resource, sys
from pathlib import Path
from lab_engine.nanoqwen_file import NanoqwenFile

resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
path, end = Path(sys.argv[1]), int(sys.argv[2])
whole = mmap.mmap

def map_and_cut(*arguments, **keywords):
    mapping = whole(*arguments, **keywords)
    os.truncate(path, end)
    return mapping

mmap.mmap = map_and_cut
file = NanoqwenFile(path)
print(len(file.sections), flush=True)
file.array("tokenizer")[-1]
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs a kernel that lets one cut a file that is mapped")
def test_opening_touches_no_page_behind_the_header_s(shared_file, tmp_path):
    """The rest of the file is cut off behind the mapping: whoever touches it dies of SIGBUS, as the last line does."""
    path = shutil.copy(shared_file, tmp_path / "cut.nanoqwen")
    file = NanoqwenFile(shared_file)
    end = -(-(PREAMBLE.size + file.header_length) // ALIGNMENT) * ALIGNMENT
    assert end < file.size
    command = [sys.executable, "-c", OPEN_CUT_BEHIND_THE_MAPPING, str(path), str(end)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout == f"{len(file.sections)}\n"
    assert done.returncode == -signal.SIGBUS


# Damaged bytes


@pytest.mark.parametrize("size", [0, 7, 23])
def test_a_file_cut_in_the_preamble_is_refused(good, refusal, size):
    assert f"{size} bytes" in refusal(good.data[:size])


def test_a_file_cut_in_or_after_the_header_is_refused(good, refusal):
    header, data, length = good.header, good.data, good.length
    assert "header: found" in refusal(data[: PREAMBLE.size])
    assert "header: found" in refusal(data[: PREAMBLE.size + length - 1])
    assert "cut off" in refusal(data[: PREAMBLE.size + length])
    first = min(header["sections"].values(), key=lambda entry: entry["offset"])
    assert "model.embed_tokens.weight" in refusal(data[: first["offset"] + 100])
    assert "tokenizer" in refusal(data[:-1])


@pytest.mark.parametrize("place", range(8))
def test_one_changed_byte_of_the_magic_is_refused(good, refusal, place):
    data = bytearray(good.data)
    data[place] ^= 0x20
    assert "magic" in refusal(bytes(data))


@pytest.mark.parametrize("version", [0, 2, 999, 2**32 - 1])
def test_another_version_is_refused(good, refusal, version):
    assert f"version: found {version}" in refusal(good.data[:8] + version.to_bytes(4, "little") + good.data[12:])


@pytest.mark.parametrize("length", [0, 2**20 + 1, 2**31, 2**32 - 1])
def test_a_header_length_that_no_writer_makes_is_refused(good, refusal, length):
    assert "header length" in refusal(good.data[:12] + length.to_bytes(4, "little") + good.data[16:])


def test_a_header_length_longer_than_the_file_is_refused(refusal, good):
    assert "header: found" in refusal(good.data[:12] + (2**20).to_bytes(4, "little") + good.data[16:3000])


@pytest.mark.parametrize("place", [16, 23, 24, 100])
def test_a_changed_bit_in_checksum_or_header_is_refused(good, refusal, place):
    data = bytearray(good.data)
    data[place] ^= 1
    assert "header checksum" in refusal(bytes(data))


def test_bytes_after_the_last_section_are_refused(good, refusal):
    assert "end of file" in refusal(good.data + b"\0")


def test_a_changed_bit_in_a_section_is_found_by_verify_alone(good, tmp_path):
    header, data = good.header, good.data
    for name in (Q, "model.norm.weight", "tokenizer"):
        entry, damaged = header["sections"][name], bytearray(data)
        damaged[entry["offset"] + entry["length"] - 1] ^= 0x10
        path = tmp_path / "bit.nanoqwen"
        path.write_bytes(damaged)
        assert NanoqwenFile(path).verify() == [name]


@pytest.mark.parametrize("content", [b"[", b"{]", b"\xff" * 8, b"[1]", b"[" * 100_000, b"null"])
def test_a_damaged_tokenizer_section_is_named_when_it_is_read(good, tmp_path, content):
    header, data = good.header, good.data
    entry = header["sections"]["tokenizer"]
    path = tmp_path / "tokenizer.nanoqwen"
    path.write_bytes(data[: entry["offset"]] + content.ljust(entry["length"])[: entry["length"]])
    with pytest.raises(FileFormatError, match="section tokenizer"):
        NanoqwenFile(path).tokenizer_spec()


# A header that says what is not so


@pytest.mark.parametrize("offset", [-4096, 0, 1, 4097, 2**63, 1.5, "4096", None, True])
def test_an_offset_that_is_no_place_in_the_file_is_refused(refusal_of_header, offset):
    message = refusal_of_header(lambda header: header["sections"][Q].update(offset=offset))
    assert Q in message


def test_an_offset_that_is_not_aligned_is_refused_though_its_bytes_are_there(good, refusal):
    header = copy.deepcopy(good.header)
    header["sections"]["tokenizer"]["offset"] += 1
    data = good.with_header(header) + b" "
    assert "section tokenizer: offset: found" in refusal(data)
    assert "expected a multiple of 4096" in refusal(data)


def test_a_section_that_ends_after_the_file_is_refused(refusal_of_header, good):
    last = max(good.header["sections"], key=lambda name: good.header["sections"][name]["offset"])
    message = refusal_of_header(
        lambda header: header["sections"][last].update(offset=len(good.data) // 4096 * 4096 + 4096)
    )
    assert last in message


def test_two_sections_that_overlap_are_refused(refusal_of_header):
    def overlap(header):
        header["sections"][Q]["offset"] = header["sections"]["model.embed_tokens.weight"]["offset"]

    message = refusal_of_header(overlap)
    assert "overlaps" in message
    assert Q in message


@pytest.mark.parametrize(
    "shape", [[0, 256], [256, 0], [], [256], [-256, -256], [256.0, 256], "256", [2**40, 2**40], [[256]]]
)
def test_a_shape_that_is_none_is_refused(refusal_of_header, shape):
    assert Q in refusal_of_header(lambda header: header["sections"][Q].update(shape=shape))


def test_a_shape_other_than_the_configs_is_refused_though_its_length_is_right(refusal_of_header):
    message = refusal_of_header(lambda header: header["sections"][Q].update(shape=[128, 512]))
    assert f"section {Q}: found INT4 [128, 512], expected INT4 [256, 256]" in message


@pytest.mark.parametrize("dtype", ["INT8", "F32", "", None, 4, [], {}])
def test_another_dtype_is_refused(refusal_of_header, dtype):
    assert Q in refusal_of_header(lambda header: header["sections"][Q].update(dtype=dtype))


@pytest.mark.parametrize("length", [0, -1, 32767, 32769, "32768", None])
def test_a_length_that_does_not_fit_the_shape_is_refused(refusal_of_header, length):
    assert f"section {Q}: length" in refusal_of_header(lambda header: header["sections"][Q].update(length=length))


@pytest.mark.parametrize("layout", ["tiled", None, 0, ["linear"], {}])
def test_an_unknown_nibble_layout_is_refused(refusal_of_header, layout):
    assert f"section {Q}: layout" in refusal_of_header(lambda header: header["sections"][Q].update(layout=layout))


def test_a_nibble_layout_on_a_section_without_nibbles_is_refused(refusal_of_header):
    name = "model.norm.weight"
    assert name in refusal_of_header(lambda header: header["sections"][name].update(layout="linear"))


@pytest.mark.parametrize("checksum", [None, 7, []])
def test_a_checksum_that_is_no_text_is_refused(refusal_of_header, checksum):
    assert f"section {Q}: xxh3" in refusal_of_header(lambda header: header["sections"][Q].update(xxh3=checksum))


def test_a_missing_and_an_unexpected_section_are_named(refusal_of_header):
    assert Q in refusal_of_header(lambda header: header["sections"].pop(Q))
    assert "tokenizer" in refusal_of_header(lambda header: header["sections"].pop("tokenizer"))
    assert "extra" in refusal_of_header(lambda header: header["sections"].update(extra=header["sections"][Q]))
    assert "a\\nb" in refusal_of_header(lambda header: header["sections"].update({"a\nb": 1}))


def test_a_tokenizer_section_of_another_dtype_is_refused(refusal_of_header, good):
    length = good.header["sections"]["tokenizer"]["length"]
    change = {"dtype": "INT4", "shape": [2 * length], "layout": "linear"}
    assert "tokenizer" in refusal_of_header(lambda header: header["sections"]["tokenizer"].update(change))


@pytest.mark.parametrize("value", [0, -1, 10**4000, "2", None, True, [], {}])
@pytest.mark.parametrize("field", ["num_layers", "vocab_size", "num_q_heads", "rope_theta"])
def test_nonsense_in_the_config_is_refused_by_field(refusal_of_header, field, value):
    message = refusal_of_header(lambda header: header["config"].update({field: value}))
    assert f"config {field}: found" in message


def test_more_layers_than_sections_are_refused_before_they_are_listed(refusal_of_header):
    assert "num_layers" in refusal_of_header(lambda header: header["config"].update(num_layers=2**24))


@pytest.mark.parametrize("name", ["config", "quantization", "sections"])
@pytest.mark.parametrize("value", [None, [], 3, "x", {}])
def test_a_part_of_the_header_of_another_type_is_refused(refusal_of_header, name, value):
    assert name in refusal_of_header(lambda header: header.update({name: value}))


@pytest.mark.parametrize("change", [{"bits": 8}, {"group": 64}, {"symmetric": False}])
def test_another_quantization_is_refused(refusal_of_header, change):
    assert "quantization" in refusal_of_header(lambda header: header["quantization"].update(change))


@pytest.mark.parametrize(
    "text",
    [
        b"[]",
        b"3",
        b"{",
        b"\xff{}",
        b"{}".decode().encode("utf-16"),
        b"[" * 50_000,
        b'{"a": ' + b"9" * 5000 + b"}",
        b"NaN",
    ],
)
def test_a_header_that_is_no_utf8_json_object_is_refused(good, refusal, text):
    assert "header: " in refusal(good.with_header(text))


def test_a_key_that_stands_twice_is_refused(good, refusal):
    header = good.header
    text = json.dumps(header, separators=(",", ":"))
    twice = text.replace(f'"{Q}":', f'"{Q}":{json.dumps(header["sections"][Q])},"{Q}":', 1)
    assert "stands twice" in refusal(good.with_header(twice.encode()))


def test_a_long_wrong_value_is_not_printed_whole(refusal_of_header):
    assert len(refusal_of_header(lambda header: header["sections"][Q].update(dtype="x" * 2000))) < 300
    assert len(refusal_of_header(lambda header: header["config"].update(num_layers="x" * 2000))) < 300


def test_a_path_that_cannot_be_opened_is_named(tmp_path):
    for path in (tmp_path / "missing.nanoqwen", tmp_path):
        with pytest.raises(FileFormatError, match=path.name):
            NanoqwenFile(path)


def test_parse_header_needs_no_file():
    for data, named in ((b"", "preamble"), (b"GGUF" + bytes(20), "magic")):
        with pytest.raises(FileFormatError, match=named):
            parse_header(data)


def test_an_int4_section_takes_half_a_byte_a_weight(shared_file):
    file = NanoqwenFile(shared_file)
    shapes = tensor_shapes(file.config)
    assert section_length(*shapes[Q]) == file.sections[Q].length == 256 * 256 // 2


def test_a_pipe_is_refused_without_waiting_for_its_writer(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileFormatError, match="no regular file"):
        NanoqwenFile(tmp_path / "pipe")
