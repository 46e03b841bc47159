"""Every test process gets a home folder of its own, and no test, doctest or notebook may leave anything in it."""

from __future__ import annotations

import os
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from tools.bootstrap import sandbox_environment

_FOLDER = tempfile.TemporaryDirectory(prefix="nanoqwen-tests-", ignore_cleanup_errors=True)

# At import, so that it comes before any import of torch, Jupyter or transformers.
_ENVIRONMENT = sandbox_environment(os.environ, Path(_FOLDER.name))
os.environ.clear()
os.environ.update(_ENVIRONMENT)
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ["OMP_NUM_THREADS"] = "1"  # the workers already use every core

# Doctests import every module; for macOS and Windows there is no Triton.
collect_ignore_glob = [] if find_spec("triton") else ["lab_engine/kernels/*_triton.py"]


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Fail the test, or the notebook cell, that wrote into the home folder."""
    home = Path.home()
    left = sorted(path.name for path in home.iterdir())
    if left:
        shutil.rmtree(home)
        home.mkdir()
        pytest.fail(f"{item.nodeid} left {', '.join(left)} in the home folder", pytrace=False)
