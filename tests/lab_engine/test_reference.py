"""The reference against Hugging Face transformers in float32, and RoPE against published numbers and float64."""

import math
from pathlib import Path

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM
from transformers.models.qwen2.modeling_qwen2 import Qwen2RotaryEmbedding, rotate_half

from lab_engine.checkpoint import Checkpoint
from lab_engine.config import ModelConfig
from lab_engine.loading import open_source
from lab_engine.reference import reference_logits, rms_norm, rope_tables, rotate
from tests.lab_engine.tiny_models import random_model, save_checkpoint

SHIPPED = Path(__file__).resolve().parents[2] / "data" / "tiny-coder"
RATIOS = [1, 2, 3, 5, 6, 7, 8]


def config_of(head_dim=128, theta=1e6, positions=32768):
    return ModelConfig(256, 256, 1, 2, 2, head_dim, 300, positions, theta, 1e-6, True)


def transformers_logits(model, ids):
    with torch.inference_mode():
        return model(torch.tensor([ids])).logits[0]


# The oracle has an oracle


@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("head_dim", [64, 128])
def test_logits_equal_transformers(tmp_path, ratio, head_dim):
    """Ratios 1 to 8, tied and untied, both thetas; norms and biases are random, so that none can be forgotten."""
    model = random_model(
        seed=ratio,
        scale=0.1,
        head_dim=head_dim,
        num_attention_heads=2 * ratio,
        num_key_value_heads=2,
        tie_word_embeddings=(ratio + head_dim // 64) % 2 == 0,
        rope_theta=1e4 if ratio in (2, 5, 8) else 1e6,
    )
    ids = torch.randint(0, 433, (45,), generator=torch.Generator().manual_seed(ratio)).tolist()
    expected = transformers_logits(model, ids)
    found = reference_logits(Checkpoint(save_checkpoint(tmp_path / "m", model)), ids)
    assert found.dtype == torch.float32
    assert expected.std() > 0.3
    assert (found - expected).abs().max() <= 1e-4


@pytest.mark.parametrize("change", [{"rms_norm_eps": 0.1}, {"num_hidden_layers": 4}, {"intermediate_size": 1024}])
def test_logits_equal_transformers_for_other_shapes(tmp_path, change):
    model = random_model(seed=9, scale=0.1, **change)
    ids = list(range(100, 120))
    found = reference_logits(Checkpoint(save_checkpoint(tmp_path / "m", model)), ids)
    assert (found - transformers_logits(model, ids)).abs().max() <= 1e-4


@pytest.mark.skipif(not (SHIPPED / "config.json").exists(), reason="data/tiny-coder is not there yet")
def test_logits_of_the_shipped_model_equal_transformers():
    source, tokenizer = open_source(SHIPPED)
    ids = tokenizer.encode("def fibonacci(n):\n    if n < 2:\n        return n\n    return fibonacci(n - 1) + ")
    model = Qwen2ForCausalLM.from_pretrained(SHIPPED, dtype=torch.float32, attn_implementation="eager").eval()
    assert (reference_logits(source, ids) - transformers_logits(model, ids)).abs().max() <= 1e-4


def test_a_position_does_not_depend_on_what_follows(shared_checkpoint):
    source = Checkpoint(shared_checkpoint)
    ids = list(range(10, 40))
    whole = reference_logits(source, ids)
    assert (reference_logits(source, ids[:13]) - whole[:13]).abs().max() <= 1e-5


# RoPE


def test_the_second_frequency_is_the_published_one():
    """1e6^(-2/128) = 0.805842: position 1 turns dim 1 by that angle."""
    cos, sin = rope_tables(config_of(), 2)
    assert math.atan2(sin[1, 1], cos[1, 1]) == pytest.approx(0.805842, abs=1e-6)
    assert math.atan2(sin[1, 0], cos[1, 0]) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("theta", [1e4, 1e6])
def test_tables_stay_exact_at_far_positions(head_dim, theta):
    cos, sin = rope_tables(config_of(head_dim, theta), 32768)
    assert cos.dtype == sin.dtype == torch.float32
    assert cos.shape == sin.shape == (32768, head_dim // 2)
    for position in (0, 257, 2049, 4095, 15962, 32767):
        for i in (0, 1, 5, head_dim // 2 - 1):
            angle = position * theta ** (-2 * i / head_dim)
            assert cos[position, i].item() == pytest.approx(math.cos(angle), abs=1e-6)
            assert sin[position, i].item() == pytest.approx(math.sin(angle), abs=1e-6)


def test_dim_0_is_paired_with_dim_64_not_with_dim_1():
    cos, sin = rope_tables(config_of(), 2)
    one_hot = torch.zeros(1, 1, 128)
    one_hot[0, 0, 0] = 1
    turned = rotate(one_hot, cos[1:], sin[1:])[0, 0]
    assert turned.nonzero().flatten().tolist() == [0, 64]
    assert turned[0].item() == pytest.approx(math.cos(1), abs=1e-6)
    assert turned[64].item() == pytest.approx(math.sin(1), abs=1e-6)


@pytest.mark.parametrize("head_dim", [64, 128])
def test_rotation_equals_transformers(head_dim):
    x = torch.randn(20, 3, head_dim)
    embedding = Qwen2RotaryEmbedding(Qwen2Config(head_dim=head_dim, rope_theta=1e6))
    cos, sin = (table[0][:, None] for table in embedding(x, torch.arange(20)[None]))
    expected = x * cos + rotate_half(x) * sin
    assert (rotate(x, *rope_tables(config_of(head_dim), 20)) - expected).abs().max() < 1e-5


def test_rotation_keeps_lengths_and_depends_on_the_distance_alone():
    q, k = torch.randn(2, 1, 1, 128).expand(2, 50, 1, 128)
    cos, sin = rope_tables(config_of(), 50)
    q, k = rotate(q, cos, sin)[:, 0], rotate(k, cos, sin)[:, 0]
    assert torch.allclose(q.norm(dim=-1), q[0].norm().expand(50), rtol=1e-5)
    products = q @ k.T
    assert torch.allclose(products.diagonal(-7), products[7, 0].expand(43), atol=1e-3)


def test_rms_norm_is_its_formula():
    x, weight = torch.randn(3, 256), torch.rand(256)
    expected = x.double() / (x.double().square().mean(dim=-1, keepdim=True) + 0.1).sqrt() * weight
    assert (rms_norm(x, weight, 0.1) - expected).abs().max() < 1e-6
