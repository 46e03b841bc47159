"""Copies to a GPU, with a stand-in for it: what is copied, what is timed, and that other bytes are noticed."""

import pytest

from lab_engine import SHIPPED_MODEL, data_path
from lab_engine.device_copy import WAYS, time_copies
from lab_engine.errors import NanoqwenError
from lab_engine.nanoqwen_file import NanoqwenFile
from tests.lab_engine.gpu_stand_in import PAGEABLE, PINNED, StandInGpu

PATH = data_path(SHIPPED_MODEL)
BYTES = 5_996_354
"""All sections: the file less header and padding."""


def test_every_way_copies_all_sections_and_waits_for_the_last_byte(monkeypatch):
    StandInGpu(monkeypatch)
    found = time_copies(PATH, repeats=3)
    assert [copy.way for copy in found] == list(WAYS)
    assert {copy.num_bytes for copy in found} == {BYTES}
    assert [copy.num_copies for copy in found] == [len(NanoqwenFile(PATH).sections)] * 2 + [1]
    for copy, rate in zip(found, (PAGEABLE, PAGEABLE, PINNED), strict=True):
        assert copy.seconds == pytest.approx([BYTES * rate] * 3)


def test_the_median_is_not_the_mean(monkeypatch):
    gpu = StandInGpu(monkeypatch)
    copies = iter([1, 1, 2, 30])  # the first of the last way is not counted
    copy = gpu.copy

    def slower(tensor):
        copied = copy(tensor)
        if tensor is gpu.pinned:
            gpu.pending *= next(copies)
        return copied

    gpu.copy = slower
    pinned = time_copies(PATH, repeats=3)[-1]
    assert pinned.median_seconds == pytest.approx(2 * BYTES * PINNED)


@pytest.mark.parametrize("at", [0, -1])
def test_a_byte_that_arrives_changed_is_noticed(monkeypatch, at):
    def damage(copied):
        copied[at] ^= 1
        return copied

    StandInGpu(monkeypatch, damage)
    with pytest.raises(NanoqwenError, match=f"{WAYS[0]}: the bytes on the GPU are not those of the file"):
        time_copies(PATH)


def test_a_machine_without_a_gpu_is_told_so(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(NanoqwenError, match=r"^PyTorch finds no NVIDIA GPU here$"):
        time_copies(PATH)
