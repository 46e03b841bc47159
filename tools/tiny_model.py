"""Qwen2 for training, in plain torch with Hugging Face's parameter names, and its export as a Hugging Face folder.

Fixed by the lab: head_dim 128, 4 query and 2 KV heads, q/k/v biases, tied embeddings, RMSNorm eps 1e-6, positions
0…2047. rope_theta is 10000: over 2048 positions the slowest pair of a head turns by a quarter of a radian; at 1e6 a
third of the pairs would turn by less than that. A test holds the logits equal to transformers' Qwen2ForCausalLM.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn

from tools.tiny_tokenizer import MAX_POSITIONS, VOCAB_SIZE, write_json

SHARD_BYTES = 12_000_000


@dataclass(frozen=True)
class Shape:
    """The sizes of a candidate."""

    hidden: int
    intermediate: int
    layers: int
    vocab: int = VOCAB_SIZE
    q_heads: int = 4
    kv_heads: int = 2
    head_dim: int = 128
    rope_theta: float = 10_000.0
    rms_norm_eps: float = 1e-6


SHAPES = {"A": Shape(512, 1024, 4), "B": Shape(384, 896, 6), "tiny": Shape(128, 128, 2)}


class Attention(nn.Module):
    """Causal grouped-query attention over (batch, length, hidden)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        q_rows, kv_rows = shape.q_heads * shape.head_dim, shape.kv_heads * shape.head_dim
        self.q_proj = nn.Linear(shape.hidden, q_rows)
        self.k_proj = nn.Linear(shape.hidden, kv_rows)
        self.v_proj = nn.Linear(shape.hidden, kv_rows)
        self.o_proj = nn.Linear(q_rows, shape.hidden, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, length, _ = x.shape
        group = self.shape.q_heads // self.shape.kv_heads
        heads = (batch, length, -1, self.shape.head_dim)
        q = rotate(self.q_proj(x).view(heads).transpose(1, 2), cos, sin)
        k = rotate(self.k_proj(x).view(heads).transpose(1, 2), cos, sin)
        v = self.v_proj(x).view(heads).transpose(1, 2)
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        projected: Tensor = self.o_proj(out.transpose(1, 2).reshape(batch, length, -1))
        return projected


class MLP(nn.Module):
    """SwiGLU."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden, shape.intermediate, bias=False)
        self.up_proj = nn.Linear(shape.hidden, shape.intermediate, bias=False)
        self.down_proj = nn.Linear(shape.intermediate, shape.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class Layer(nn.Module):
    """One decoder layer."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(shape.hidden, eps=shape.rms_norm_eps)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = nn.RMSNorm(shape.hidden, eps=shape.rms_norm_eps)
        self.mlp = MLP(shape)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class TinyCoder(nn.Module):
    """ids (batch, length) int64 -> logits (batch, length, vocab)."""

    cos: Tensor
    sin: Tensor

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.model = nn.ModuleDict(
            {
                "embed_tokens": nn.Embedding(shape.vocab, shape.hidden),
                "layers": nn.ModuleList(Layer(shape) for _ in range(shape.layers)),
                "norm": nn.RMSNorm(shape.hidden, eps=shape.rms_norm_eps),
            }
        )
        frequencies = shape.rope_theta ** (-torch.arange(0, shape.head_dim, 2).float() / shape.head_dim)
        angles = torch.outer(torch.arange(MAX_POSITIONS).float(), frequencies).repeat(1, 2)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        embedding = self.model["embed_tokens"]
        x = embedding(ids)
        cos, sin = self.cos[: ids.shape[1]], self.sin[: ids.shape[1]]
        for layer in self.model["layers"].children():
            x = layer(x, cos, sin)
        return F.linear(self.model["norm"](x), embedding.get_parameter("weight"))


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """RoPE in Qwen2's half-split form over (batch, heads, length, head_dim); keeps x's dtype."""
    first, second = x.float().chunk(2, dim=-1)
    turned = torch.cat((-second, first), dim=-1)
    return (x.float() * cos + turned * sin).to(x.dtype)


def initialise(model: TinyCoder, seed: int) -> None:
    """Normal of 0.02, projections back into the residual stream smaller by sqrt(2 × layers); biases 0, norms 1."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2:
            back = name.endswith(("o_proj.weight", "down_proj.weight"))
            std = 0.02 / (2 * model.shape.layers) ** 0.5 if back else 0.02
            parameter.data.copy_(torch.randn(parameter.shape, generator=generator) * std)
        elif name.endswith("bias"):
            parameter.data.zero_()


def hf_config(shape: Shape, eos_token_id: int) -> dict[str, Any]:
    """config.json in the spelling of published Qwen2.5 checkpoints."""
    return {
        "architectures": ["Qwen2ForCausalLM"],
        "attention_dropout": 0.0,
        "bos_token_id": eos_token_id,
        "eos_token_id": eos_token_id,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "hidden_size": shape.hidden,
        "initializer_range": 0.02,
        "intermediate_size": shape.intermediate,
        "max_position_embeddings": MAX_POSITIONS,
        "max_window_layers": shape.layers,
        "model_type": "qwen2",
        "num_attention_heads": shape.q_heads,
        "num_hidden_layers": shape.layers,
        "num_key_value_heads": shape.kv_heads,
        "rms_norm_eps": shape.rms_norm_eps,
        "rope_theta": shape.rope_theta,
        "sliding_window": MAX_POSITIONS,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "use_sliding_window": False,
        "vocab_size": shape.vocab,
    }


def write_weights(state: dict[str, Tensor], folder: Path) -> None:
    """bf16 safetensors in shards of at most SHARD_BYTES and their index, in the order of the state dict."""
    shards: list[dict[str, Tensor]] = [{}]
    size = 0
    for name, tensor in state.items():
        bf16 = tensor.detach().to("cpu", torch.bfloat16).contiguous()
        # The safetensors header takes part of the shard too.
        if size + bf16.nbytes + 16_384 > SHARD_BYTES:
            shards.append({})
            size = 0
        shards[-1][name] = bf16
        size += bf16.nbytes
    weight_map: dict[str, str] = {}
    for number, shard in enumerate(shards, 1):
        file = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        save_file(shard, folder / file, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(shard, file)
    total = sum(t.nbytes for shard in shards for t in shard.values())
    write_json(folder / "model.safetensors.index.json", {"metadata": {"total_size": total}, "weight_map": weight_map})
