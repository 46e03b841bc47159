"""What a file costs here, as tables whose text never changes; and the bar of a conversion."""

import pytest

import widgets.file_tables
from lab_engine import SHIPPED_MODEL, data_path
from lab_engine.bench.models import QWEN_7B
from lab_engine.device_copy import WAYS, CopyTimes
from lab_engine.errors import NanoqwenError
from lab_engine.file_comparison import ReadCost
from lab_engine.file_map import Region
from lab_engine.file_pages import OpenTimes, TouchedPages
from lab_engine.nanoqwen_file import section_length, tensor_shapes
from lab_engine.recordings import load_recording
from widgets.file_tables import comparison_table, device_copy_table, opening_table, pages_table, recorded_copy_table
from widgets.playground import Badge
from widgets.progress_bar import ProgressBar

PATH = data_path(SHIPPED_MODEL)
GATE = "model.layers.0.mlp.gate_proj.weight"
ROW = {"row 21": Region(4032, 192, "row", "row 21")}


def not_here(*_, **__):
    raise NanoqwenError("pages of a mapping: not available here")


def test_pages_are_counted_with_read_ahead_and_without(monkeypatch):
    def touch(path, offset, length, read_ahead):
        assert (path, offset, length) == (PATH, 4032, 192)
        cached = tuple(range(32)) if read_ahead else (0, 1)
        return TouchedPages(4096, 1512, (0, 1), cached, cached[:16], 0.1)

    monkeypatch.setattr(widgets.file_tables, "touch", touch)
    table = pages_table(PATH, ROW)
    assert table.table.rows == (("row 21", "yes", "2", "32", "16"), ("row 21", "no", "2", "2", "2"))
    assert table.table.note == "The file has 1,512 pages of 4,096 bytes."


def test_a_machine_that_cannot_count_pages_says_why_and_the_text_stays(monkeypatch):
    before = repr(pages_table(PATH, ROW))
    monkeypatch.setattr(widgets.file_tables, "touch", not_here)
    table = pages_table(PATH, ROW)
    assert repr(table) == before
    assert table.table.note == "pages of a mapping: not available here"
    assert table.png()


def test_opening_is_timed_cold_and_warm_and_on_a_file_of_the_7bs_size(monkeypatch):
    times = OpenTimes(4.0, 0.05, disk_faults=2), OpenTimes(1.0, 0.0304, disk_faults=0)
    monkeypatch.setattr(widgets.file_tables, "time_opening", lambda *_: times)
    cold, warm, large = opening_table(PATH, GATE, 5).table.rows
    assert cold == ("tiny-coder.nanoqwen, 6.2 MB, cold", "4.00", "50")
    assert warm == ("tiny-coder.nanoqwen, 6.2 MB, warm", "1.00", "30")
    assert large[0] == "in the 7B's shapes, 3.93 GB, sparse, warm"
    assert 0 < float(large[1]) < 1000


def test_a_machine_that_cannot_drop_pages_still_opens_the_large_file(monkeypatch):
    monkeypatch.setattr(widgets.file_tables, "time_opening", not_here)
    table = opening_table(PATH, GATE, 5)
    assert len(table.table.rows) == 1
    assert table.table.note == "pages of a mapping: not available here"
    assert repr(table) == "Times to open a file here: in the picture"


def test_a_folder_that_takes_no_large_file_is_named(monkeypatch):
    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(widgets.file_tables, "write_sparse_file", refuse)
    monkeypatch.setattr(widgets.file_tables, "time_opening", not_here)
    assert opening_table(PATH, GATE, 5).table.rows == (
        ("a file in the 7B's shapes: No space left on device", "–", "–"),
    )


def test_costs_are_shown_in_megabytes_milliseconds_and_microseconds():
    table = comparison_table([ReadCost("mapped", 6_192_962, 0.00113, 24e-6, 84 << 10, "00")])
    assert table.table.rows == (("mapped", "6.19", "1.13", "24", "0.09"),)
    assert repr(table) == repr(comparison_table([ReadCost("mapped", 1, 1.0, 1.0, 1, "ff")]))


def test_the_copy_to_a_gpu_is_measured_where_there_is_one(monkeypatch):
    copies = (
        CopyTimes("the mapping", 6_000_000, 102, (0.001, 0.002, 0.009)),
        CopyTimes("pinned", 6_000_000, 1, (0.001,)),
    )
    monkeypatch.setattr("torch.cuda.get_device_name", lambda: "a GPU")
    monkeypatch.setattr(widgets.file_tables, "time_copies", lambda path, _: copies if path == PATH else ())
    table = device_copy_table(PATH)
    assert table.table.rows == (("the mapping", "102", "6.00", "2.00", "3.0"), ("pinned", "1", "6.00", "1.00", "6.0"))
    assert table.table.badge.kind == "measured"
    assert table.table.note == "To a GPU; the file is in the page cache."


def test_without_a_gpu_no_copy_is_said_to_be_measured(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    table = device_copy_table(PATH)
    assert [row[1:] for row in table.table.rows] == [("–", "–", "–", "–")] * 3
    assert table.table.badge is None
    assert table.table.note == "Not measured: PyTorch finds no NVIDIA GPU here."
    assert repr(table) == "The copy to the GPU here: in the picture; it needs an NVIDIA GPU"


def test_the_recorded_copy_is_shown_with_where_it_comes_from():
    recording = load_recording("copy")
    table = recorded_copy_table(recording)
    assert table.badge == Badge("recorded", recording.badge_source)
    for row, one in zip(table.rows, recording.data["ways"].values(), strict=True):
        assert float(row[3]) == one["ms"]
        assert float(row[4]) == pytest.approx(one["gb_per_second"], abs=0.06)
    assert f"PCIe generation {recording.data['pcie']['generation']}" in table.note


def test_pinned_memory_comes_near_the_link_and_a_mapping_takes_seven_times_as_long():
    """What lab 02 says of the recording, in the 7B's shapes; a link of 64 GB/s."""
    data = load_recording("copy").data
    tensors = sum(section_length(*shape) for shape in tensor_shapes(QWEN_7B).values())
    assert 0 <= data["bytes"] - tensors < 10_000  # the tokenizer of 256 bytes
    opened, touched, pinned = (data["ways"][way]["ms"] for way in WAYS)
    assert 1 < pinned / (data["bytes"] / 64e9 * 1e3) < 1.25
    assert round(opened / pinned) == round(touched / pinned) == 7
    assert opened - touched < data["ways"][WAYS[0]]["ms_spread"]


def test_a_bar_moves_and_its_text_does_not():
    bar = ProgressBar("tiny-coder to INT4")
    before = repr(bar)
    bar(300, 1000)
    assert (bar.value, bar.max) == (300, 1000)
    assert repr(bar) == before == "tiny-coder to INT4: a bar moves here while the cell runs"
    assert bar._repr_mimebundle_()["text/plain"] == before
