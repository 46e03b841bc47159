"""The weights of a decoder, gathered from any source and handed to a backend.

A source is a .nanoqwen file (INT4), a Hugging Face folder (floating point), or anything else with the two methods
of WeightSource: that is where another quantization plugs in. q, k, v and gate, up are joined here, because one
matrix of more rows is one pass over the activation instead of three or two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import methodcaller
from typing import Any, Protocol

import torch
from torch import Tensor

from lab_engine.config import ModelConfig
from lab_engine.errors import FileFormatError
from lab_engine.int4 import dequantize, shuffle_words, unpack_words
from lab_engine.nanoqwen_file import NanoqwenFile, scales_name


@dataclass(frozen=True)
class Int4Matrix:
    """A packed matrix: words int32 (rows, k // 8) in `value_shuffle` order, scales float16 (rows, k // 128)."""

    words: Tensor
    scales: Tensor

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, k) in weights."""
        return self.words.shape[0], self.words.shape[1] * 8

    @property
    def num_bytes(self) -> int:
        """Bytes of nibbles and scales: 0.515625 a weight."""
        return self.words.nbytes + self.scales.nbytes

    def float(self) -> Tensor:
        """The weights that the codes stand for, float32 (rows, k)."""
        return dequantize(unpack_words(self.words), self.scales)


Matrix = Int4Matrix | Tensor
"""A packed matrix, or floating weights (rows, k); `float()` gives either as float32."""


class WeightSource(Protocol):
    """Where weights come from; names are those of the Hugging Face checkpoint, with `.weight` or `.bias`."""

    config: ModelConfig

    def matrix(self, name: str) -> Matrix:
        """A matrix (rows, k)."""

    def vector(self, name: str) -> Tensor:
        """A norm weight or a bias, float32."""


class FileSource:
    """The matrices of a .nanoqwen file as tensors over its mapping: nothing is copied."""

    def __init__(self, file: NanoqwenFile) -> None:
        """Read from an opened file, which stays mapped as long as its tensors live."""
        self.file = file
        self.config = file.config

    def matrix(self, name: str) -> Int4Matrix:
        """The packed matrix of section `name` and its scales; `linear` words are shuffled into a copy."""
        words = torch.from_numpy(self.file.array(name))
        scales = torch.from_numpy(self.file.array(scales_name(name)))
        if not torch.isfinite(scales).all():
            raise FileFormatError(f"{self.file.path}: scales of {name}: found NaN or inf, expected finite numbers")
        if self.file.sections[name].layout == "linear":
            words = shuffle_words(words)
        return Int4Matrix(words, scales)

    def vector(self, name: str) -> Tensor:
        """The float32 vector of section `name`."""
        vector = torch.from_numpy(self.file.array(name))
        if not torch.isfinite(vector).all():
            raise FileFormatError(f"{self.file.path}: {name}: found NaN or inf, expected finite numbers")
        return vector


class DenseSource:
    """Any source as float32 matrices, each read once: for whoever asks for them again and again."""

    def __init__(self, source: WeightSource, reader: Callable[[Any], Tensor] = methodcaller("float")) -> None:
        """reader turns a matrix of the source into weights (rows, k), float32; each is held: 4 bytes a weight."""
        self.config = source.config
        self._source, self._reader = source, reader
        self._read: dict[str, Tensor] = {}

    def matrix(self, name: str) -> Tensor:
        """The matrix as the reader sees it, float32 (rows, k)."""
        if name not in self._read:
            self._read[name] = self._reader(self._source.matrix(name))
        return self._read[name]

    def vector(self, name: str) -> Tensor:
        """The vector of the source, unchanged."""
        return self._source.vector(name)


class MappedSource:
    """Another source with every matrix passed through a function: the place to plug in a quantization.

    `MappedSource(checkpoint, lambda name, weight: my_dequantize(*my_quantize(weight)))`
    """

    def __init__(self, source: WeightSource, function: Callable[[str, Tensor], Tensor]) -> None:
        """function(name, float32 (rows, k)) -> the weights to use instead, same shape."""
        self.source, self.function = source, function
        self.config = source.config

    def matrix(self, name: str) -> Tensor:
        """The mapped matrix."""
        return self.function(name, self.source.matrix(name).float())

    def vector(self, name: str) -> Tensor:
        """The vector of the source, unchanged."""
        return self.source.vector(name)


@dataclass(frozen=True)
class LayerWeights:
    """One layer in the form of its backend: matrices are what `Backend.load_matrix` returned."""

    input_norm: Tensor
    qkv: Any
    qkv_bias: Tensor
    o: Any
    post_attention_norm: Tensor
    gate_up: Any
    down: Any


@dataclass(frozen=True)
class Weights:
    """All weights of a decoder; with tied embeddings lm_head is embed."""

    embed: Any
    layers: tuple[LayerWeights, ...]
    norm: Tensor
    lm_head: Any


class MatrixLoader(Protocol):
    """The part of a backend that takes weights in."""

    def load_matrix(self, parts: list[Matrix]) -> Any:
        """One matrix whose rows are those of the parts in turn."""

    def load_vector(self, vector: Tensor) -> Tensor:
        """A norm weight or bias where the backend computes."""


def gather_weights(source: WeightSource, backend: MatrixLoader) -> Weights:
    """Hand every tensor of the source to the backend, layer by layer."""

    def matrix(*names: str) -> Any:
        return backend.load_matrix([source.matrix(f"{name}.weight") for name in names])

    def layer(prefix: str) -> LayerWeights:
        qkv = [f"{prefix}self_attn.{name}_proj" for name in "qkv"]
        return LayerWeights(
            input_norm=backend.load_vector(source.vector(f"{prefix}input_layernorm.weight")),
            qkv=matrix(*qkv),
            qkv_bias=backend.load_vector(torch.cat([source.vector(f"{name}.bias") for name in qkv])),
            o=matrix(f"{prefix}self_attn.o_proj"),
            post_attention_norm=backend.load_vector(source.vector(f"{prefix}post_attention_layernorm.weight")),
            gate_up=matrix(f"{prefix}mlp.gate_proj", f"{prefix}mlp.up_proj"),
            down=matrix(f"{prefix}mlp.down_proj"),
        )

    embed = matrix("model.embed_tokens")
    return Weights(
        embed=embed,
        layers=tuple(layer(f"model.layers.{i}.") for i in range(source.config.num_layers)),
        norm=backend.load_vector(source.vector("model.norm.weight")),
        lm_head=embed if source.config.tie_embeddings else matrix("lm_head"),
    )
