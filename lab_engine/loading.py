"""From a path to a decoder: which source, which tokenizer, which backend."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from lab_engine.backends import make_backend
from lab_engine.checkpoint import Checkpoint
from lab_engine.decoder import Decoder
from lab_engine.errors import TokenizerError
from lab_engine.nanoqwen_file import NanoqwenFile
from lab_engine.tokenizer import Tokenizer
from lab_engine.weights import FileSource, WeightSource


def open_source(path: Path) -> tuple[WeightSource, Tokenizer]:
    """The weights and tokenizer of a .nanoqwen file, or of a Hugging Face folder without converting it."""
    if path.is_dir():
        return Checkpoint(path), Tokenizer.from_hf_folder(path)
    file = NanoqwenFile(path)
    try:
        return FileSource(file), Tokenizer(file.tokenizer_spec())
    except TokenizerError as error:
        raise TokenizerError(f"{path}: {error}") from None


def load_decoder(
    path: Path,
    backend: str = "auto",
    dtype: torch.dtype | None = None,
    num_pages: int | None = None,
    page_order: Sequence[int] | None = None,
) -> Decoder:
    """See lab_engine.load; page_order is the order in which the pool hands out ids (default ascending)."""
    source, tokenizer = open_source(path)
    made = make_backend(backend, source.config, dtype)
    return Decoder(source, tokenizer, made, path.stem, num_pages, page_order)
