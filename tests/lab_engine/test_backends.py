"""Choosing a backend: what each says about this machine, and refusals by name."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import lab_engine
from lab_engine import backends
from lab_engine.backends import NAMES, availability, make_backend
from lab_engine.config import ModelConfig
from lab_engine.errors import BackendError, NanoqwenError

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ModelConfig(256, 256, 1, 4, 2, 64, 300, 4096, 1e6, 1e-6, True)


def test_every_backend_says_in_one_line_whether_it_runs_here():
    for _ in range(2):  # importing backends/torch.py must not hide PyTorch from the second call
        options = availability()
        assert [option.name for option in options] == list(NAMES)
        assert all(option.reason and "\n" not in option.reason for option in options)
    assert options[-1].available


def test_auto_takes_the_first_that_is_available():
    first = next(option.name for option in availability() if option.available)
    assert make_backend("auto", CONFIG, None).name == first
    assert make_backend("torch", CONFIG, torch.float32).name == "torch"


@pytest.mark.parametrize("name", ["", "cpu", "Torch", "cuda "])
def test_an_unknown_backend_is_refused_with_the_known_ones(name):
    with pytest.raises(BackendError, match="expected auto, cuda, triton, torch") as refusal:
        make_backend(name, CONFIG, None)
    assert repr(name) in str(refusal.value)


def test_a_backend_that_this_machine_lacks_says_why_and_what_to_do():
    for option in availability():
        if not option.available:
            with pytest.raises(BackendError, match="use --backend torch or auto") as refusal:
                make_backend(option.name, CONFIG, None)
            assert option.reason in str(refusal.value)


def test_a_backend_whose_package_is_missing_names_the_package(monkeypatch):
    def without_triton(name):
        raise ModuleNotFoundError("No module named 'triton'", name="triton")

    monkeypatch.setattr(backends.importlib, "import_module", without_triton)
    assert "needs the package triton" in availability()[1].reason


def test_loading_names_a_path_that_is_wrong(tmp_path, shared_file):
    (tmp_path / "text.nanoqwen").write_text("not a model, but long enough for a preamble")
    for path in (tmp_path / "missing.nanoqwen", tmp_path / "text.nanoqwen", tmp_path):
        with pytest.raises(NanoqwenError, match=path.name):
            lab_engine.load(path)
    with pytest.raises(BackendError, match="vulkan"):
        lab_engine.load(shared_file, backend="vulkan")


def test_loading_gives_a_decoder_that_knows_its_model(shared_file):
    decoder = lab_engine.load(str(shared_file), backend="torch", num_pages=3)
    assert decoder.model_name == "tiny"
    assert decoder.backend.name == "torch"
    assert decoder.cache.pool.num_pages == 3
    assert decoder.config.vocab_size == 433


def test_a_missing_data_file_is_named():
    with pytest.raises(NanoqwenError, match="no-such-model"):
        lab_engine.data_path("no-such-model.nanoqwen")


@pytest.mark.parametrize(
    ("load", "idle"),
    [("0.10 0.2 0.3 1/170 99\n", True), ("0.10 0.2 0.3 2/170 99\n", False), ("0.1 0.2\n", False), (None, False)],
)
def test_threads_spin_only_where_nothing_else_wants_a_core(tmp_path, load, idle):
    path = tmp_path / "loadavg"
    if load is not None:
        path.write_text(load)
    assert lab_engine.machine_is_idle(path) is idle


def test_importing_the_engine_imports_no_torch_and_sets_a_passive_wait():
    code = (
        "import os, sys, lab_engine, lab_engine.nanoqwen_file, lab_engine.config, lab_engine.tokenizer\n"
        "assert os.environ['OMP_WAIT_POLICY'] == 'passive'\n"
        "assert not {'torch', 'triton', 'cupy', 'IPython', 'ipywidgets', 'widgets'} & set(sys.modules)"
    )
    environment = {"PATH": "", "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, check=True)


@pytest.mark.parametrize("broken", ["triton", "cupy"])
def test_the_engine_decodes_with_a_gpu_package_absent_or_broken(shared_file, tmp_path, broken):
    """A cupy that is installed but raises as it is imported (a missing driver) must not matter."""
    (tmp_path / f"{broken}.py").write_text("raise RuntimeError('no driver')")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import lab_engine\n"
        f"assert len(list(lab_engine.load({str(shared_file)!r}).generate([1, 2, 3], 4, frozenset()))) == 4"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
