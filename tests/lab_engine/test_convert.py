"""Conversion: every kind of checkpoint gives the same model, and every kind of bad one a single line."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from lab_engine.convert import convert, find_folder
from lab_engine.errors import CheckpointError, FileFormatError, NanoqwenError
from lab_engine.int4 import dequantize, quantize_rows
from lab_engine.loading import load_decoder, open_source
from lab_engine.nanoqwen_file import NanoqwenFile
from lab_engine.reference import reference_logits
from lab_engine.weights import FileSource
from tests.lab_engine.tiny_models import edit_json, edit_tensors, random_checkpoint, random_model, save_checkpoint

IDS = list(range(7, 30))
Q = "model.layers.1.self_attn.q_proj.weight"


def refusal(folder, tmp_path, **keywords):
    """The message of a refused conversion, which leaves nothing behind."""
    out = tmp_path / "out"
    out.mkdir(exist_ok=True)
    with pytest.raises(NanoqwenError) as error:
        convert(folder, out / "m.nanoqwen", **keywords)
    assert list(out.iterdir()) == []
    assert "\n" not in str(error.value)
    return str(error.value)


def logits_of(path):
    return reference_logits(open_source(path)[0], IDS)


# The same model, however it is stored


def test_shards_and_a_single_file_give_the_same_bytes(shared_file, tmp_path):
    sharded = save_checkpoint(tmp_path / "sharded", random_model(), max_shard_size="500KB")
    assert convert(sharded, tmp_path / "m.nanoqwen").read_bytes() == shared_file.read_bytes()


def test_both_spellings_of_the_config_give_the_same_bytes(checkpoint, shared_file, tmp_path):
    edit_json(checkpoint / "config.json", rope_parameters=None, dtype=None, rope_theta=1e6, torch_dtype="float32")
    assert convert(checkpoint, tmp_path / "m.nanoqwen").read_bytes() == shared_file.read_bytes()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_16_bit_checkpoint_gives_what_its_own_float32_values_give(tmp_path, dtype):
    narrow = random_checkpoint(tmp_path / "narrow", dtype=dtype)
    wide = shutil.copytree(narrow, tmp_path / "wide")
    edit_tensors(wide, **{name: value.float() for name, value in load_file(narrow / "model.safetensors").items()})
    first, second = (convert(folder, tmp_path / f"{folder.name}.nanoqwen") for folder in (narrow, wide))
    assert first.read_bytes() == second.read_bytes()


def test_a_stray_lm_head_of_a_tied_model_changes_no_byte(checkpoint, shared_file, tmp_path):
    edit_tensors(checkpoint, lm_head__weight=torch.randn(433, 256), **{"rotary.inv_freq": torch.zeros(3)})
    assert convert(checkpoint, tmp_path / "m.nanoqwen").read_bytes() == shared_file.read_bytes()


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("head_dim", [64, 128])
def test_the_file_holds_the_quantized_checkpoint_and_nothing_else(tmp_path, tied, head_dim):
    folder = random_checkpoint(tmp_path / "m", tie_word_embeddings=tied, head_dim=head_dim)
    file = NanoqwenFile(convert(folder, tmp_path / "m.nanoqwen"))
    source, tensors = FileSource(file), load_file(folder / "model.safetensors")
    assert {name for name in file.sections if not name.endswith(".scales")} == {*tensors, "tokenizer"}
    for name, value in tensors.items():
        if value.ndim == 1:
            assert torch.equal(source.vector(name), value)
        else:
            assert torch.equal(source.matrix(name).float(), dequantize(*quantize_rows(value)))


def test_both_nibble_layouts_decode_to_the_same_logits(shared_checkpoint, shared_file, tmp_path):
    linear = convert(shared_checkpoint, tmp_path / "linear.nanoqwen", layout="linear")
    assert NanoqwenFile(linear).sections[Q].layout == "linear"
    assert NanoqwenFile(shared_file).sections[Q].layout == "value_shuffle"
    assert linear.read_bytes() != shared_file.read_bytes()
    assert torch.equal(logits_of(linear), logits_of(shared_file))
    decoders = [load_decoder(path, "torch") for path in (linear, shared_file)]
    assert torch.equal(*(decoder.prefill(IDS) for decoder in decoders))


def test_weights_that_int4_holds_exactly_decode_as_the_checkpoint_itself(tmp_path):
    folder = random_checkpoint(tmp_path / "m")
    tensors = load_file(folder / "model.safetensors")
    exact = {name: dequantize(*quantize_rows(value)) for name, value in tensors.items() if value.ndim == 2}
    edit_tensors(folder, **exact)
    assert torch.equal(logits_of(convert(folder, tmp_path / "m.nanoqwen")), logits_of(folder))


def test_a_copied_file_works_alone(shared_checkpoint, tmp_path):
    folder = shutil.copytree(shared_checkpoint, tmp_path / "hf")
    made = convert(folder, tmp_path / "made.nanoqwen")
    expected = load_decoder(made, "torch").prefill(IDS)
    (tmp_path / "elsewhere").mkdir()
    moved = shutil.copy(made, tmp_path / "elsewhere" / "other name.nanoqwen")
    shutil.rmtree(folder)
    made.unlink()
    decoder = load_decoder(Path(moved), "torch")
    assert torch.equal(decoder.prefill(IDS), expected)
    assert decoder.tokenizer.decode(decoder.tokenizer.encode("def f():")) == "def f():"


# Refusals


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", [Q, "model.norm.weight", "model.layers.0.self_attn.k_proj.bias"])
def test_a_tensor_that_is_not_finite_is_named(checkpoint, tmp_path, name, value):
    tensor = load_file(checkpoint / "model.safetensors")[name]
    tensor.view(-1)[-1] = value
    edit_tensors(checkpoint, **{name: tensor})
    message = refusal(checkpoint, tmp_path)
    assert name in message
    assert "NaN or inf" in message


def test_a_tensor_whose_scales_overflow_fp16_is_named(checkpoint, tmp_path):
    edit_tensors(checkpoint, **{Q: torch.full((256, 256), 4.6e5, dtype=torch.float32)})
    message = refusal(checkpoint, tmp_path)
    assert Q in message
    assert "65504" in message


def test_a_missing_bias_is_refused(checkpoint, tmp_path):
    edit_tensors(checkpoint, **{"model.layers.1.self_attn.v_proj.bias": None})
    assert "model.layers.1.self_attn.v_proj.bias" in refusal(checkpoint, tmp_path)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"model_type": "llama", "architectures": ["LlamaForCausalLM"]}, "llama"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e6}}, "yarn"),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, "yarn"),
        ({"use_sliding_window": True, "sliding_window": 4096}, "sliding_window"),
        ({"intermediate_size": 400}, "intermediate_size"),
    ],
)
def test_another_model_than_ours_is_refused_by_name(checkpoint, tmp_path, change, named):
    edit_json(checkpoint / "config.json", **change)
    assert named in refusal(checkpoint, tmp_path)


def test_a_width_that_is_no_multiple_of_the_group_is_refused_with_the_number(tmp_path):
    folder = random_checkpoint(tmp_path / "m", hidden_size=192, head_dim=64)
    message = refusal(folder, tmp_path)
    assert "192" in message
    assert "128" in message


def test_a_missing_or_broken_tokenizer_is_named(checkpoint, tmp_path):
    (checkpoint / "tokenizer.json").write_text("{}")
    assert "tokenizer" in refusal(checkpoint, tmp_path)
    (checkpoint / "tokenizer.json").unlink()
    assert "tokenizer.json" in refusal(checkpoint, tmp_path)


@pytest.mark.parametrize("options", [{"layout": "tiled"}, {"method": "absmax9"}])
def test_an_unknown_option_is_refused(shared_checkpoint, tmp_path, options):
    assert next(iter(options.values())) in refusal(shared_checkpoint, tmp_path, **options)


@pytest.mark.parametrize("source", ["./missing", "/missing/folder", "missing", "a/b/c", "~/missing"])
def test_a_source_that_is_neither_a_folder_nor_a_hub_id_is_refused(source):
    with pytest.raises(CheckpointError, match=r"missing|a/b/c"):
        find_folder(source)


def test_a_file_as_source_is_refused(shared_file, tmp_path):
    assert "is a file" in refusal(shared_file, tmp_path)


def test_a_place_that_takes_no_file_is_refused_before_the_work(shared_checkpoint, tmp_path):
    for out in (tmp_path / "missing" / "m.nanoqwen", tmp_path):
        with pytest.raises(FileFormatError, match=r"written|folder"):
            convert(shared_checkpoint, out)


# Progress


def test_progress_is_told_after_each_piece_and_ends_with_all_weights(shared_checkpoint, tmp_path):
    told = []
    convert(shared_checkpoint, tmp_path / "m.nanoqwen", progress=lambda *weights: told.append(weights))
    done, total = zip(*told, strict=True)
    weights = sum(tensor.numel() for tensor in load_file(shared_checkpoint / "model.safetensors").values())
    assert set(total) == {weights}
    assert sorted(set(done)) == list(done)
    assert done[0] > 0
    assert done[-1] == weights
