"""nanoqwen-lab's engine: an INT4 Qwen2 decoder with a paged KV cache that can be read from top to bottom.

    decoder = lab_engine.load()
    for token_id in decoder.generate(decoder.tokenizer.encode("def fibonacci(n):"), max_new_tokens=64): ...

Importing this package imports no torch, so that the command line can answer at once.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

# An OpenMP thread that spins while it waits makes every small product slow once another process wants the core.
# It is read when torch starts its threads, so it stands here, before any module can import torch.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

if TYPE_CHECKING:
    import torch

    from lab_engine.decoder import Decoder

__version__ = "0.1.0"

SHIPPED_MODEL = "tiny-coder.nanoqwen"


def data_path(name: str) -> Path:
    """The path of a file or folder that ships in data/, from any working folder; NanoqwenError names a missing one."""
    from lab_engine.errors import NanoqwenError

    folder = Path(__file__).resolve().parent.parent / "data"
    path = folder / name
    if not path.exists():
        raise NanoqwenError(
            f"{path}: not there; expected it in the project's data folder (install with pip install -e .)"
        )
    return path


def load(
    path: str | Path | None = None,
    backend: str = "auto",
    dtype: torch.dtype | None = None,
    num_pages: int | None = None,
) -> Decoder:
    """A decoder for a .nanoqwen file or a Hugging Face folder; the shipped model without a path.

    backend: torch, triton, cuda, or auto for the fastest that works here. dtype torch.float32 runs the torch backend
    wholly in float32; the default is the fastest. num_pages sizes the KV cache (default: all positions of the
    model). Raises NanoqwenError with one line for everything that can be wrong with the file or the machine.
    """
    from lab_engine.loading import load_decoder

    return load_decoder(data_path(SHIPPED_MODEL) if path is None else Path(path), backend, dtype, num_pages)
