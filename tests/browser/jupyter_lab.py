"""A real JupyterLab on a free port, with folders of its own: nothing of the user's is read or written."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 60
SETTINGS = {
    "notebook-extension/tracker": {"windowingMode": "none"},  # every cell stays in the page, so that it can be found
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}


class JupyterLab:
    """`url` of a server whose root is a copy of labs/; kernels import the working tree."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "labs"
        (folder / "home").mkdir()
        shutil.copytree(ROOT / "labs", self.root)
        for name, values in SETTINGS.items():
            file = folder / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(values))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = (folder / "server.log").open("w")
        self._process = subprocess.Popen(
            self._command(), env=self._environment(folder), stdout=self._log, stderr=subprocess.STDOUT
        )
        self._wait(folder / "server.log")

    def _command(self) -> list[str]:
        options = {
            "ServerApp.port": self.port,
            "ServerApp.port_retries": 0,
            "ServerApp.root_dir": self.root,
            "ServerApp.open_browser": False,
            "ServerApp.allow_root": True,
            "IdentityProvider.token": "",
            "LabApp.expose_app_in_browser": True,
            "LabApp.extension_manager": "readonly",
        }
        return [sys.executable, "-m", "jupyterlab", *(f"--{name}={value}" for name, value in options.items())]

    def _environment(self, folder: Path) -> dict[str, str]:
        own = {
            "JUPYTER_CONFIG_DIR": "config",
            "JUPYTER_DATA_DIR": "data",
            "JUPYTER_RUNTIME_DIR": "runtime",
            "JUPYTERLAB_SETTINGS_DIR": "settings",
            "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
            "IPYTHONDIR": "ipython",
            "HOME": "home",
            "npm_config_cache": "npm",  # jupyter-lsp asks npm for its folder, which makes one
        }
        made = {name: str(folder / value) for name, value in own.items()}
        return os.environ | made | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}

    def _wait(self, log: Path) -> None:
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            if self._process.poll() is not None:
                raise RuntimeError(f"JupyterLab ended at once:\n{log.read_text()[-2000:]}")
            try:
                urllib.request.urlopen(f"{self.url}/api/status", timeout=1)
            except OSError:
                time.sleep(0.2)
            else:
                return
        self.close()
        raise RuntimeError(f"JupyterLab did not answer in {START_SECONDS} s:\n{log.read_text()[-2000:]}")

    def close(self) -> None:
        """End the server, which ends its kernels."""
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._log.close()
