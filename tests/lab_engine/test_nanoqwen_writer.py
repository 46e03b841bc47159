"""Writing a .nanoqwen file: complete under its final name, or not there at all."""

import errno
import os

import numpy as np
import pytest

from lab_engine.errors import FileFormatError
from lab_engine.nanoqwen_file import NUMPY_DTYPES, NanoqwenFile, section_length, tensor_shapes
from lab_engine.nanoqwen_writer import NanoqwenWriter


@pytest.fixture(scope="module")
def config(shared_file):
    return NanoqwenFile(shared_file).config


def random_pieces(config, seed=0):
    """(name, array) of every tensor section, in file order."""
    generator = np.random.default_rng(seed)
    for name, (dtype, shape) in tensor_shapes(config).items():
        content = generator.integers(0, 256, section_length(dtype, shape), dtype=np.uint8)
        yield name, content.view(NUMPY_DTYPES[dtype])


def write(path, config, seed=0, stop_before=None, failure=None):
    """A whole file, or one that fails before the section of this name."""
    with NanoqwenWriter(path, config, {"a": "ü"}, "linear") as writer:
        for name, array in random_pieces(config, seed):
            if name == stop_before:
                raise failure
            writer.append(name, array)


def test_what_was_appended_can_be_read(config, tmp_path):
    write(tmp_path / "m.nanoqwen", config)
    file = NanoqwenFile(tmp_path / "m.nanoqwen")
    for name, array in random_pieces(config):
        assert file.array(name).tobytes() == array.tobytes()
    assert file.tokenizer_spec() == {"a": "ü"}
    assert file.verify() == []
    assert {section.layout for section in file.sections.values()} == {None, "linear"}


def test_pieces_of_two_sections_may_be_interleaved(config, tmp_path):
    write(tmp_path / "whole.nanoqwen", config)
    with NanoqwenWriter(tmp_path / "pieces.nanoqwen", config, {"a": "ü"}, "linear") as writer:
        halves = [(name, *np.array_split(array, 2)) for name, array in random_pieces(config)]
        for place in (1, 2):
            for name, *parts in halves:
                writer.append(name, parts[place - 1])
    assert (tmp_path / "pieces.nanoqwen").read_bytes() == (tmp_path / "whole.nanoqwen").read_bytes()


def test_a_piece_of_another_dtype_or_too_long_is_refused(config, tmp_path):
    name = "model.norm.weight"
    for piece in (np.zeros(config.hidden_size, np.float16), np.zeros(config.hidden_size + 1, np.float32)):
        with (
            pytest.raises(FileFormatError, match=name),
            NanoqwenWriter(tmp_path / "m.nanoqwen", config, {}, "linear") as writer,
        ):
            writer.append(name, piece)
    assert list(tmp_path.iterdir()) == []


def write_without_last_byte(path, config, short):
    with NanoqwenWriter(path, config, {}, "linear") as writer:
        for name, array in random_pieces(config):
            writer.append(name, array[:-1] if name == short else array)


def test_a_section_left_unfinished_is_refused_by_name(config, tmp_path):
    with pytest.raises(FileFormatError, match=r"model\.norm\.weight.*of 1024 bytes"):
        write_without_last_byte(tmp_path / "m.nanoqwen", config, "model.norm.weight")
    assert list(tmp_path.iterdir()) == []


STOPS = [
    "model.embed_tokens.weight",
    "model.embed_tokens.scales",
    "model.layers.1.mlp.up_proj.scales",
    "model.norm.weight",
]
FAILURES = [RuntimeError("power"), KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device")]


@pytest.mark.parametrize("stop_before", STOPS)
@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: type(failure).__name__)
def test_a_failure_leaves_no_file_and_a_rerun_is_byte_identical(config, tmp_path, stop_before, failure):
    path = tmp_path / "m.nanoqwen"
    expected = FileFormatError if isinstance(failure, OSError) else type(failure)
    with pytest.raises(expected):
        write(path, config, stop_before=stop_before, failure=failure)
    assert list(tmp_path.iterdir()) == []
    write(path, config)
    write(tmp_path / "clean.nanoqwen", config)
    assert path.read_bytes() == (tmp_path / "clean.nanoqwen").read_bytes()


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: type(failure).__name__)
def test_a_failure_leaves_the_old_file_intact(config, tmp_path, failure):
    path = tmp_path / "m.nanoqwen"
    write(path, config, seed=1)
    old = path.read_bytes()
    with pytest.raises((type(failure), FileFormatError)):
        write(path, config, seed=2, stop_before=STOPS[2], failure=failure)
    assert path.read_bytes() == old
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failure_in_the_very_last_step_leaves_nothing(config, tmp_path, monkeypatch, call):
    def fail(*_):
        raise OSError(errno.EIO, "Input/output error")

    from pathlib import Path

    monkeypatch.setattr(*((os, "fsync") if call == "fsync" else (Path, "replace")), fail)
    with pytest.raises(FileFormatError, match="Input/output error"):
        write(tmp_path / "m.nanoqwen", config)
    assert list(tmp_path.iterdir()) == []


def test_no_header_points_at_bytes_that_are_not_there_yet(config, tmp_path):
    """Until the last moment the temporary file has no magic: even by its own name it cannot be taken for complete."""
    with NanoqwenWriter(tmp_path / "m.nanoqwen", config, {}, "linear") as writer:
        for name, array in random_pieces(config):
            writer.append(name, array)
        (temporary,) = tmp_path.iterdir()
        assert temporary.read_bytes()[:8] == bytes(8)
    assert [path.name for path in tmp_path.iterdir()] == ["m.nanoqwen"]


@pytest.mark.parametrize("place", ["missing/m.nanoqwen", "."])
def test_a_place_that_takes_no_file_is_named_before_any_work(config, tmp_path, place):
    with (
        pytest.raises(FileFormatError, match=str(tmp_path)),
        NanoqwenWriter(tmp_path / place, config, {}, "linear"),
    ):
        pytest.fail("the writer opened")


def test_a_read_only_folder_is_named(config, tmp_path):
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    tmp_path.chmod(0o500)
    with pytest.raises(FileFormatError, match="Permission denied"):
        write(tmp_path / "m.nanoqwen", config)
