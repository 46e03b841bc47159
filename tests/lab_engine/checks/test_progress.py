import json
import subprocess
import sys

import pytest
from rich.console import Console

from lab_engine.checks import exercises, progress
from lab_engine.errors import NanoqwenError


def done():
    return {lab.lab: lab.passed for lab in progress.summary() if lab.passed}


def test_nothing_is_passed_at_first_and_no_file_is_made(progress_file):
    assert done() == {}
    assert progress.problem() is None
    assert not progress_file.exists()


def test_only_a_passing_check_is_remembered(progress_file):
    greedy = exercises("00_tour")["greedy"]
    greedy.check(lambda *_: [])
    assert not progress_file.exists()
    greedy.check(greedy.solution)
    assert done() == {"00_tour": ("greedy",)}
    greedy.check(lambda *_: [])
    assert done() == {"00_tour": ("greedy",)}


def test_the_order_is_that_of_the_lab_not_of_the_passes():
    progress.record("08_decoder", "visible_tokens")
    progress.record("08_decoder", "quantize_int8")
    lab = progress.summary()[-1]
    assert lab.passed == ("quantize_int8", "visible_tokens")
    assert lab.open == ("top_p_probs",)


def test_the_names_are_those_of_the_checkers():
    for lab, names in progress.LABS.items():
        assert tuple(exercises(lab)) == names
        assert all(exercise.lab == lab for exercise in exercises(lab).values())


def test_a_verdict_is_the_same_before_and_after_a_pass():
    exercise = exercises("08_decoder")["visible_tokens"]
    first, second = exercise.check(exercise.solution), exercise.check(exercise.solution)
    assert (str(first), first._repr_html_()) == (str(second), second._repr_html_())


BROKEN = [b"", b"{", b"[]", b'{"passed": 3}', b'{"passed": {"00_tour": "greedy"}}', b"\xff\xfe\x00", b"[" * 100_000]


@pytest.mark.parametrize("content", BROKEN, ids=range(len(BROKEN)))
def test_a_broken_file_counts_as_empty_is_told_in_one_line_and_replaced_by_the_next_pass(progress_file, content):
    progress_file.parent.mkdir()
    progress_file.write_bytes(content)
    assert done() == {}
    assert str(progress_file) in progress.problem()
    assert "\n" not in progress.problem()
    progress.record("00_tour", "greedy")
    assert done() == {"00_tour": ("greedy",)}
    assert progress.problem() is None


def test_a_folder_in_the_files_place_disturbs_no_check(progress_file):
    progress_file.mkdir(parents=True)
    greedy = exercises("00_tour")["greedy"]
    assert greedy.check(greedy.solution).status == "passed"
    assert "can't be read" in progress.problem()
    with pytest.raises(NanoqwenError, match="can't be removed"):
        progress.reset()


def test_a_file_that_cannot_be_written_disturbs_no_check(progress_file, monkeypatch, capsys):
    progress_file.parent.write_text("a file where the folder should be")
    greedy = exercises("00_tour")["greedy"]
    assert greedy.check(greedy.solution).status == "passed"
    assert capsys.readouterr() == ("", "")
    assert done() == {}


def test_a_write_that_fails_half_way_leaves_the_old_file(progress_file, monkeypatch):
    progress.record("00_tour", "greedy")

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(json, "dump", full)
    progress.record("00_tour", "bytes_per_step")
    assert done() == {"00_tour": ("greedy",)}
    assert list(progress_file.parent.iterdir()) == [progress_file]


def test_unknown_names_of_a_newer_version_are_kept(progress_file):
    progress_file.parent.mkdir()
    progress_file.write_text('{"version": 1, "passed": {"99_new": ["later"], "00_tour": ["gone"]}}')
    assert done() == {}
    progress.record("00_tour", "greedy")
    assert json.loads(progress_file.read_text())["passed"] == {"99_new": ["later"], "00_tour": ["gone", "greedy"]}


def test_reset_forgets_everything_and_may_be_called_twice(progress_file):
    progress.record("00_tour", "greedy")
    progress.reset()
    progress.reset()
    assert not progress_file.exists()
    assert done() == {}


@pytest.mark.parametrize("content", [b"NANOQWEN\1", b'{"name": "a model"}', b""])
def test_reset_leaves_a_file_that_is_no_record_of_exercises(progress_file, content):
    progress_file.parent.mkdir(parents=True, exist_ok=True)
    progress_file.write_bytes(content)
    with pytest.raises(NanoqwenError, match="can't be removed: it is no record of passed exercises"):
        progress.reset()
    assert progress_file.read_bytes() == content


def test_neither_reset_nor_a_pass_replaces_what_is_no_regular_file(progress_file):
    progress_file.mkdir(parents=True)
    with pytest.raises(NanoqwenError, match="can't be removed: it is no record of passed exercises"):
        progress.reset()
    progress.record("00_tour", "greedy")
    assert progress_file.is_dir()


def test_a_user_whose_home_is_unknown_is_told_so_in_one_line(monkeypatch):
    monkeypatch.setenv("NANOQWEN_PROGRESS", "~nosuchuser/x")
    with pytest.raises(NanoqwenError, match="set NANOQWEN_PROGRESS to a path"):
        progress.reset()


def test_without_the_variable_the_file_lies_in_the_users_data_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("NANOQWEN_PROGRESS")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert progress.path() == tmp_path / "nanoqwen-lab" / "progress.json"
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert progress.path() == tmp_path / ".local" / "share" / "nanoqwen-lab" / "progress.json"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert progress.path() == tmp_path / "Library" / "Application Support" / "nanoqwen-lab" / "progress.json"
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert progress.path() == tmp_path / "local" / "nanoqwen-lab" / "progress.json"


def test_the_table_shows_passed_and_open_exercises():
    progress.record("00_tour", "greedy")
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    console.print(progress.as_table(progress.summary()))
    text = console.export_text()
    assert "1 of 2" in text
    assert "✓ greedy" in text
    assert "○ bytes_per_step" in text
    assert "0 of 3" in text


def test_showing_progress_loads_no_torch():
    program = "import sys; from lab_engine.checks import progress; progress.summary(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
