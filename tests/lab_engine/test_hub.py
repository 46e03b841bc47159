"""`nanoqwen convert user/model` against a stand-in for the hub: what a person sees, and what stays behind."""

import signal
import subprocess
import sys

import pytest

from tests.lab_engine.hub_stand_in import Hub, serve
from tests.lab_engine.processes import environment, nanoqwen

REPO = "someone/tiny-coder"
NO_PROXY = dict.fromkeys(("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"))


@pytest.fixture
def hub(shared_checkpoint):
    return Hub(REPO, shared_checkpoint)


@pytest.fixture
def settings(tmp_path):
    """Online, with a cache of its own and visible progress bars."""
    return {"HF_HOME": str(tmp_path / "hub"), "HF_HUB_OFFLINE": None, "HF_HUB_DISABLE_PROGRESS_BARS": None, **NO_PROXY}


def only_the_cache_is_in(folder):
    return [path.name for path in folder.iterdir()] in ([], ["hub"])


def test_a_hub_id_gives_the_same_file_as_its_folder_with_progress_bars_on_stderr(hub, settings, shared_file, tmp_path):
    with serve(hub) as address:
        done = nanoqwen("convert", REPO, "out.nanoqwen", folder=tmp_path, HF_ENDPOINT=address, **settings)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out.nanoqwen").read_bytes() == shared_file.read_bytes()
    assert "Fetching" in done.stderr
    assert "out.nanoqwen: 100%" in done.stderr
    assert done.stdout == ""


def test_a_dropped_connection_is_resumed(hub, settings, shared_file, tmp_path):
    hub.cut_file = "model.safetensors"
    hub.go_on.set()
    with serve(hub) as address:
        done = nanoqwen("convert", REPO, "out.nanoqwen", folder=tmp_path, HF_ENDPOINT=address, **settings)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out.nanoqwen").read_bytes() == shared_file.read_bytes()


def test_a_model_that_the_hub_does_not_have_is_one_line(hub, settings, tmp_path):
    with serve(hub) as address:
        done = nanoqwen("convert", "someone/else", "out.nanoqwen", folder=tmp_path, HF_ENDPOINT=address, **settings)
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("nanoqwen: someone/else: ")
    assert "404" in line
    assert only_the_cache_is_in(tmp_path)


def test_a_hub_that_cannot_be_reached_is_one_line(settings, tmp_path):
    nobody = "http://127.0.0.1:9"
    done = nanoqwen("convert", REPO, "out.nanoqwen", folder=tmp_path, HF_ENDPOINT=nobody, **settings)
    assert done.returncode == 2
    assert done.stderr.strip().splitlines() == [
        f"nanoqwen: {REPO}: the hub cannot be reached and no copy is cached; check the network"
    ]
    assert only_the_cache_is_in(tmp_path)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot send Ctrl-C to one process")
def test_ctrl_c_during_the_download_ends_at_once_with_130_and_leaves_no_file(hub, settings, tmp_path):
    """The hub's library alone would go on until the file is complete, or the connection has been silent for long."""
    hub.cut_file = "model.safetensors"
    settings["HF_HUB_DOWNLOAD_TIMEOUT"] = "300"
    command = [sys.executable, "-m", "lab_engine", "convert", REPO, "out.nanoqwen"]
    with serve(hub) as address:
        process = subprocess.Popen(
            command, cwd=tmp_path, env=environment(HF_ENDPOINT=address, **settings), stderr=subprocess.PIPE, text=True
        )
        assert hub.half_sent.wait(120)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert errors.strip().splitlines()[-1] == f"nanoqwen: {REPO}: download stopped, no file was written"
    assert only_the_cache_is_in(tmp_path)
