"""Weights: a file's matrices without a copy, two layouts as one, and the place where another quantization plugs in."""

import pytest
import torch

from lab_engine.checkpoint import Checkpoint
from lab_engine.convert import convert
from lab_engine.errors import FileFormatError
from lab_engine.int4 import dequantize, pack_words, quantize_rows
from lab_engine.nanoqwen_file import NanoqwenFile
from lab_engine.reference import reference_logits
from lab_engine.weights import FileSource, Int4Matrix, MappedSource, gather_weights
from tests.lab_engine.tiny_models import random_checkpoint

Q = "model.layers.0.self_attn.q_proj.weight"


class Recorder:
    """A loader that keeps what it is given: matrices as lists of parts."""

    def load_matrix(self, parts):
        return parts

    def load_vector(self, vector):
        return vector


def test_an_int4_matrix_knows_its_shape_bytes_and_weights():
    q, scales = quantize_rows(torch.randn(5, 256))
    matrix = Int4Matrix(pack_words(q), scales)
    assert matrix.shape == (5, 256)
    assert matrix.num_bytes == 5 * 256 * 0.515625
    assert torch.equal(matrix.float(), dequantize(q, scales))


def test_the_words_of_a_file_are_its_mapping_not_a_copy(shared_file):
    file = NanoqwenFile(shared_file)
    assert FileSource(file).matrix(Q).words.data_ptr() == file.array(Q).ctypes.data


def test_a_linear_file_gives_the_same_words(shared_checkpoint, shared_file, tmp_path):
    linear = convert(shared_checkpoint, tmp_path / "linear.nanoqwen", layout="linear")
    first, second = (FileSource(NanoqwenFile(path)).matrix(Q) for path in (linear, shared_file))
    assert torch.equal(first.words, second.words)
    assert torch.equal(first.scales, second.scales)


@pytest.mark.parametrize("tied", [True, False])
def test_every_tensor_is_gathered_once_in_its_place(tmp_path, tied):
    source = Checkpoint(random_checkpoint(tmp_path / "m", tie_word_embeddings=tied, num_hidden_layers=3))
    weights = gather_weights(source, Recorder())
    assert len(weights.layers) == 3
    for number, layer in enumerate(weights.layers):
        prefix = f"model.layers.{number}."
        for joined, names in (
            (layer.qkv, ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"]),
            (layer.gate_up, ["mlp.gate_proj", "mlp.up_proj"]),
            (layer.o, ["self_attn.o_proj"]),
            (layer.down, ["mlp.down_proj"]),
        ):
            assert len(joined) == len(names)
            for part, name in zip(joined, names, strict=True):
                assert torch.equal(part, source.tensor(f"{prefix}{name}.weight"))
        biases = [source.tensor(f"{prefix}self_attn.{name}_proj.bias") for name in "qkv"]
        assert torch.equal(layer.qkv_bias, torch.cat(biases))
        assert torch.equal(layer.input_norm, source.tensor(prefix + "input_layernorm.weight"))
        assert torch.equal(layer.post_attention_norm, source.tensor(prefix + "post_attention_layernorm.weight"))
    head = weights.lm_head[0]
    assert torch.equal(head, source.tensor("model.embed_tokens.weight" if tied else "lm_head.weight"))
    assert (weights.lm_head is weights.embed) == tied


def test_a_mapped_source_is_the_place_to_plug_in_a_quantization(shared_checkpoint, shared_file):
    """INT4 plugged into the checkpoint gives the logits of the converted file."""
    seen = []

    def int4(name, weight):
        seen.append(name)
        return dequantize(*quantize_rows(weight))

    source = MappedSource(Checkpoint(shared_checkpoint), int4)
    ids = list(range(20))
    assert torch.equal(reference_logits(source, ids), reference_logits(FileSource(NanoqwenFile(shared_file)), ids))
    assert Q in seen
    assert not any("norm" in name or "bias" in name for name in seen)


@pytest.mark.parametrize("name", ["model.norm.weight", "model.layers.0.self_attn.q_proj.bias"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_vector_that_is_not_finite_is_refused_by_its_name(shared_file, name, value):
    file = NanoqwenFile(shared_file)
    file.array(name)[3] = value  # in the copy-on-write mapping
    with pytest.raises(FileFormatError, match=f"{name}: found NaN or inf"):
        FileSource(file).vector(name)
