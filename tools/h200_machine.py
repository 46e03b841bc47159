"""What an H200 machine says of itself: its names, versions and clocks."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from lab_engine.errors import RecordingError

PACKAGES = ("torch", "triton", "cupy-cuda13x", "cuda-core", "cuda-bindings", "nvidia-cuda-nvrtc", "numpy")


def nvidia_smi(*fields: str) -> list[str]:
    """The values of these fields of `nvidia-smi --query-gpu` for the first GPU."""
    command = ["nvidia-smi", "--id=0", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise RecordingError(f"nvidia-smi: {error}; recordings are taken on a machine with an H200") from None
    return [value.strip() for value in done.stdout.splitlines()[0].split(",")]


def check_device() -> None:
    """Raise RecordingError unless the first GPU is an H200."""
    [device] = nvidia_smi("name")
    if "H200" not in device:
        raise RecordingError(f"device {device}: expected an NVIDIA H200, data/h200 holds nothing else")


def clocks_mhz() -> dict[str, int]:
    """The clocks at this moment."""
    sm, memory = nvidia_smi("clocks.sm", "clocks.mem")
    return {"sm": int(sm), "memory": int(memory)}


def clocks_under(work: Callable[[], object]) -> dict[str, int]:
    """The clocks while `work`, which returns when the GPU has done it, runs again and again."""
    with ThreadPoolExecutor(1) as pool:
        work()
        asked = pool.submit(clocks_mhz)
        while not asked.done():
            work()
    return asked.result()


def pcie_link() -> dict[str, str]:
    """The link to the host at this moment, as nvidia-smi prints it; an idle one may have slowed down."""
    generation, lanes = nvidia_smi("pcie.link.gen.current", "pcie.link.width.current")
    return {"generation": generation, "lanes": lanes}


def cupy_cuda() -> str:
    """The version of the CUDA runtime that CuPy uses, such as 13.0."""
    import cupy

    version = int(cupy.cuda.runtime.runtimeGetVersion())
    return f"{version // 1000}.{version % 1000 // 10}"


def torch_cuda() -> str:
    """The version of the CUDA runtime that PyTorch uses, such as 13.0."""
    import torch

    return str(torch.version.cuda)


def installed_versions() -> dict[str, str]:
    """Python's version and those of PACKAGES that are installed."""
    versions = {"python": sys.version.split()[0]}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions
