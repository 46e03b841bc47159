"""doctor: right facts about this machine, and one line of advice for each missing thing."""

import json
import os
import platform
import signal
import stat
import sys
import tomllib

import pytest
import torch
from packaging.requirements import Requirement

import lab_engine
from lab_engine import cli, doctor
from lab_engine.backends import availability
from tests.lab_engine.processes import PROJECT


@pytest.fixture
def shipped(monkeypatch, shared_file):
    """The tiny file stands in for the shipped model."""
    monkeypatch.setattr(lab_engine, "SHIPPED_MODEL", str(shared_file))
    return shared_file


def test_the_report_holds_what_this_machine_says_elsewhere(shipped):
    report = doctor.examine()
    assert report.python.startswith(platform.python_version())
    assert report.torch["version"] == torch.__version__
    assert report.torch["threads"] == torch.get_num_threads()
    assert report.torch["omp_wait_policy"] == os.environ["OMP_WAIT_POLICY"]
    assert report.cpu["capability"] == torch.backends.cpu.get_cpu_capability()
    assert [(b["name"], b["available"]) for b in report.backends] == [(b.name, b.available) for b in availability()]
    assert report.model == {"path": str(shipped), "bytes": shipped.stat().st_size, "intact": True, "problem": None}
    assert report.packages["numpy"] is not None
    json.dumps(report.to_dict())


def test_every_package_of_the_project_is_looked_for():
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    groups = {"lab": doctor.NOTEBOOK_PACKAGES, "gpu": doctor.GPU_PACKAGES}
    assert set(doctor.ENGINE_PACKAGES) == {Requirement(line).name for line in project["dependencies"]}
    for extra, names in groups.items():
        assert set(names) == {Requirement(line).name for line in project["optional-dependencies"][extra]}


def test_a_missing_model_is_named_with_what_to_do(monkeypatch):
    monkeypatch.setattr(lab_engine, "SHIPPED_MODEL", "gone.nanoqwen")
    report = doctor.examine()
    assert report.model["intact"] is False
    (line,) = [line for line in report.advice if "gone.nanoqwen" in line]
    assert "git checkout -- data" in line


def test_a_damaged_model_is_named_with_its_section(monkeypatch, shared_file, tmp_path):
    data = bytearray(shared_file.read_bytes())
    data[-3] ^= 1  # in the tokenizer, the last section
    (tmp_path / "damaged.nanoqwen").write_bytes(data)
    monkeypatch.setattr(lab_engine, "SHIPPED_MODEL", str(tmp_path / "damaged.nanoqwen"))
    report = doctor.examine()
    assert report.model["problem"] == "damaged sections: tokenizer"
    assert any("damaged sections: tokenizer" in line for line in report.advice)


def test_missing_notebook_packages_are_named_with_what_to_do(monkeypatch, shipped):
    version = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda name: None if name in ("bokeh", "anywidget") else version(name))
    report = doctor.examine()
    assert report.packages["bokeh"] is None
    assert any("anywidget, bokeh" in line and "make lab" in line for line in report.advice)


def test_a_torch_that_does_not_load_is_a_finding_and_not_a_crash(monkeypatch, shipped):
    monkeypatch.setitem(sys.modules, "torch", None)
    report = doctor.examine()
    assert report.torch["version"] is None
    assert report.backends == []
    assert any("PyTorch does not load" in line for line in report.advice)
    assert doctor.as_tables(report)


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-in is a shell script")
def test_a_gpu_is_listed_even_where_torch_does_not_see_it(monkeypatch, shipped, tmp_path):
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'NVIDIA H200, 9.0, 580.82.07, 143771 MiB'\n")
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    report = doctor.examine()
    assert report.gpus == [
        {"name": "NVIDIA H200", "compute_capability": "9.0", "driver": "580.82.07", "memory": "143771 MiB"}
    ]
    assert any("does not see the GPU" in line for line in report.advice)


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-in is a shell script")
def test_an_nvidia_smi_that_fails_means_no_gpu(monkeypatch, tmp_path):
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'No devices were found'\nexit 6\n")
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert doctor.find_gpus() == []


@pytest.mark.parametrize("arguments", [["doctor"], ["doctor", "--json"]])
def test_the_command_prints_the_report_and_succeeds(monkeypatch, capsys, shipped, arguments):
    monkeypatch.setattr(sys, "argv", ["nanoqwen", *arguments])
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with pytest.raises(SystemExit) as left:
        cli.main()
    out = capsys.readouterr().out
    assert left.value.code == 0
    if "--json" in arguments:
        assert json.loads(out)["torch"]["version"] == torch.__version__
    else:
        assert torch.__version__ in out
        assert "backend torch" in out


def test_doctor_does_not_import_the_notebook_packages():
    from tests.lab_engine.processes import python

    code = """
import sys
from lab_engine import doctor
doctor.examine()
print(sorted({"jupyterlab", "ipywidgets", "bokeh", "matplotlib"} & set(sys.modules)))
"""
    out, err = python(code, folder=PROJECT).communicate(timeout=120)
    assert (out, err) == ("[]\n", "")
