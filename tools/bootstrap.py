"""Set the project up and open the lab: what `make` runs before anything of the project can be imported.

Standard library only. Everything made lies in .venv: the packages, a stamp that says what they were
installed from, and in .venv/state what JupyterLab would keep in the home folder.

Usage: bootstrap.py lab [JUPYTERLAB_ARGUMENT…] | setup | debian
"""

from __future__ import annotations

import argparse
import errno
import hashlib
import importlib.util
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
VENV_PYTHON = VENV / "bin" / "python"
STATE = VENV / "state"
STAMP = STATE / "installed.json"
DOWNLOADS = STATE / "downloads"
TOUR = "labs/00_tour.ipynb"

LAB_EXTRAS = ("lab", "gpu")
TEST_EXTRAS = ("lab", "gpu", "dev")

# Free space needed to install, in GB: the unpacked packages and, for a while, their downloads.
CUDA_GB = 10
SMALL_GB = 4
UPDATE_GB = 1

FONT = Path("/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf")

# No question on the first start, no request that leaves the machine, and no line of code cut off in a narrow window.
LAB_SETTINGS = {
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False},
    "@jupyterlab/notebook-extension:tracker": {"codeCellConfig": {"lineNumbers": False, "lineWrap": True}},
}


class SetupError(Exception):
    """A reason to stop, in one line that says what to do."""


def say(text: str) -> None:
    """Print one line of progress."""
    print(f"nanoqwen-lab: {text}", flush=True)


def lab_environment(environ: Mapping[str, str], state: Path) -> dict[str, str]:
    """Return `environ` for a JupyterLab that keeps its files in `state` and knows no kernel but its own Python's.

    A kernel named python3 in the user's data folder or on JUPYTER_PATH is out of sight.
    """
    folders = {
        "JUPYTER_CONFIG_DIR": "config",
        "JUPYTER_DATA_DIR": "data",
        "JUPYTER_RUNTIME_DIR": "runtime",
        "JUPYTERLAB_SETTINGS_DIR": "settings",
        "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
        "IPYTHONDIR": "ipython",
        "MPLCONFIGDIR": "matplotlib",
        "TRITON_CACHE_DIR": "triton",
        "CUPY_CACHE_DIR": "cupy",
    }
    hidden = ("JUPYTER_PATH", "JUPYTER_CONFIG_PATH", "JUPYTERLAB_DIR")
    kept = {name: value for name, value in environ.items() if name not in hidden}
    own = {"JUPYTER_PREFER_ENV_PATH": "1", "PATH": f"{VENV_PYTHON.parent}:{environ.get('PATH', os.defpath)}"}
    return kept | own | {name: str(state / folder) for name, folder in folders.items()}


def sandbox_environment(environ: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return `environ` for tests and recordings: as for the lab, with an empty home in `folder` and no hub."""
    home = {
        "HOME": str(folder / "home"),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "XDG_CONFIG_HOME": str(folder / "xdg-config"),
        "XDG_DATA_HOME": str(folder / "xdg-data"),
        "XDG_STATE_HOME": str(folder / "xdg-state"),
    }
    for name in ("home", "state"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    return lab_environment(environ, folder / "state") | home | {"HF_HUB_OFFLINE": "1"}


def read_stamp() -> dict[str, Any]:
    """Return what .venv was installed from; empty where it is missing, incomplete or its Python is gone."""
    try:
        stamp = json.loads(STAMP.read_text())
    except (OSError, ValueError):
        return {}
    return stamp if os.access(VENV_PYTHON, os.X_OK) else {}


def pins() -> str:
    """Return a digest of all that decides what .venv holds; a moved folder counts, for scripts hold its path."""
    files = [(ROOT / name).read_bytes() for name in ("pyproject.toml", "constraints.txt")]
    return hashlib.sha256(b"\0".join([*files, os.fsencode(ROOT)])).hexdigest()


def set_up(extras: Sequence[str]) -> None:
    """Make .venv hold the pinned packages of `extras`; do nothing where it already does.

    TORCH_INDEX names the index PyTorch comes from; it is remembered until another one is given.
    """
    stamp = read_stamp()
    old_index = stamp.get("torch_index", "")
    index = os.environ.get("TORCH_INDEX") or old_index
    if stamp.get("pins") == pins() and index == old_index and set(extras) <= set(stamp["extras"]):
        return
    check_free_space(index)
    if not venv_works():
        make_venv()
    STAMP.unlink(missing_ok=True)
    if index:
        say(f"installing PyTorch from {index}")
        force = [] if index == old_index else ["--force-reinstall"]
        pip("--no-deps", *force, "--index-url", index, "torch")
    say(f"installing the packages of constraints.txt ({', '.join(extras)}) into .venv; this takes minutes")
    pip("-e", f".[{','.join(extras)}]")
    shutil.rmtree(DOWNLOADS)
    STAMP.write_text(json.dumps({"pins": pins(), "extras": list(extras), "torch_index": index}))
    say("everything is installed")


def check_free_space(torch_index: str) -> None:
    """Raise SetupError where the disk can't hold what is about to be installed."""
    if list(VENV.glob("lib/python*/site-packages/torch")):
        need = UPDATE_GB
    else:
        need = CUDA_GB if sys.platform == "linux" and not torch_index else SMALL_GB
    free = shutil.disk_usage(ROOT).free / 1e9
    if free < need:
        hint = f", or set TORCH_INDEX (needs {SMALL_GB} GB)" if need == CUDA_GB else ""
        raise SetupError(f"not enough disk space for .venv: need {need} GB, found {free:.1f} GB: free some{hint}")


def venv_works() -> bool:
    """Tell whether .venv has a Python that the project can use, with pip."""
    check = "import sys, pip; sys.exit(not (3, 11) <= sys.version_info < (3, 15))"
    if not os.access(VENV_PYTHON, os.X_OK):
        return False
    return subprocess.run([VENV_PYTHON, "-c", check], stderr=subprocess.DEVNULL, check=False).returncode == 0


def venv_package() -> str | None:
    """Return the Debian package that this Python lacks to make a venv, None where it lacks nothing."""
    if importlib.util.find_spec("venv") and importlib.util.find_spec("ensurepip"):
        return None
    return f"python{sys.version_info.major}.{sys.version_info.minor}-venv"


def make_venv() -> None:
    """Make .venv with the Python that runs this."""
    if package := venv_package():
        raise SetupError(f"{sys.executable} has no venv module: install it (Debian: apt install {package})")
    say(f"making .venv with Python {platform.python_version()}")
    if subprocess.run([sys.executable, "-m", "venv", "--clear", VENV], check=False).returncode:
        raise SetupError(f"{sys.executable} could not make .venv: the lines above say why")


def pip(*arguments: str) -> None:
    """Run `pip install` with the pins, and with its cache and temporary files in .venv."""
    (DOWNLOADS / "tmp").mkdir(parents=True, exist_ok=True)
    environ = os.environ | {"PIP_CACHE_DIR": str(DOWNLOADS), "TMPDIR": str(DOWNLOADS / "tmp")}
    options = ["--disable-pip-version-check", "-c", "constraints.txt"]
    if not sys.stdout.isatty():
        options.append("--quiet")
    command = [str(VENV_PYTHON), "-m", "pip", "install", *options, *arguments]
    if subprocess.run(command, cwd=ROOT, env=environ, check=False).returncode:
        raise SetupError("pip failed (its lines above say why; is there a network?): run the same command again")


def write_lab_settings() -> None:
    """Store the defaults of this JupyterLab; the learner's own settings go first."""
    folder = VENV / "share/jupyter/lab/settings"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "overrides.json").write_text(json.dumps(LAB_SETTINGS))


def check_port(lab_arguments: Sequence[str]) -> None:
    """Raise SetupError where the port that the arguments ask for is taken: JupyterLab would take another one."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--port", "--ServerApp.port", dest="port", default="")
    port = parser.parse_known_args(lab_arguments)[0].port
    if not port.isdigit():
        return
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server.bind(("127.0.0.1", int(port)))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise SetupError(f"port {port} is taken: stop what uses it, or choose another --port") from None


def lab_command(lab_arguments: Sequence[str], *, is_root: bool) -> list[str]:
    """Return the command that opens the tour; the file browser shows the whole project."""
    options = [
        f"--LabApp.default_url=/lab/tree/{TOUR}",
        f"--ServerApp.root_dir={ROOT}",
        "--LanguageServerManager.autodetect=False",  # its search runs npm, which writes into the home folder
    ]
    if is_root:
        options.append("--allow-root")
    return [str(VENV_PYTHON), "-m", "jupyterlab", *options, *lab_arguments]


def open_lab(lab_arguments: Sequence[str]) -> None:
    """Become JupyterLab."""
    check_port(lab_arguments)
    set_up(LAB_EXTRAS)
    write_lab_settings()
    say(f"opening {TOUR}; Ctrl-C twice stops JupyterLab")
    os.chdir(ROOT)
    os.execve(VENV_PYTHON, lab_command(lab_arguments, is_root=os.geteuid() == 0), lab_environment(os.environ, STATE))


def missing_debian_packages() -> list[str]:
    """Return the Debian packages that the tests would use and this machine lacks."""
    found = {
        "nodejs": shutil.which("node"),
        "chromium": shutil.which("chromium"),
        "fonts-dejavu-core": FONT.exists() or not shutil.which("apt-get"),
    }
    missing = [package for package, present in found.items() if not present]
    return [*missing, package] if (package := venv_package()) else missing


def install_debian_packages() -> None:
    """Install what the tests need beyond Python where that is possible; else say what is missing."""
    missing = " ".join(missing_debian_packages())
    if not missing:
        return
    if os.geteuid() or not shutil.which("apt-get"):
        say(f"not installed, so the tests that need it are skipped: {missing} (Debian: sudo apt install {missing})")
        return
    say(f"installing Debian packages: {missing}")
    environ = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for step in ("update", f"install --yes --no-install-recommends {missing}"):
        command = ["apt-get", "--quiet=2", *step.split()]
        if subprocess.run(command, env=environ, stdout=subprocess.DEVNULL, check=False).returncode:
            say(f"apt could not install {missing}: the tests that need it are skipped")
            return


def main(arguments: Sequence[str]) -> int:
    """Run one command; return the exit status."""
    commands = {
        "lab": lambda: open_lab(arguments[1:]),
        "setup": lambda: set_up(TEST_EXTRAS),
        "debian": install_debian_packages,
    }
    try:
        commands[arguments[0]]()
    except SetupError as error:
        print(f"nanoqwen-lab: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
