"""nanoqwen-lab's engine: an INT4 Qwen2 decoder with a paged KV cache that can be read from top to bottom.

    decoder = lab_engine.load()
    for token_id in decoder.generate(decoder.tokenizer.encode("class Stack:"), max_new_tokens=64): ...

Importing this package imports no torch, so that the command line can answer at once.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

LOAD_FILE = Path("/proc/loadavg")
SPINS = "20000"


def machine_is_idle(load_file: Path = LOAD_FILE) -> bool:
    """Whether only this process wants a core at this moment: Linux counts the runnable threads. False where unknown."""
    try:
        return load_file.read_text().split()[3].split("/")[0] in ("0", "1")
    except (OSError, IndexError):
        return False


# How PyTorch's OpenMP threads wait for their next piece of work; read when torch starts, so it stands before any import
# of torch. A step of the 0.5B has some hundred short products: threads that sleep between them cost a third of its
# time on an idle machine, threads that spin make it twice as long once another process wants a core.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
if machine_is_idle():
    os.environ.setdefault("GOMP_SPINCOUNT", SPINS)

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
