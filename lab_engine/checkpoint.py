"""A Hugging Face checkpoint folder: config.json and safetensors, in one file or in shards with an index.

Only what config and index name is opened, and only inside the folder; no pickle is ever loaded.
Every tensor that a Qwen2 of this config must have is checked by name and shape before the first byte is used.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from lab_engine.config import ModelConfig
from lab_engine.errors import CheckpointError
from lab_engine.nanoqwen_file import tensor_shapes

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
_FLOATS = {"F64", "F32", "F16", "BF16"}


class Checkpoint:
    """A checked folder whose tensors can be read whole or by rows.

    Tied embeddings: `tie_word_embeddings` decides. If it is true, an `lm_head.weight` in the folder is ignored;
    if it is false, one must be there. Weights or biases of a layer that no Qwen2 of this config has are refused: they
    would change the numbers. Other tensors that the model does not need are ignored.
    """

    def __init__(self, folder: Path) -> None:
        """Check config, index, names, shapes and dtypes; CheckpointError or ConfigError names what is wrong."""
        self.folder = folder
        self.config = ModelConfig.from_hf_file(_inside(folder, "config.json"))
        self._files = _find_tensors(folder)
        if self.config.num_layers > len(self._files):  # before tensor_shapes lists every one of them
            found = f"num_hidden_layers is {self.config.num_layers}, but there are {len(self._files)} tensors"
            raise CheckpointError(f"{folder}: {found}; does config.json belong to these weights?")
        self.shapes = {
            name: shape for name, (_, shape) in tensor_shapes(self.config).items() if not name.endswith(".scales")
        }
        for name, shape in self.shapes.items():
            self._check(name, shape)
        for name in self._files:
            if name not in self.shapes and name.startswith("model.layers.") and name.endswith((".weight", ".bias")):
                raise CheckpointError(
                    f"{folder}: found tensor {name}, which a Qwen2 of {self.config.num_layers} layers does not have; "
                    "does config.json belong to these weights?"
                )

    def _check(self, name: str, shape: tuple[int, ...]) -> None:
        if name not in self._files:
            raise CheckpointError(f"{self.folder}: tensor {name} is missing; expected shape {list(shape)}")
        with _open(self._files[name]) as file:
            part = file.get_slice(name)
            if tuple(part.get_shape()) != shape:
                raise CheckpointError(f"tensor {name}: found shape {part.get_shape()}, expected {list(shape)}")
            if part.get_dtype() not in _FLOATS:
                raise CheckpointError(
                    f"tensor {name}: found dtype {part.get_dtype()}, expected one of {sorted(_FLOATS)}"
                )

    def rows(self, name: str, rows_at_once: int) -> Iterator[Tensor]:
        """The rows of a tensor in order, rows_at_once at a time, in their stored dtype."""
        count = self.shapes[name][0]
        with _open(self._files[name]) as file:
            part = file.get_slice(name)
            for start in range(0, count, rows_at_once):
                yield part[start : min(start + rows_at_once, count)]

    def tensor(self, name: str) -> Tensor:
        """A whole tensor as float32."""
        with _open(self._files[name]) as file:
            tensor: Tensor = file.get_tensor(name)
            return tensor.to(torch.float32)

    matrix = tensor
    vector = tensor

    @property
    def num_weights(self) -> int:
        """Elements of all tensors that the model needs."""
        return sum(math.prod(shape) for shape in self.shapes.values())


def _open(path: Path) -> safe_open:
    try:
        return safe_open(str(path), framework="pt")
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path}: not a complete safetensors file ({error})") from None


def _find_tensors(folder: Path) -> dict[str, Path]:
    """Tensor name -> file. The index decides where there is one; stray files beside it are not opened."""
    if (folder / INDEX).exists():
        return _read_index(folder)
    single = _inside(folder, SINGLE)
    if not single.is_file():
        raise CheckpointError(
            f"{folder}: neither {INDEX} nor {SINGLE} found; expected a Hugging Face folder with safetensors weights"
        )
    with _open(single) as file:
        return dict.fromkeys(file.keys(), single)


def _read_index(folder: Path) -> dict[str, Path]:
    path = _inside(folder, INDEX)
    try:
        weight_map = json.loads(path.read_text(encoding="utf-8"))["weight_map"]
        entries = {str(name): str(file) for name, file in weight_map.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OSError):
        raise CheckpointError(f"{path}: not an index; expected a JSON object with weight_map") from None
    shards = {file: _inside(folder, file) for file in set(entries.values())}
    stored: dict[str, set[str]] = {}
    for file, shard in shards.items():
        if not shard.is_file():
            raise CheckpointError(f"{path}: shard {file} is missing; download the checkpoint again")
        with _open(shard) as opened:
            stored[file] = set(opened.keys())
    for name, file in entries.items():
        if name not in stored[file]:
            raise CheckpointError(f"{path}: tensor {name} is not in shard {file}; download the checkpoint again")
    return {name: shards[file] for name, file in entries.items()}


def _inside(folder: Path, entry: str) -> Path:
    """The path of a file named by the checkpoint; refused before it is opened if it leads out of the folder.

    The hub's cache keeps a snapshot as links to ../../blobs of the same model, which stay inside its model folder.
    """
    path = folder / entry
    if Path(entry).name != entry or entry in ("", ".."):
        raise CheckpointError(f"{folder}: shard {entry!r} points outside the folder; expected a plain file name")
    if path.is_symlink() and not any(path.resolve().is_relative_to(root) for root in _roots(folder)):
        raise CheckpointError(f"{folder}: {entry} is a link that leads out of the folder; copy the file instead")
    return path


def _roots(folder: Path) -> list[Path]:
    """Where a link may lead: the folder itself, and for a hub snapshot the blobs of the same model."""
    folder = folder.resolve()
    hub_model = folder.parent.parent
    is_snapshot = folder.parent.name == "snapshots" and hub_model.name.startswith("models--")
    return [folder, hub_model / "blobs"] if is_snapshot else [folder]
