"""Tiny random Qwen2 checkpoints for the tests, made with transformers, beside the tokenizer of qwen_like_tokenizer.

transformers starts biases at 0 and norm weights at 1, where a decoder that forgets them passes; here they are random.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import Qwen2Config, Qwen2ForCausalLM

from tests.lab_engine.qwen_like_tokenizer import CONTROL, NUM_TEXT_IDS, write_folder

NUM_KNOWN_IDS = NUM_TEXT_IDS + len(CONTROL)
DEFAULTS = {
    "hidden_size": 256,
    "intermediate_size": 384,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": NUM_KNOWN_IDS + 37,  # an odd number of rows, some of them unknown: Qwen2.5 pads its embedding too
    "max_position_embeddings": 96,
    "rope_theta": 1e6,
    "tie_word_embeddings": True,
}


def tiny_config(**changes) -> Qwen2Config:
    """A Qwen2Config with the defaults above; `head_dim` may be given apart from hidden_size."""
    return Qwen2Config(**{**DEFAULTS, **changes})


def random_model(seed: int = 0, scale: float = 0.05, **changes) -> Qwen2ForCausalLM:
    """A float32 model with eager attention whose every parameter is random; logits have a spread of a few units."""
    config = tiny_config(**changes)
    config._attn_implementation = "eager"
    generator = torch.Generator().manual_seed(seed)
    model = Qwen2ForCausalLM(config).float().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if name.endswith("norm.weight"):
                parameter.copy_(1 + 0.3 * noise)
            else:
                parameter.copy_((0.3 if name.endswith("bias") else scale) * noise)
    return model


def save_checkpoint(
    folder: Path, model: Qwen2ForCausalLM, dtype: torch.dtype = torch.float32, max_shard_size: str = "5GB"
) -> Path:
    """A Hugging Face folder as `save_pretrained` writes it, with the tokenizer beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    write_folder(folder)
    stops = (folder / "generation_config.json").read_text()
    model.to(dtype).save_pretrained(folder, max_shard_size=max_shard_size)
    model.float()
    (folder / "generation_config.json").write_text(stops)
    return folder


def random_checkpoint(folder: Path, seed: int = 0, dtype: torch.dtype = torch.float32, **changes) -> Path:
    """`save_checkpoint` of a `random_model`."""
    return save_checkpoint(folder, random_model(seed, **changes), dtype)


def edit_json(path: Path, **changes) -> None:
    """Change keys of a JSON object on disk; a value of None removes the key."""
    data = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({key: value for key, value in data.items() if value is not None}))


def edit_tensors(folder: Path, **changes: torch.Tensor | None) -> None:
    """Change tensors of model.safetensors; None removes one. `__` in a name stands for a dot."""
    path = folder / "model.safetensors"
    tensors = {**load_file(path), **{name.replace("__", "."): value for name, value in changes.items()}}
    kept = {name: value.contiguous() for name, value in tensors.items() if value is not None}
    save_file(kept, path, metadata={"format": "pt"})
