"""Checkpoints: only what config and index name is opened, and everything is checked before the first byte is used."""

import json
import os
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from lab_engine.checkpoint import INDEX, SINGLE, Checkpoint
from lab_engine.errors import CheckpointError, ConfigError
from lab_engine.reference import reference_logits
from tests.lab_engine.tiny_models import edit_json, edit_tensors, random_checkpoint, random_model, save_checkpoint

IDS = list(range(7, 30))
K_BIAS = "model.layers.0.self_attn.k_proj.bias"


@pytest.fixture
def sharded(tmp_path):
    """The model of `checkpoint` in several shards with an index."""
    folder = save_checkpoint(tmp_path / "sharded", random_model(), max_shard_size="500KB")
    assert len(list(folder.glob("*.safetensors"))) > 2
    return folder


def edit_index(folder, **changes):
    """Point tensors at other files (`__` in a name stands for a dot)."""
    weight_map = json.loads((folder / INDEX).read_text())["weight_map"]
    weight_map.update({name.replace("__", "."): file for name, file in changes.items()})
    (folder / INDEX).write_text(json.dumps({"weight_map": weight_map}))


def refusal(folder):
    with pytest.raises((CheckpointError, ConfigError)) as error:
        Checkpoint(folder)
    assert "\n" not in str(error.value)
    return str(error.value)


# Shards


def test_shards_and_a_single_file_are_the_same_model(sharded, shared_checkpoint):
    one, many = Checkpoint(shared_checkpoint), Checkpoint(sharded)
    assert one.shapes == many.shapes
    for name in one.shapes:
        assert torch.equal(one.tensor(name), many.tensor(name))


@pytest.mark.parametrize("entry", ["../other/model.safetensors", "sub/model.safetensors", "..", "", ".", "a/../b"])
def test_a_shard_index_that_points_elsewhere_is_refused_before_anything_is_opened(sharded, entry):
    edit_index(sharded, model__norm__weight=entry)
    other = sharded.parent / "other"
    other.mkdir()
    shutil.copy(next(sharded.glob("*.safetensors")), other / "model.safetensors")
    assert repr(entry) in refusal(sharded) or "points outside" in refusal(sharded)


def test_an_absolute_path_in_the_index_is_refused_though_it_names_a_good_file(sharded):
    good = sharded / json.loads((sharded / INDEX).read_text())["weight_map"]["model.norm.weight"]
    edit_index(sharded, model__norm__weight=str(good))
    assert str(good) in refusal(sharded)


def test_a_shard_that_is_a_link_out_of_the_folder_is_refused(sharded):
    name = json.loads((sharded / INDEX).read_text())["weight_map"]["model.norm.weight"]
    (sharded / name).rename(sharded.parent / "elsewhere.safetensors")
    (sharded / name).symlink_to(sharded.parent / "elsewhere.safetensors")
    assert name in refusal(sharded)


def test_a_single_file_that_is_a_link_out_of_the_folder_is_refused(checkpoint):
    (checkpoint / SINGLE).rename(checkpoint.parent / "elsewhere.safetensors")
    (checkpoint / SINGLE).symlink_to(checkpoint.parent / "elsewhere.safetensors")
    assert SINGLE in refusal(checkpoint)


def test_a_config_that_is_a_link_out_of_the_folder_is_refused(checkpoint):
    (checkpoint / "config.json").rename(checkpoint.parent / "elsewhere.json")
    (checkpoint / "config.json").symlink_to(checkpoint.parent / "elsewhere.json")
    assert "config.json is a link that leads out of the folder" in refusal(checkpoint)


def test_the_hubs_own_cache_layout_is_read_and_another_models_blobs_are_not(shared_checkpoint, tmp_path):
    """models--a--b/snapshots/<commit>/file -> ../../blobs/<hash>: links that stay within the model."""
    model = tmp_path / "models--a--b"
    snapshot, blobs = model / "snapshots" / "0123", model / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for number, file in enumerate(sorted(shared_checkpoint.iterdir())):
        shutil.copy(file, blobs / f"{number:040}")
        (snapshot / file.name).symlink_to(f"../../blobs/{number:040}")
    assert Checkpoint(snapshot).config == Checkpoint(shared_checkpoint).config
    elsewhere = tmp_path / "models--c--d" / "blobs"
    elsewhere.mkdir(parents=True)
    shutil.copy(shared_checkpoint / SINGLE, elsewhere / "f")
    (snapshot / SINGLE).unlink()
    (snapshot / SINGLE).symlink_to(elsewhere / "f")
    assert SINGLE in refusal(snapshot)


def test_a_decoy_beside_the_shards_is_never_opened(sharded):
    decoy = {"model.norm.weight": torch.full((256,), 9.0), "extra": torch.zeros(3)}
    save_file(decoy, sharded / SINGLE)
    (sharded / "model-00009-of-00009.safetensors").write_bytes(b"not a safetensors file")
    assert not torch.equal(Checkpoint(sharded).tensor("model.norm.weight"), decoy["model.norm.weight"])


def test_a_missing_shard_is_named(sharded):
    name = sorted(sharded.glob("*.safetensors"))[1].name
    (sharded / name).unlink()
    assert f"shard {name} is missing" in refusal(sharded)


def test_a_tensor_that_is_not_in_its_shard_is_named(sharded):
    other = json.loads((sharded / INDEX).read_text())["weight_map"]["model.embed_tokens.weight"]
    edit_index(sharded, model__norm__weight=other)
    assert "model.norm.weight" in refusal(sharded)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"weight_map": 3}', '{"weight_map": ["a"]}', "\xff", "[" * 9999]
)
def test_an_index_that_is_none_is_named(sharded, text):
    (sharded / INDEX).write_bytes(text.encode("latin-1"))
    assert INDEX in refusal(sharded)


# Damaged or foreign files


@pytest.mark.parametrize("size", [0, 4, 100, 5000, -1])
def test_a_cut_safetensors_file_is_named(checkpoint, size):
    path = checkpoint / SINGLE
    path.write_bytes(path.read_bytes()[:size])
    assert SINGLE in refusal(checkpoint)


def test_a_folder_without_weights_or_config_says_what_is_expected(checkpoint):
    (checkpoint / SINGLE).rename(checkpoint / "pytorch_model.bin")
    assert "safetensors" in refusal(checkpoint)
    (checkpoint / "config.json").unlink()
    assert "Hugging Face folder" in refusal(checkpoint)


def test_a_folder_in_place_of_the_weights_is_named(checkpoint):
    (checkpoint / SINGLE).unlink()
    (checkpoint / SINGLE).mkdir()
    assert SINGLE in refusal(checkpoint)


@pytest.mark.parametrize(
    "name", [K_BIAS, "model.norm.weight", "model.layers.1.mlp.up_proj.weight", "model.embed_tokens.weight"]
)
def test_a_missing_tensor_is_named(checkpoint, name):
    edit_tensors(checkpoint, **{name: None})
    assert f"tensor {name} is missing" in refusal(checkpoint)


@pytest.mark.parametrize(
    "value", [torch.zeros(64), torch.zeros(1, 128), torch.zeros(()), torch.zeros(128, dtype=torch.int32)]
)
def test_a_tensor_of_another_shape_or_dtype_is_named(checkpoint, value):
    edit_tensors(checkpoint, **{K_BIAS: value})
    assert K_BIAS in refusal(checkpoint)


def test_more_layers_than_tensors_are_refused_at_once(checkpoint):
    edit_json(checkpoint / "config.json", num_hidden_layers=2**24, layer_types=None)
    assert "num_hidden_layers" in refusal(checkpoint)


def test_an_unsupported_model_is_refused_by_name(checkpoint):
    for change, named in (({"rope_parameters": {"rope_type": "yarn"}}, "yarn"), ({"model_type": "llama"}, "llama")):
        edit_json(checkpoint / "config.json", **change)
        assert named in refusal(checkpoint)


# Tied and untied


def test_a_tied_model_uses_its_embedding_whatever_lm_head_says(checkpoint):
    expected = reference_logits(Checkpoint(checkpoint), IDS)
    edit_tensors(checkpoint, lm_head__weight=torch.randn(433, 256))
    assert torch.equal(reference_logits(Checkpoint(checkpoint), IDS), expected)


def test_an_untied_model_without_lm_head_is_refused(checkpoint):
    edit_json(checkpoint / "config.json", tie_word_embeddings=False)
    assert "lm_head.weight is missing" in refusal(checkpoint)


def test_an_untied_model_uses_its_lm_head(tmp_path):
    folder = random_checkpoint(tmp_path / "untied", tie_word_embeddings=False)
    expected = reference_logits(Checkpoint(folder), IDS)
    head = load_file(folder / SINGLE)["lm_head.weight"]
    edit_tensors(folder, lm_head__weight=head.flip(0))
    assert torch.equal(reference_logits(Checkpoint(folder), IDS), expected.flip(-1))


def test_a_bias_changes_the_logits(checkpoint):
    expected = reference_logits(Checkpoint(checkpoint), IDS)
    edit_tensors(checkpoint, **{K_BIAS: torch.zeros(128)})
    assert (reference_logits(Checkpoint(checkpoint), IDS) - expected).abs().max() > 1e-2


# Reading


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_every_floating_dtype_is_read(tmp_path, dtype):
    model = random_model()
    folder = save_checkpoint(tmp_path / "model", model, dtype)
    for name, value in model.state_dict().items():
        if name != "lm_head.weight":
            assert torch.equal(Checkpoint(folder).tensor(name), value.to(dtype).float())


@pytest.mark.parametrize("rows_at_once", [1, 100, 433, 5000])
def test_rows_come_in_order_whatever_the_piece(shared_checkpoint, rows_at_once):
    checkpoint, name = Checkpoint(shared_checkpoint), "model.embed_tokens.weight"
    pieces = list(checkpoint.rows(name, rows_at_once))
    assert torch.equal(torch.cat(pieces), checkpoint.tensor(name))
    assert {len(piece) for piece in pieces[:-1]} <= {rows_at_once}


# Tensors that the config has no place for


def test_more_layers_than_the_config_says_are_refused(checkpoint):
    edit_json(checkpoint / "config.json", num_hidden_layers=1, layer_types=None)
    assert "model.layers.1." in refusal(checkpoint)


@pytest.mark.parametrize("name", ["self_attn.o_proj.bias", "self_attn.q_norm.weight"])
def test_a_weight_of_another_architecture_in_a_layer_is_refused_by_name(checkpoint, name):
    edit_tensors(checkpoint, **{f"model.layers.0.{name}": torch.zeros(256)})
    assert f"model.layers.0.{name}" in refusal(checkpoint)


def test_a_buffer_that_old_checkpoints_carry_is_ignored(checkpoint):
    edit_tensors(checkpoint, **{"model.layers.0.self_attn.rotary_emb.inv_freq": torch.zeros(32)})
    Checkpoint(checkpoint)


def test_a_shard_that_is_no_regular_file_is_refused_without_waiting(sharded):
    shard = min(sharded.glob("*.safetensors"))
    shard.unlink()
    os.mkfifo(shard)
    assert shard.name in refusal(sharded)


def test_a_folder_in_the_place_of_the_weights_is_refused(checkpoint):
    (checkpoint / SINGLE).unlink()
    (checkpoint / SINGLE).mkdir()
    assert SINGLE in refusal(checkpoint)
