"""Which pages the kernel brings when a cold file is touched. Needs Linux and a folder on a disk, else they skip."""

import errno
import os
import sys
import tempfile
from pathlib import Path

import pytest

from lab_engine import SHIPPED_MODEL, data_path
from lab_engine.errors import FileFormatError, NanoqwenError
from lab_engine.file_pages import count_cached, time_opening, touch

SHIPPED = data_path(SHIPPED_MODEL)
GATE = "model.layers.0.mlp.gate_proj.weight"
ROW_21 = 1163264 + 4032


@pytest.fixture
def touched():
    """touch, or a skip with the reason where this machine cannot tell."""

    def measure(*arguments, **keywords):
        try:
            return touch(*arguments, **keywords)
        except NanoqwenError as error:
            pytest.skip(str(error))

    return measure


def test_without_read_ahead_exactly_the_pages_of_the_row_are_read(touched):
    found = touched(SHIPPED, ROW_21, 192, read_ahead=False)
    if found.page_bytes != 4096:
        pytest.skip(f"pages of {found.page_bytes} bytes")
    assert found.needed == (284, 285)
    assert found.cached == (284, 285)
    assert found.mapped == (284, 285)
    assert found.num_pages == 1512


def test_with_read_ahead_the_needed_pages_and_neighbours_are_read(touched):
    found = touched(SHIPPED, ROW_21, 192)
    assert set(found.needed) <= set(found.mapped) <= set(found.cached)
    assert len(found.cached) >= len(found.needed)
    assert found.milliseconds > 0


@pytest.mark.parametrize(("offset", "length"), [(6192962, 1), (6192961, 2), (0, 0), (5, -3), (-5, 3), (-5, 5)])
def test_bytes_outside_the_file_are_refused(touched, offset, length):
    touched(SHIPPED, 0, 1)
    with pytest.raises(NanoqwenError, match=rf"^bytes {offset} to {offset + length}: \S+ has 6192962, expected one"):
        touch(SHIPPED, offset, length)


def test_an_empty_file_has_no_pages_and_no_bytes(touched, tmp_path):
    touched(SHIPPED, 0, 1)
    empty = tmp_path / "empty.nanoqwen"
    empty.touch()
    assert count_cached(empty) == (0, 0)
    with pytest.raises(NanoqwenError, match=rf"^bytes 0 to 1: {empty} has 0, expected one"):
        touch(empty, 0, 1)
    with pytest.raises(FileFormatError, match=rf"^{empty}: preamble: found 0 bytes"):
        time_opening(empty, GATE, 0)


def test_a_section_or_row_that_is_not_there_is_refused_in_words(touched):
    touched(SHIPPED, 0, 1)
    with pytest.raises(NanoqwenError, match=rf"^section 'x': {SHIPPED.name} has none of this name$"):
        time_opening(SHIPPED, "x", 0)
    with pytest.raises(NanoqwenError, match=f"^row: found 896, expected 0 to 895, the rows of {GATE}$"):
        time_opening(SHIPPED, GATE, 896)


def test_a_full_disk_is_named_by_what_was_to_be_written(touched, monkeypatch):
    """The kernel's refusal of fsync has no file's name."""
    touched(SHIPPED, 0, 1)

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(NanoqwenError) as error:
        touch(SHIPPED, 0, 1)
    where = f"a copy of {SHIPPED} in the folder for temporary files (TMPDIR)"
    assert str(error.value) == f"pages of a mapping: {where}: No space left on device"


def test_a_cold_file_waits_for_the_disk_and_a_warm_one_does_not(touched):
    """Times depend on the machine's load, faults do not."""
    touched(SHIPPED, 0, 1)
    cold, warm = time_opening(SHIPPED, GATE, 21, rounds=3)
    assert cold.disk_faults >= 1
    assert warm.disk_faults == 0
    assert min(cold.open_ms, cold.row_ms, warm.open_ms, warm.row_ms) > 0


def test_a_folder_in_memory_is_refused_with_what_to_do(touched, monkeypatch):
    touched(SHIPPED, 0, 1)
    memory = Path("/dev/shm")
    if not memory.is_dir():
        pytest.skip("no folder in memory here")
    monkeypatch.setattr(tempfile, "tempdir", str(memory))
    with pytest.raises(NanoqwenError, match=r"^a cold file: not available here: \d+ pages of .*; set TMPDIR to"):
        touch(SHIPPED, 0, 1)


@pytest.mark.parametrize(
    "action",
    [lambda: touch(SHIPPED, 0, 1), lambda: time_opening(SHIPPED, GATE, 0), lambda: count_cached(SHIPPED)],
    ids=["touch", "time_opening", "count_cached"],
)
def test_another_system_is_refused_by_name(monkeypatch, action):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(NanoqwenError, match="not available here: found darwin, expected Linux"):
        action()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
def test_a_missing_file_is_named(tmp_path):
    absent = tmp_path / "absent.nanoqwen"
    with pytest.raises(NanoqwenError, match=r"absent\.nanoqwen: No such file"):
        touch(absent, 0, 1)
    with pytest.raises(NanoqwenError, match=r"absent\.nanoqwen: No such file"):
        count_cached(absent)
    with pytest.raises(NanoqwenError, match=r"absent\.nanoqwen: cannot be opened \(No such file"):
        time_opening(absent, GATE, 0)


def test_the_pages_of_a_file_that_was_just_read_are_counted(touched):
    touched(SHIPPED, 0, 1)
    SHIPPED.read_bytes()
    assert count_cached(SHIPPED) == (1512, 1512)
