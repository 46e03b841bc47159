"""The models that are measured: the shipped one, and random weights in the shapes of published ones."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import lab_engine
from lab_engine.backends import make_backend
from lab_engine.config import QWEN2_5_CODER, ModelConfig
from lab_engine.decoder import Decoder
from lab_engine.file_map import sections_of_a_step
from lab_engine.nanoqwen_file import scales_name, section_length, tensor_shapes
from lab_engine.nanoqwen_writer import NanoqwenWriter
from lab_engine.reference import reference_logits
from lab_engine.tokenizer import Tokenizer
from lab_engine.vocabulary import BYTE_OF
from lab_engine.weights import Int4Matrix, WeightSource

QWEN_05B, QWEN_7B = QWEN2_5_CODER["0.5B"], QWEN2_5_CODER["7B"]

TOLERANCE = 3e-2
"""Largest error of a logit against the float32 reference on the same weights, as a share of the largest logit."""


class RandomSource:
    """INT4 weights of any shape, made when asked for and the same each time; a WeightSource.

    Scales keep a row's output as large as its input, so that activations stay in range through all layers.
    """

    def __init__(self, config: ModelConfig) -> None:
        self.config = config
        self._shapes = tensor_shapes(config)

    def matrix(self, name: str) -> Int4Matrix:
        """Random words; one scale for all groups: 1 / (the spread of uniform codes * sqrt(k))."""
        rows, k = self._shapes[name][1]
        words = torch.empty(rows, k // 8, dtype=torch.int32).random_(-(2**31), 2**31, generator=_generator(name))
        return Int4Matrix(words, torch.full((rows, k // 128), (4.6 * k**0.5) ** -1, dtype=torch.float16))

    def vector(self, name: str) -> Tensor:
        """Norm weights and biases, all a little off their usual 1 and 0."""
        noise = torch.randn(self._shapes[name][1], generator=_generator(name))
        return 0.1 * noise + (1.0 if name.endswith("norm.weight") else 0.0)


def _generator(name: str) -> torch.Generator:
    return torch.Generator().manual_seed(zlib.crc32(name.encode()))


@cache
def random_decoder(config: ModelConfig, backend: str) -> Decoder:
    """A decoder with RandomSource's weights and room for 1024 tokens; kept, because packing takes seconds."""
    tokenizer = Tokenizer(byte_tokenizer())
    return Decoder(RandomSource(config), tokenizer, make_backend(backend, config, None), "random weights", num_pages=64)


def write_random_file(path: Path, config: ModelConfig) -> None:
    """RandomSource's weights as a .nanoqwen file."""
    source = RandomSource(config)
    with NanoqwenWriter(path, config, byte_tokenizer(), "value_shuffle") as writer:
        for name, (dtype, _) in tensor_shapes(config).items():
            if dtype == "F32":
                writer.append(name, source.vector(name).numpy())
            elif dtype == "INT4":
                matrix = source.matrix(name)
                writer.append(name, matrix.words.numpy())
                writer.append(scales_name(name), matrix.scales.numpy())


def byte_tokenizer() -> dict[str, Any]:
    """The spec of a tokenizer that knows the 256 bytes and nothing else."""
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    model = {"type": "BPE", "vocab": dict(BYTE_OF), "merges": []}
    data = {"version": "1.0", "model": model, "pre_tokenizer": level, "decoder": level, "added_tokens": []}
    return {"tokenizer": data, "chat_template": None, "stop_token_ids": [], "special_tokens": {}}


def shipped_model() -> Path:
    """The shipped model's file; NanoqwenError where it is missing."""
    return lab_engine.data_path(lab_engine.SHIPPED_MODEL)


def step_bytes(config: ModelConfig, context: int) -> int:
    """Bytes that a decode step must read: every weight once, one row of an untied embedding, K and V of the past."""
    shapes = tensor_shapes(config)
    weights = sum(section_length(*shapes[name]) for name in sections_of_a_step(config))
    return weights + context * config.num_layers * 2 * config.kv_size * 2


def prompt_operations(config: ModelConfig, tokens: int) -> int:
    """Multiplications and additions of a prompt: every layer weight for every token, causal attention, one head row."""
    shapes = tensor_shapes(config)
    matrices = [shape for name, (dtype, shape) in shapes.items() if dtype == "INT4" and ".layers." in name]
    attention = config.num_layers * 2 * tokens * (tokens + 1) * config.q_size  # q · k and p · v over t tokens each
    head = 2 * config.vocab_size * config.hidden_size
    return 2 * tokens * sum(rows * k for rows, k in matrices) + attention + head


def logits_agree(found: Tensor, source: WeightSource, token_ids: Sequence[int]) -> bool:
    """Whether logits are those of the float32 reference on the same weights.

    found: float32 (n, vocab_size), of the last n of token_ids. Each row's largest error is at most TOLERANCE times
    its largest logit, and the best token is the same wherever its lead is larger than the error.
    """
    expected = reference_logits(source, list(token_ids))[-len(found) :]
    error = (found - expected).abs().amax(dim=-1)
    best = expected.topk(2, dim=-1)
    same = (found.argmax(dim=-1) == best.indices[:, 0]) | (best.values[:, 0] - best.values[:, 1] <= error)
    return bool((error <= TOLERANCE * expected.abs().amax(dim=-1)).all() and same.all())


def tokens_agree(token_ids: Sequence[int], prompt_ids: Sequence[int], source: WeightSource, known_ids: int) -> bool:
    """Whether greedily chosen tokens are the reference's best of the known ids, or within TOLERANCE of it."""
    if not token_ids:
        return False
    expected = reference_logits(source, [*prompt_ids, *token_ids[:-1]])[-len(token_ids) :, :known_ids]
    chosen = expected.gather(1, torch.tensor(token_ids)[:, None])[:, 0]
    return bool((expected.amax(dim=-1) - chosen <= TOLERANCE * expected.abs().amax(dim=-1)).all())
