"""The CUDA backend, for NVIDIA Hopper: so far the matrix products of a decode step, without attention and cache."""

from __future__ import annotations

from importlib.util import find_spec

import torch

NOT_YET = "this version has the matrix products of a decode step, but not yet its attention and KV cache"


def missing() -> str | None:
    """Why this machine cannot run the products, in one line; None where it can."""
    if not torch.cuda.is_available():
        return "needs an NVIDIA Hopper GPU, and PyTorch sees none"
    major, minor = torch.cuda.get_device_capability()
    if major != 9:
        return f"needs an NVIDIA Hopper GPU (9.0), found {torch.cuda.get_device_name()} ({major}.{minor})"
    if find_spec("cuda") is None or find_spec("cuda.core") is None:
        return "needs cuda-core; on Linux: .venv/bin/python -m pip install -c constraints.txt -e .[gpu]"
    return None


def available() -> tuple[bool, str]:
    """Not for decoding yet; the reason says what is there."""
    absent = missing()
    return False, NOT_YET if absent is None else f"{NOT_YET}; {absent}"


class CudaBackend:
    pass
