"""What the engine's tests share: one thread, quiet libraries, and tiny models that are made once a session."""

import os
import shutil

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: parallel tests would fight for the cores
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

import pytest
import torch
import transformers
from hypothesis import HealthCheck, settings

from lab_engine.convert import convert
from lab_engine.loading import load_decoder
from tests.lab_engine.tiny_models import random_checkpoint

torch.set_num_threads(1)
transformers.utils.logging.disable_progress_bar()
# derandomize: a red test is red again; HYPOTHESIS_PROFILE=search looks for new examples.
checks = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large]
settings.register_profile(
    "lab", deadline=None, max_examples=40, derandomize=True, database=None, suppress_health_check=checks
)
settings.register_profile("search", deadline=None, max_examples=500, database=None, suppress_health_check=checks)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "lab"))


@pytest.fixture(scope="session")
def shared_checkpoint(tmp_path_factory):
    """A tied float32 checkpoint of two layers; read only, see `checkpoint` for one to damage."""
    return random_checkpoint(tmp_path_factory.mktemp("shared") / "tiny")


@pytest.fixture
def checkpoint(shared_checkpoint, tmp_path):
    """A copy of `shared_checkpoint` that a test may change."""
    return shutil.copytree(shared_checkpoint, tmp_path / "tiny")


@pytest.fixture(scope="session")
def shared_file(shared_checkpoint, tmp_path_factory):
    """`shared_checkpoint` as a .nanoqwen file; read only."""
    return convert(shared_checkpoint, tmp_path_factory.mktemp("file") / "tiny.nanoqwen")


@pytest.fixture(scope="session")
def load_exact(shared_file):
    """Make a float32 decoder of `shared_file`; keywords go to load_decoder."""

    def load(path=shared_file, **keywords):
        return load_decoder(path, "torch", torch.float32, **keywords)

    return load


@pytest.fixture
def exact_decoder(load_exact):
    """A fresh float32 decoder of `shared_file`."""
    return load_exact()
