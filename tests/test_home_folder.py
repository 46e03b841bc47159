"""The lab and the tests write nothing into the home folder, and no kernel from there is used."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path

import pytest

from tools import bootstrap

ROOT = Path(__file__).resolve().parents[1]
CONFTEST = str(ROOT / "conftest.py")


def run_python(code: str, environ: Mapping[str, str]) -> str:
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, env=dict(environ), capture_output=True, text=True, check=True, timeout=120)
    return result.stdout.strip()


def test_tests_have_a_home_of_their_own_and_are_failed_for_writing_into_it(request: pytest.FixtureRequest) -> None:
    guard = next(p for p in request.config.pluginmanager.get_plugins() if getattr(p, "__file__", "") == CONFTEST)
    assert "nanoqwen-tests-" in str(Path.home())
    (Path.home() / ".stray").touch()
    with pytest.raises(pytest.fail.Exception, match=r"left \.stray in the home folder"):
        guard.pytest_runtest_teardown(request.node)
    assert list(Path.home().iterdir()) == []


def test_importing_the_engine_writes_nothing_into_the_home_folder(tmp_path: Path) -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "JUPYTER", "MPL"))}
    run_python("import lab_engine", environ | {"HOME": str(tmp_path), "PYTHONPATH": str(ROOT)})
    assert list(tmp_path.iterdir()) == []


def write_decoy_kernel(data_folder: Path) -> None:
    folder = data_folder / "kernels/python3"
    folder.mkdir(parents=True)
    spec = {"argv": ["/bin/false", "{connection_file}"], "display_name": "decoy", "language": "python"}
    (folder / "kernel.json").write_text(json.dumps(spec))


def test_the_kernel_is_that_of_venv_whatever_kernels_the_user_has(tmp_path: Path) -> None:
    write_decoy_kernel(tmp_path / "home/.local/share/jupyter")
    write_decoy_kernel(tmp_path / "home/Library/Jupyter")
    write_decoy_kernel(tmp_path / "path")
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "JUPYTER"))}
    users = plain | {"HOME": str(tmp_path / "home"), "JUPYTER_PATH": str(tmp_path / "path")}
    code = "from jupyter_client.kernelspec import get_kernel_spec; print(get_kernel_spec('python3').resource_dir)"
    assert run_python(code, users).startswith(str(tmp_path)), "the decoys are not seen at all: the test shows nothing"
    ours = bootstrap.lab_environment(users, tmp_path / "state")
    assert run_python(code, ours).startswith(sys.prefix)


@pytest.fixture
def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


def test_jupyterlab_opens_the_tour_and_leaves_the_home_folder_alone(tmp_path: Path, free_port: int) -> None:
    environ = bootstrap.lab_environment(os.environ | {"HOME": str(tmp_path / "home")}, tmp_path / "state")
    (tmp_path / "home").mkdir()
    address, token = f"http://127.0.0.1:{free_port}", secrets.token_hex()
    arguments = ["--no-browser", f"--port={free_port}", f"--IdentityProvider.token={token}"]
    command = bootstrap.lab_command(arguments, is_root=os.geteuid() == 0)
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen([sys.executable, *command[1:]], cwd=ROOT, env=environ, stderr=log)
    try:
        page = wait_for_page(f"{address}/?token={token}", server)
        with urllib.request.urlopen(f"{address}/api/contents/{bootstrap.TOUR}?content=0&token={token}") as answer:
            notebook = json.load(answer)
    finally:
        server.terminate()
        server.wait(timeout=30)
        print((tmp_path / "log").read_text())  # pytest shows it where the test fails
    assert page.startswith(f"{address}/lab/tree/labs/00_tour.ipynb")
    assert notebook["type"] == "notebook"
    assert list((tmp_path / "home").iterdir()) == []


def wait_for_page(url: str, server: subprocess.Popen[bytes]) -> str:
    """Return the address that `url` leads to, once the server answers."""
    for _ in range(300):
        assert server.poll() is None, "JupyterLab stopped"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                assert answer.status == 200
                return str(answer.url)
        except OSError:
            time.sleep(0.2)
    raise AssertionError("JupyterLab did not answer within a minute")


def test_only_root_gets_allow_root() -> None:
    assert "--allow-root" in bootstrap.lab_command([], is_root=True)
    assert "--allow-root" not in bootstrap.lab_command([], is_root=False)
