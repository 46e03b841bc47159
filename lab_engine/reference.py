"""Qwen2 in plain float32 torch, without a cache, pages or packing: the oracle that everything is compared with.

Written to be read beside the model's definition, not to be fast: all tokens at once, every step spelled out.
Source: transformers `models/qwen2/modeling_qwen2.py`; Qwen2.5-Coder Technical Report, arXiv:2409.12186.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from lab_engine.config import ModelConfig
from lab_engine.weights import WeightSource


def rope_tables(config: ModelConfig, num_positions: int) -> tuple[Tensor, Tensor]:
    """cos and sin of position * theta^(-2i / head_dim), float32 (num_positions, head_dim // 2).

    Computed in float64 and rounded once: tables built in low precision drift with the position.
    """
    exponent = torch.arange(0, config.head_dim, 2, dtype=torch.float64) / config.head_dim
    angles = torch.arange(num_positions, dtype=torch.float64)[:, None] * config.rope_theta**-exponent
    return angles.cos().float(), angles.sin().float()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """RoPE on x (tokens, heads, head_dim), half-split: dim i is paired with dim i + head_dim / 2."""
    first, second = x.chunk(2, dim=-1)
    cos, sin = cos[:, None, :], sin[:, None, :]
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last dimension."""
    return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + eps) * weight


def reference_logits(source: WeightSource, token_ids: list[int]) -> Tensor:
    """Logits of every position: float32 (tokens, vocab_size). Runs in inference mode, float32 throughout."""
    config = source.config
    with torch.inference_mode():
        embed = source.matrix("model.embed_tokens.weight").float()
        x = embed[torch.tensor(token_ids)]
        cos, sin = rope_tables(config, len(token_ids))
        for layer in range(config.num_layers):
            prefix = f"model.layers.{layer}."
            h = rms_norm(x, source.vector(prefix + "input_layernorm.weight"), config.rms_norm_eps)
            x = x + _attention(source, prefix + "self_attn.", h, cos, sin)
            h = rms_norm(x, source.vector(prefix + "post_attention_layernorm.weight"), config.rms_norm_eps)
            x = x + _mlp(source, prefix + "mlp.", h)
        x = rms_norm(x, source.vector("model.norm.weight"), config.rms_norm_eps)
        head = embed if config.tie_embeddings else source.matrix("lm_head.weight").float()
        return x @ head.T


def _attention(source: WeightSource, prefix: str, h: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    config, tokens = source.config, h.shape[0]

    def heads(name: str) -> Tensor:
        weight = source.matrix(f"{prefix}{name}_proj.weight").float()
        return (h @ weight.T + source.vector(f"{prefix}{name}_proj.bias")).view(tokens, -1, config.head_dim)

    ratio = config.q_heads_per_kv_head
    q = rotate(heads("q"), cos, sin)
    k = rotate(heads("k"), cos, sin).repeat_interleave(ratio, dim=1)
    v = heads("v").repeat_interleave(ratio, dim=1)
    scores = torch.einsum("qhd,khd->hqk", q, k) / math.sqrt(config.head_dim)
    causal = torch.ones(tokens, tokens, dtype=torch.bool).tril()
    probabilities = scores.masked_fill(~causal, -math.inf).softmax(dim=-1)
    out = torch.einsum("hqk,khd->qhd", probabilities, v).reshape(tokens, -1)
    return out @ source.matrix(f"{prefix}o_proj.weight").float().T


def _mlp(source: WeightSource, prefix: str, h: Tensor) -> Tensor:
    gate = h @ source.matrix(f"{prefix}gate_proj.weight").float().T
    up = h @ source.matrix(f"{prefix}up_proj.weight").float().T
    return (torch.nn.functional.silu(gate) * up) @ source.matrix(f"{prefix}down_proj.weight").float().T
