"""Set-up by two commands: what they call, that they install once, and how they fail."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tools import bootstrap

ROOT = Path(__file__).resolve().parents[1]
CHECK_FREE_SPACE = bootstrap.check_free_space


# What people and CI type


@pytest.fixture(scope="module")
def make() -> Callable[..., subprocess.CompletedProcess[str]]:
    if not shutil.which("make"):
        pytest.skip("make is missing")

    def run(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
        command = ["make", "--no-print-directory", *arguments]
        return subprocess.run(
            command, cwd=ROOT, env=clean | environ, capture_output=True, text=True, check=False, timeout=60
        )

    return run


def test_make_help_lists_every_target(make: Callable[..., Any]) -> None:
    targets = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert targets
    listed = [line.split()[1] for line in make().stdout.splitlines() if line.startswith("make ")]
    assert sorted(listed) == sorted(targets[1].split())


def test_lab_args_reach_jupyterlab(make: Callable[..., Any]) -> None:
    recipe = make("-n", "lab", "LAB_ARGS=--no-browser --port=9000").stdout
    assert recipe.rstrip().endswith("tools/bootstrap.py lab --no-browser --port=9000")


def test_ci_calls_the_command_of_the_readme() -> None:
    readme = (ROOT / "README.md").read_text()
    assert "make lab" in readme
    assert "make test" in readme
    assert (ROOT / ".ci/run").read_text().splitlines()[-1] == "make test"


# Which Python


def fake_python(folder: Path, body: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "python3").write_text(f"#!/bin/sh\n{body}\n")
    (folder / "python3").chmod(0o755)


def find_python(path: str, **environ: str) -> subprocess.CompletedProcess[str]:
    command = ["/bin/sh", str(ROOT / "tools/find_python.sh")]
    return subprocess.run(command, env={"PATH": path, **environ}, capture_output=True, text=True, check=False)


def test_a_python_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    fake_python(tmp_path, "exit 1")
    (tmp_path / "python3.12").symlink_to(sys.executable)
    assert find_python(str(tmp_path)).stdout.strip() == str(tmp_path / "python3.12")


def test_no_python_is_one_line_that_names_the_versions(tmp_path: Path) -> None:
    fake_python(tmp_path, "exit 1")
    result = find_python(str(tmp_path))
    assert result.returncode == 1
    assert re.fullmatch(r"nanoqwen-lab: no Python 3\.11.* found .*\n", result.stderr)


def test_a_named_python_is_the_only_candidate(tmp_path: Path) -> None:
    (tmp_path / "python3").symlink_to(sys.executable)
    result = find_python(str(tmp_path), PYTHON="/nowhere/python")
    assert result.returncode == 1
    assert "/nowhere/python" in result.stderr


@pytest.fixture
def empty_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project folder without .venv, which the set-up takes for its own."""
    for name in ("pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    for name in ("VENV", "VENV_PYTHON", "STATE", "STAMP", "DOWNLOADS"):
        monkeypatch.setattr(bootstrap, name, tmp_path / getattr(bootstrap, name).relative_to(ROOT))
    monkeypatch.setattr(bootstrap, "ROOT", tmp_path)
    monkeypatch.setattr(bootstrap, "check_free_space", lambda _: None)
    monkeypatch.delenv("TORCH_INDEX", raising=False)
    return tmp_path


@pytest.fixture
def pip_calls(empty_project: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list to which the set-up's calls of pip are added; nothing is installed."""
    assert not (empty_project / ".venv").exists()
    calls: list[str] = []

    def make_venv() -> None:
        bootstrap.VENV_PYTHON.parent.mkdir(parents=True)
        bootstrap.VENV_PYTHON.symlink_to(sys.executable)

    def pip(*arguments: str) -> None:
        bootstrap.DOWNLOADS.mkdir(parents=True, exist_ok=True)
        calls.append(" ".join(arguments))

    monkeypatch.setattr(bootstrap, "venv_works", bootstrap.VENV_PYTHON.exists)
    monkeypatch.setattr(bootstrap, "make_venv", make_venv)
    monkeypatch.setattr(bootstrap, "pip", pip)
    return calls


# Done once


def test_a_second_set_up_installs_nothing(pip_calls: list[str]) -> None:
    bootstrap.set_up(bootstrap.TEST_EXTRAS)
    assert pip_calls == ["-e .[lab,gpu,dev]"]
    bootstrap.set_up(bootstrap.TEST_EXTRAS)
    bootstrap.set_up(bootstrap.LAB_EXTRAS)
    assert len(pip_calls) == 1


def test_the_tests_need_more_than_the_lab(pip_calls: list[str]) -> None:
    bootstrap.set_up(bootstrap.LAB_EXTRAS)
    bootstrap.set_up(bootstrap.TEST_EXTRAS)
    assert pip_calls == ["-e .[lab,gpu]", "-e .[lab,gpu,dev]"]


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt"])
def test_a_changed_file_installs_again(name: str, empty_project: Path, pip_calls: list[str]) -> None:
    bootstrap.set_up(bootstrap.LAB_EXTRAS)
    (empty_project / name).write_text("# changed")
    bootstrap.set_up(bootstrap.LAB_EXTRAS)
    assert len(pip_calls) == 2


def test_a_venv_whose_python_is_gone_is_made_again(pip_calls: list[str]) -> None:
    bootstrap.set_up(bootstrap.LAB_EXTRAS)
    shutil.rmtree(bootstrap.VENV_PYTHON.parent)
    bootstrap.set_up(bootstrap.LAB_EXTRAS)
    assert len(pip_calls) == 2


def test_pytorch_comes_first_from_its_own_index_which_is_remembered(
    pip_calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_INDEX", "https://example.org/cpu")
    bootstrap.set_up(bootstrap.LAB_EXTRAS)
    assert pip_calls == ["--no-deps --force-reinstall --index-url https://example.org/cpu torch", "-e .[lab,gpu]"]
    monkeypatch.delenv("TORCH_INDEX")
    bootstrap.set_up(bootstrap.LAB_EXTRAS)
    assert len(pip_calls) == 2
    bootstrap.set_up(bootstrap.TEST_EXTRAS)
    assert pip_calls[2:] == ["--no-deps --index-url https://example.org/cpu torch", "-e .[lab,gpu,dev]"]
    monkeypatch.setenv("TORCH_INDEX", "https://example.org/cu130")
    bootstrap.set_up(bootstrap.TEST_EXTRAS)
    assert "--force-reinstall" in pip_calls[4]


# One clear line on failure


def fail(command: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert bootstrap.main(command) == 1
    captured = capsys.readouterr().err
    assert captured.count("\n") == 1, captured
    return captured


@pytest.mark.usefixtures("empty_project")
def test_a_full_disk_is_one_line_that_names_both_sizes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bootstrap, "check_free_space", CHECK_FREE_SPACE)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=287_000_000))
    monkeypatch.setattr(sys, "platform", "linux")
    assert "need 10 GB, found 0.3 GB" in fail(["setup"], capsys)
    monkeypatch.setenv("TORCH_INDEX", "https://example.org/whl")
    assert "need 4 GB, found 0.3 GB" in fail(["setup"], capsys)


@pytest.mark.usefixtures("empty_project")
def test_a_python_without_venv_is_one_line_that_names_the_package(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bootstrap.importlib.util, "find_spec", lambda name: None if name == "ensurepip" else name)
    assert re.search(r"no venv module: install it \(Debian: apt install python3\.\d+-venv\)", fail(["setup"], capsys))


@pytest.mark.parametrize("option", ["--port={}", "--port {}", "--ServerApp.port={}"])
def test_a_taken_port_is_one_line_that_names_it(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        assert f"port {port} is taken" in fail(["lab", "--no-browser", *option.format(port).split()], capsys)


def test_a_free_port_passes() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
    bootstrap.check_port(["--no-browser", f"--port={port}"])


@pytest.mark.usefixtures("empty_project")
def test_a_failing_pip_is_one_line_and_leaves_no_stamp(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bootstrap, "venv_works", lambda: True)
    monkeypatch.setattr(bootstrap, "VENV_PYTHON", Path("/bin/false"))
    assert "pip failed" in fail(["setup"], capsys)
    assert not bootstrap.STAMP.exists()


# Debian packages


def test_without_root_the_missing_packages_are_named_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bootstrap, "missing_debian_packages", lambda: ["nodejs", "chromium"])
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert bootstrap.main(["debian"]) == 0
    assert re.fullmatch(r"nanoqwen-lab: .* skipped: nodejs chromium \(.*apt install.*\)\n", capsys.readouterr().out)


def test_root_installs_only_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[list[str]] = []
    monkeypatch.setattr(bootstrap, "missing_debian_packages", lambda: ["chromium"])
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda name: name)
    monkeypatch.setattr(subprocess, "run", lambda command, **_: calls.append(command) or SimpleNamespace(returncode=0))
    assert bootstrap.main(["debian"]) == 0
    assert [call[2] for call in calls] == ["update", "install"]
    assert calls[1][-1] == "chromium"
    monkeypatch.setattr(bootstrap, "missing_debian_packages", list)
    assert bootstrap.main(["debian"]) == 0
    assert len(calls) == 2
