"""The shape of a Qwen2 decoder, read from a Hugging Face config.json or from a .nanoqwen header.

Two spellings exist for two fields: published Qwen2.5 configs say `rope_theta` and `torch_dtype`,
newer transformers write `rope_parameters` and `dtype`. Both are read; what would change the numbers
(YaRN scaling, an active sliding window, another activation) is refused by name.
"""

from __future__ import annotations

import json
import reprlib
import sys
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from lab_engine.errors import ConfigError

GROUP = 128
"""Weights of a row that share one scale; every reduction dimension must be a multiple of it."""

_LARGEST = 1 << 24  # no dimension of a real model comes near; a damaged one must not make us allocate

_HF_INTEGERS = {
    "hidden_size": "hidden_size",
    "intermediate_size": "intermediate_size",
    "num_layers": "num_hidden_layers",
    "num_q_heads": "num_attention_heads",
    "num_kv_heads": "num_key_value_heads",
    "vocab_size": "vocab_size",
    "max_positions": "max_position_embeddings",
}


@dataclass(frozen=True)
class ModelConfig:
    """Dimensions of a Qwen2 decoder; all counts are of elements.

    Source: Qwen2.5-Coder config.json and transformers `models/qwen2/configuration_qwen2.py`.
    Raises ConfigError for dimensions that no kernel of this engine takes.
    """

    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_q_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_positions: int
    rope_theta: float
    rms_norm_eps: float
    tie_embeddings: bool

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            found = f"config {field.name}: found {reprlib.repr(value)}"
            if field.type == "int" and not (type(value) is int and 0 < value <= _LARGEST):
                raise ConfigError(f"{found}, expected a whole number from 1 to {_LARGEST}")
            if field.type == "float" and not (_is_number(value) and 0 < value < sys.float_info.max):
                raise ConfigError(f"{found}, expected a number above 0")
            if field.type == "bool" and not isinstance(value, bool):
                raise ConfigError(f"{found}, expected true or false")
        if self.num_q_heads % self.num_kv_heads:
            raise ConfigError(
                f"config num_q_heads: found {self.num_q_heads}, expected a multiple of the "
                f"{self.num_kv_heads} KV heads (grouped-query attention)"
            )
        if self.head_dim not in (64, 128):
            raise ConfigError(f"config head_dim: found {self.head_dim}, expected 64 or 128")
        for name in ("hidden_size", "intermediate_size"):
            if getattr(self, name) % GROUP:
                raise ConfigError(
                    f"config {name}: found {getattr(self, name)}, expected a multiple of the group {GROUP}"
                )
        if self.q_size % GROUP:
            raise ConfigError(
                f"config num_q_heads * head_dim: found {self.q_size}, expected a multiple of the group {GROUP}"
            )

    @property
    def q_heads_per_kv_head(self) -> int:
        """Query heads that read one KV head (the ratio of grouped-query attention)."""
        return self.num_q_heads // self.num_kv_heads

    @property
    def q_size(self) -> int:
        """Rows of q_proj: num_q_heads * head_dim."""
        return self.num_q_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        """Rows of k_proj and of v_proj: num_kv_heads * head_dim."""
        return self.num_kv_heads * self.head_dim

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain JSON values; `from_dict` reads them back."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> ModelConfig:
        """Read the fields that `to_dict` wrote; ConfigError names a missing or unknown one."""
        names = {field.name for field in fields(cls)}
        if not isinstance(data, dict) or set(data) != names:
            found = reprlib.repr(sorted(data)) if isinstance(data, dict) else type(data).__name__
            raise ConfigError(f"config: found the fields {found}, expected {sorted(names)}")
        return cls(**data)

    @classmethod
    def from_hf(cls, data: dict[str, Any]) -> ModelConfig:
        """Read a Hugging Face Qwen2 config; ConfigError names the field that is not supported."""
        _refuse_unsupported(data)
        values: dict[str, Any] = {ours: _field(data, theirs) for ours, theirs in _HF_INTEGERS.items()}
        values["head_dim"] = data.get("head_dim") or _divide(
            values["hidden_size"], values["num_q_heads"], "hidden_size / num_attention_heads"
        )
        ropes = [*_rope_settings(data), data]
        values["rope_theta"] = next((r["rope_theta"] for r in ropes if "rope_theta" in r), 10000.0)
        values["rms_norm_eps"] = _field(data, "rms_norm_eps")
        values["tie_embeddings"] = data.get("tie_word_embeddings", False)
        return cls(**values)

    @classmethod
    def from_hf_file(cls, path: Path) -> ModelConfig:
        """Read a config.json; ConfigError names the file where it is missing or not JSON."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read ({error.strerror}); is this a Hugging Face folder?") from None
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{path}: not a JSON file ({error})") from None
        if not isinstance(data, dict):
            raise ConfigError(f"{path}: found a JSON {type(data).__name__}, expected an object")
        return cls.from_hf(data)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _field(data: dict[str, Any], name: str) -> Any:
    if name not in data:
        raise ConfigError(f"config.json {name}: missing, expected a number")
    return data[name]


def _divide(total: Any, parts: Any, name: str) -> int:
    if not (_is_number(total) and _is_number(parts)) or parts < 1 or total % parts:
        raise ConfigError(f"config.json {name}: found {total!r} / {parts!r}, expected a whole number")
    return int(total // parts)


def _rope_settings(data: dict[str, Any]) -> list[dict[str, Any]]:
    """Every object that may say something about RoPE, the newest spelling first."""
    settings = []
    for name in ("rope_parameters", "rope_scaling"):
        value = data.get(name) or {}
        if not isinstance(value, dict):
            raise ConfigError(f"config.json {name}: found {value!r}, expected an object or null")
        settings.append(value)
    return settings


def _refuse_unsupported(data: dict[str, Any]) -> None:
    """Raise ConfigError for anything that would need other mathematics than ours."""
    if data.get("model_type") != "qwen2":
        raise ConfigError(f"config.json model_type: found {data.get('model_type')!r}, expected 'qwen2'")
    for settings in _rope_settings(data):
        rope_type = settings.get("rope_type", settings.get("type", "default"))
        if rope_type != "default":
            raise ConfigError(
                f"config.json rope type: found {rope_type!r}, expected 'default' (scaled positions are not supported)"
            )
    layer_types = data.get("layer_types") or []
    if not isinstance(layer_types, list) or any(kind != "full_attention" for kind in layer_types):
        raise ConfigError(f"config.json layer_types: found {layer_types!r}, expected only 'full_attention'")
    if data.get("use_sliding_window", False):
        raise ConfigError("config.json use_sliding_window: found true, expected false (not supported)")
    activation = data.get("hidden_act", "silu")
    if activation != "silu":
        raise ConfigError(f"config.json hidden_act: found {activation!r}, expected 'silu'")


QWEN2_5_CODER = {
    "0.5B": ModelConfig(896, 4864, 24, 14, 2, 64, 151936, 32768, 1e6, 1e-6, tie_embeddings=True),
    "1.5B": ModelConfig(1536, 8960, 28, 12, 2, 128, 151936, 32768, 1e6, 1e-6, tie_embeddings=True),
    "3B": ModelConfig(2048, 11008, 36, 16, 2, 128, 151936, 32768, 1e6, 1e-6, tie_embeddings=True),
    "7B": ModelConfig(3584, 18944, 28, 28, 4, 128, 152064, 32768, 1e6, 1e-6, tie_embeddings=False),
    "14B": ModelConfig(5120, 13824, 48, 40, 8, 128, 152064, 32768, 1e6, 1e-6, tie_embeddings=False),
    "32B": ModelConfig(5120, 27648, 64, 40, 8, 128, 152064, 32768, 1e6, 1e-6, tie_embeddings=False),
}
"""Every Qwen2.5-Coder by its size; source: config.json of Qwen/Qwen2.5-Coder-…-Instruct on the hub."""
