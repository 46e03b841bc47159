"""The products of a token in float64, and the random weights that they are tested with, on the CPU."""

import math

import pytest
import torch

from lab_engine.config import QWEN2_5_CODER, ModelConfig
from lab_engine.gemv import gemv_shapes
from lab_engine.gemv_peer import nibble_pairs
from lab_engine.gemv_token import (
    Reference,
    choice_error,
    product,
    random_hidden,
    random_matrix,
    random_weights,
    relative_error,
)
from lab_engine.int4 import pack_words, unpack_words

SMALL = ModelConfig(256, 384, 3, 4, 2, 64, 512, 1024, 1e6, 1e-6, tie_embeddings=True)


def dense(parts):
    return torch.cat([part.float() for part in parts]).double()


def test_the_chain_is_the_formula_of_a_qwen2_layer_without_attention():
    """Written out once more, with dense matrices and plain arithmetic."""
    weights = random_weights(SMALL, 3, "cpu")
    h = random_hidden(SMALL, "cpu")
    hidden, logits = Reference(weights).token(h)

    def normed(x, weight):
        return x / (x.square().mean() + 1e-6).sqrt() * weight.double()

    h = h.double()
    for layer in weights.layers:
        qkv = dense(layer.qkv) @ normed(h, layer.input_norm) + layer.qkv_bias.double()
        h = h + dense(layer.o) @ qkv[:256]
        gate, up = (dense(layer.gate_up) @ normed(h, layer.post_attention_norm)).view(2, 384)
        h = h + dense(layer.down) @ (gate / (1 + (-gate).exp()) * up)
    assert relative_error(hidden, h) < 1e-12
    assert relative_error(logits, dense(weights.lm_head) @ normed(h, weights.norm)) < 1e-12


def test_matrices_have_the_shapes_of_the_stages():
    weights = random_weights(SMALL, 1, "cpu")
    for stage, shape in gemv_shapes(SMALL).items():
        parts = weights.lm_head if stage == "lm_head" else getattr(weights.layers[0], stage)
        assert (sum(part.shape[0] for part in parts), parts[0].shape[1]) == shape


def test_random_codes_are_zero_on_average_and_scales_differ():
    matrix = random_matrix(64, 1024, torch.Generator().manual_seed(3))
    codes = unpack_words(matrix.words)
    counts = torch.bincount(codes.flatten().long() + 8, minlength=16) / codes.numel()
    assert counts[0] == 0
    assert torch.allclose(counts[[*range(1, 8), *range(9, 16)]], torch.tensor(1 / 16), atol=0.01)
    assert counts[8] == pytest.approx(1 / 8, abs=0.01)
    assert len(matrix.scales.unique()) > 100


def test_a_product_keeps_the_size_of_its_input():
    """So that activations stay in range through 64 layers."""
    matrix = random_matrix(2048, 2048, torch.Generator().manual_seed(5))
    x = random_hidden(QWEN2_5_CODER["3B"], "cpu")
    assert product([matrix], x).std() == pytest.approx(float(x.std()), rel=0.1)


def test_a_product_in_pieces_is_the_product_of_the_whole(monkeypatch):
    matrices = [random_matrix(n, 256, torch.Generator().manual_seed(n)) for n in (5, 1, 12)]
    x = random_hidden(SMALL, "cpu")
    whole = dense(matrices) @ x.double()
    monkeypatch.setattr("lab_engine.gemv_token._ROWS", 4)
    assert relative_error(product(matrices, x), whole) < 1e-14


def test_an_error_is_relative_and_nan_stays_nan():
    expected = torch.tensor([3.0, 4.0], dtype=torch.float64)
    assert relative_error(torch.tensor([3.0, 4.5]), expected) == pytest.approx(0.1)
    assert not relative_error(torch.tensor([float("nan"), 4.0]), expected) <= 1e9


def test_the_right_choice_is_the_lowest_id_of_the_largest_logit():
    logits = torch.tensor([2.0, 10.0, 9.0, 10.0])
    assert choice_error(0, logits * math.nan) == math.inf
    assert [choice_error(token_id, logits) for token_id in (-1, 0, 1, 2, 3)] == [
        math.inf,
        math.inf,
        0.0,
        math.inf,
        math.inf,
    ]


def test_pytorchs_bytes_hold_the_even_weight_in_the_high_half():
    """Written by hand: codes -8 … 7 are nibbles 0 … 15."""
    words = pack_words(torch.arange(-8, 8, dtype=torch.int8).view(1, 16))
    assert nibble_pairs(words).tolist() == [[0x01, 0x23, 0x45, 0x67, 0x89, 0xAB, 0xCD, 0xEF]]
