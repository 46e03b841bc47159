"""Every test process gets a home folder of its own, and nothing may be left in it."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from tools.bootstrap import sandbox_environment

_FOLDER = tempfile.TemporaryDirectory(prefix="nanoqwen-tests-", ignore_cleanup_errors=True)

# At import, so that it comes before any import of torch, Jupyter or transformers.
os.environ.update(sandbox_environment(os.environ, Path(_FOLDER.name)))
for hidden in ("JUPYTER_PATH", "JUPYTER_CONFIG_PATH", "JUPYTERLAB_DIR"):
    os.environ.pop(hidden, None)
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ["OMP_NUM_THREADS"] = "1"  # the workers already use every core


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Fail the test, or the notebook cell, that wrote into the home folder."""
    home = Path.home()
    left = sorted(path.name for path in home.iterdir())
    if left:
        shutil.rmtree(home)
        home.mkdir()
        pytest.fail(f"{item.nodeid} left {', '.join(left)} in the home folder", pytrace=False)
