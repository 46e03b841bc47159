"""`nanoqwen doctor`: what this machine has, what the lab can do with it, and what to do about what is missing.

Nothing here raises for a missing part: each becomes one line of advice.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab_engine.errors import NanoqwenError

if TYPE_CHECKING:
    from rich.table import Table

ENGINE_PACKAGES = (
    *("torch", "numpy", "tokenizers", "safetensors", "huggingface_hub", "xxhash"),
    *("typer", "rich", "tqdm", "jinja2", "psutil"),
)
NOTEBOOK_PACKAGES = ("jupyterlab", "ipywidgets", "anywidget", "bokeh", "jupyter-bokeh", "matplotlib")
GPU_PACKAGES = ("triton", "cupy-cuda13x", "cuda-core", "cuda-bindings", "cuda-toolkit")


@dataclass(frozen=True)
class Report:
    """The findings, all plain JSON values. packages: name -> version, None where it is not installed."""

    python: str
    platform: str
    cpu: dict[str, Any]
    memory_bytes: int
    torch: dict[str, Any]
    backends: list[dict[str, Any]]
    gpus: list[dict[str, str]]
    packages: dict[str, str | None]
    model: dict[str, Any]
    advice: list[str]

    def to_dict(self) -> dict[str, Any]:
        """For json.dumps."""
        return asdict(self)


def examine() -> Report:
    """Look at everything; reads the shipped model once, to compare its checksums."""
    import psutil

    names = (*ENGINE_PACKAGES, *NOTEBOOK_PACKAGES, *GPU_PACKAGES)
    packages = {name: _version(name) for name in names}
    model, gpus, torch = _shipped_model(), find_gpus(), _torch()
    return Report(
        python=f"{platform.python_version()} ({sys.executable})",
        platform=platform.platform(),
        cpu={
            "name": cpu_name(),
            "capability": torch["cpu_capability"],
            "cores": psutil.cpu_count(logical=False) or os.cpu_count(),
            "threads": os.cpu_count(),
        },
        memory_bytes=psutil.virtual_memory().total,
        torch=torch,
        backends=_backends() if torch["version"] else [],
        gpus=gpus,
        packages=packages,
        model=model,
        advice=_advice(packages, model, gpus, torch),
    )


def _torch() -> dict[str, Any]:
    """PyTorch as it loads here; a broken or missing one is a finding too, and then version is None."""
    facts: dict[str, Any] = {"version": None, "cuda": None, "sees_gpu": False, "threads": None, "cpu_capability": None}
    facts |= {"omp_wait_policy": os.environ.get("OMP_WAIT_POLICY"), "omp_spins": os.environ.get("GOMP_SPINCOUNT", "0")}
    facts |= {"problem": None}
    try:
        import torch
    except (ImportError, OSError) as error:
        return {**facts, "problem": " ".join(str(error).split())}
    facts |= {"version": torch.__version__, "cuda": torch.version.cuda, "sees_gpu": torch.cuda.is_available()}
    return {
        **facts,
        "threads": torch.get_num_threads(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
    }


def _backends() -> list[dict[str, Any]]:
    from lab_engine.backends import availability

    return [asdict(option) for option in availability()]


def cpu_name() -> str:
    """The processor's name as its maker writes it, else what Python knows."""
    if sys.platform == "darwin":
        return _output(["sysctl", "-n", "machdep.cpu.brand_string"]) or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def find_gpus() -> list[dict[str, str]]:
    """NVIDIA GPUs as the driver's own tool lists them, whether or not torch sees them: name, capability, driver."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    fields = ("name", "compute_cap", "driver_version", "memory.total")
    text = _output([tool, f"--query-gpu={','.join(fields)}", "--format=csv,noheader"])
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]
    keys = ("name", "compute_capability", "driver", "memory")
    return [dict(zip(keys, row, strict=True)) for row in rows if len(row) == len(keys)]


def _output(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _shipped_model() -> dict[str, Any]:
    from lab_engine import SHIPPED_MODEL, data_path
    from lab_engine.nanoqwen_file import NanoqwenFile

    found: dict[str, Any] = {"path": None, "bytes": None, "intact": False, "problem": None}
    try:
        file = NanoqwenFile(data_path(SHIPPED_MODEL))
        damaged = file.verify()
    except NanoqwenError as error:
        return {**found, "problem": str(error)}
    problem = f"damaged sections: {', '.join(damaged)}" if damaged else None
    return {"path": str(file.path), "bytes": file.size, "intact": not damaged, "problem": problem}


def _advice(
    packages: dict[str, str | None], model: dict[str, Any], gpus: list[dict[str, str]], torch: dict[str, Any]
) -> list[str]:
    """One line for each thing that is missing and that somebody would miss."""
    advice = []
    if torch["problem"]:
        advice.append(f"PyTorch does not load ({torch['problem']}): install it again, as constraints.txt says")
    if model["problem"]:
        advice.append(f"the shipped model is not usable ({model['problem']}): git checkout -- data brings it back")
    if missing := [name for name in ENGINE_PACKAGES if packages[name] is None]:
        advice.append(f"the engine lacks {', '.join(missing)}: pip install -c constraints.txt -e .")
    if missing := [name for name in NOTEBOOK_PACKAGES if packages[name] is None]:
        advice.append(f"the notebooks lack {', '.join(missing)}: make lab, or pip install -c constraints.txt -e .[lab]")
    if gpus and not torch["sees_gpu"]:
        advice.append("this PyTorch does not see the GPU: install torch's default wheel, not the one for CPUs")
    if gpus and (missing := [name for name in GPU_PACKAGES if packages[name] is None]):
        advice.append(f"the GPU backends lack {', '.join(missing)}: pip install -c constraints.txt -e .[gpu]")
    if os.environ.get("OMP_WAIT_POLICY", "").lower() == "active":
        advice.append("OMP_WAIT_POLICY=active: threads that spin make small products slow on a busy machine; unset it")
    return advice


def as_tables(report: Report) -> list[Table | str]:
    """The findings for a person, then the advice."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(show_header=False)
    for name, value in _rows(report).items():
        table.add_row(name, escape(value))
    advice = [f"→ {escape(line)}" for line in report.advice] or ["Nothing is missing."]
    return [table, *advice]


def _rows(report: Report) -> dict[str, str]:
    cpu, torch, model = report.cpu, report.torch, report.model
    pytorch = f"{torch['version']}, {torch['threads']} threads, OpenMP wait policy {torch['omp_wait_policy']}"
    pytorch += f", {torch['omp_spins']} spins before it"
    rows = {
        "Python": report.python,
        "platform": report.platform,
        "CPU": f"{cpu['name']}, {cpu['capability']}, {cpu['cores']} cores, {cpu['threads']} threads",
        "memory": f"{report.memory_bytes / 2**30:.1f} GiB",
        "PyTorch": torch["problem"] or pytorch,
        "GPU": "\n".join(", ".join(gpu.values()) for gpu in report.gpus) or "none",
    }
    for option in report.backends:
        rows[f"backend {option['name']}"] = f"{'yes' if option['available'] else 'no'}: {option['reason']}"
    rows["shipped model"] = model["problem"] or f"{model['path']}, {model['bytes'] / 1e6:.1f} MB, all checksums right"
    rows["packages"] = ", ".join(f"{name} {version or '(missing)'}" for name, version in report.packages.items())
    return rows
