"""From a Hugging Face folder, or a model id on the hub, to one .nanoqwen file.

Tensors stream through in pieces of rows, so memory stays small whatever the model's size; the file takes its name
only when it is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from lab_engine.checkpoint import Checkpoint
from lab_engine.errors import CheckpointError, NanoqwenError
from lab_engine.int4 import pack_words, quantize_rows
from lab_engine.nanoqwen_file import scales_name, tensor_shapes
from lab_engine.nanoqwen_writer import NanoqwenWriter
from lab_engine.tokenizer import Tokenizer

_PIECE_WEIGHTS = 1 << 20  # weights quantized at once: 4 MiB in float32, so that a piece stays in the cache
_HUB_FILES = ["*.safetensors", "*.json", "*.jinja", "*.txt"]  # never a pickle

Progress = Callable[[int, int], object]
"""Called after each piece with the weights that are done and all that there are."""


def convert(
    source: str | Path,
    out: Path,
    layout: str = "value_shuffle",
    method: str = "search",
    progress: Progress | None = None,
) -> Path:
    """Convert a checkpoint to `out` and return it.

    source: a folder, or a hub id such as Qwen/Qwen2.5-Coder-0.5B-Instruct, which is downloaded first.
    layout: nibble order of every matrix; method: how scales are chosen (int4.quantize_rows). Errors are
    NanoqwenErrors that name the file or tensor; nothing half-written stays behind.
    """
    folder = find_folder(source)
    checkpoint = Checkpoint(folder)
    spec = Tokenizer.from_hf_folder(folder).to_spec()
    done = 0
    with NanoqwenWriter(out, checkpoint.config, spec, layout) as writer:
        for weights in _write_tensors(writer, checkpoint, layout, method):
            done += weights
            if progress is not None:
                progress(done, checkpoint.num_weights)
    return out


def find_folder(source: str | Path) -> Path:
    """The local folder of a checkpoint; a hub id is downloaded into the hub's own cache (HF_HOME moves it)."""
    folder = Path(source).expanduser()
    if folder.is_dir():
        return folder
    if folder.exists():
        raise CheckpointError(f"{folder}: is a file; expected a Hugging Face folder or a hub id such as user/model")
    if str(source).startswith((".", "/", "~")) or str(source).count("/") != 1:
        raise CheckpointError(f"{source}: no such folder, and not a hub id such as user/model")
    return _download(str(source))


def _download(repo_id: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(repo_id, allow_patterns=_HUB_FILES))
    except HFValidationError as error:
        raise CheckpointError(f"{repo_id}: not a hub id ({error})") from None
    except LocalEntryNotFoundError:
        raise CheckpointError(
            f"{repo_id}: the hub cannot be reached and no copy is cached; check the network"
        ) from None
    except Exception as error:  # noqa: BLE001  the hub's HTTP library raises its own, whose name has changed before
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CheckpointError(f"{repo_id}: the download failed ({reason})") from None


def _write_tensors(writer: NanoqwenWriter, checkpoint: Checkpoint, layout: str, method: str) -> Iterator[int]:
    """Write every tensor of the model; yields the weights of each piece that is written."""
    for name, (dtype, shape) in tensor_shapes(checkpoint.config).items():
        if dtype == "INT4":
            yield from _write_matrix(writer, checkpoint, name, shape[1], layout, method)
        elif dtype == "F32":
            yield _write_vector(writer, checkpoint, name)


def _write_matrix(
    writer: NanoqwenWriter, checkpoint: Checkpoint, name: str, k: int, layout: str, method: str
) -> Iterator[int]:
    for piece in checkpoint.rows(name, max(_PIECE_WEIGHTS // k, 1)):
        try:
            q, scales = quantize_rows(piece, method)
        except NanoqwenError as error:
            raise CheckpointError(f"tensor {name}: {error}") from None
        writer.append(name, pack_words(q, layout).numpy())
        writer.append(scales_name(name), scales.numpy())
        yield piece.numel()


def _write_vector(writer: NanoqwenWriter, checkpoint: Checkpoint, name: str) -> int:
    vector = checkpoint.vector(name)
    if not torch.isfinite(vector).all():
        raise CheckpointError(f"tensor {name}: found NaN or inf, expected finite numbers")
    writer.append(name, vector.numpy())
    return vector.numel()
