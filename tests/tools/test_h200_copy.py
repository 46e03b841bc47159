"""The recording `copy`, with a stand-in for the GPU."""

import pytest

from lab_engine import SHIPPED_MODEL, data_path, file_pages
from lab_engine.device_copy import WAYS
from lab_engine.errors import RecordingError
from tests.lab_engine.gpu_stand_in import PAGEABLE, PINNED, StandInGpu
from tools import h200_copy, h200_machine

PATH = data_path(SHIPPED_MODEL)
BYTES = 5_996_354


def test_times_are_milliseconds_and_rates_gigabytes_a_second(monkeypatch):
    StandInGpu(monkeypatch)
    monkeypatch.setattr(file_pages, "count_cached", lambda _: (1512, 1512))
    data = h200_copy.measure(PATH)
    assert (data["bytes"], data["pages"], data["pages_in_page_cache"]) == (BYTES, 1512, 1512)
    for way, rate in zip(WAYS, (PAGEABLE, PAGEABLE, PINNED), strict=True):
        found = data["ways"][way]
        assert found["ms"] == pytest.approx(1e3 * BYTES * rate, abs=5e-3)
        assert found["gb_per_second"] == pytest.approx(1e-9 / rate, abs=5e-3)
        assert found["ms_spread"] == 0


def test_a_file_that_is_not_all_in_memory_is_not_recorded(monkeypatch):
    StandInGpu(monkeypatch)
    monkeypatch.setattr(file_pages, "count_cached", lambda _: (1511, 1512))
    with pytest.raises(RecordingError, match="1511 of 1512 pages are in the page cache; expected all"):
        h200_copy.measure(PATH)


def test_another_gpu_is_refused_before_anything_is_written(monkeypatch):
    monkeypatch.setattr(h200_machine, "nvidia_smi", lambda *_: ["NVIDIA H100"])
    with pytest.raises(RecordingError, match="device NVIDIA H100: expected an NVIDIA H200"):
        h200_copy.record()


def test_the_link_is_what_nvidia_smi_prints(monkeypatch):
    said = {"pcie.link.gen.current": "5", "pcie.link.width.current": "16"}
    monkeypatch.setattr(h200_machine, "nvidia_smi", lambda *fields: [said[field] for field in fields])
    assert h200_machine.pcie_link() == {"generation": "5", "lanes": "16"}
