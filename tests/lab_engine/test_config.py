"""ModelConfig: both spellings of a Hugging Face config, and refusal by name of what would need other mathematics."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab_engine.config import QWEN2_5_CODER, ModelConfig
from lab_engine.errors import ConfigError
from tests.lab_engine.tiny_models import tiny_config

PUBLISHED_05B = {
    "architectures": ["Qwen2ForCausalLM"],
    "hidden_act": "silu",
    "hidden_size": 896,
    "intermediate_size": 4864,
    "max_position_embeddings": 32768,
    "max_window_layers": 24,
    "model_type": "qwen2",
    "num_attention_heads": 14,
    "num_hidden_layers": 24,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0,
    "sliding_window": 32768,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "use_sliding_window": False,
    "vocab_size": 151936,
}
"""config.json of Qwen2.5-Coder-0.5B, as it is published."""


def test_the_published_spelling_is_read():
    config = ModelConfig.from_hf(PUBLISHED_05B)
    assert config == ModelConfig(896, 4864, 24, 14, 2, 64, 151936, 32768, 1e6, 1e-6, True)
    assert (config.q_heads_per_kv_head, config.q_size, config.kv_size) == (7, 896, 128)


def test_the_spelling_of_newer_transformers_gives_the_same_config():
    newer = {key: value for key, value in PUBLISHED_05B.items() if key != "rope_theta"}
    newer["rope_parameters"] = {"rope_theta": 1000000.0, "rope_type": "default"}
    assert ModelConfig.from_hf(newer) == ModelConfig.from_hf(PUBLISHED_05B)


def test_what_transformers_itself_saves_is_read():
    saved = json.loads(tiny_config(rope_theta=12345.0, head_dim=128).to_json_string())
    config = ModelConfig.from_hf(saved)
    assert (config.rope_theta, config.head_dim, config.num_q_heads) == (12345.0, 128, 4)


def test_head_dim_is_taken_from_the_config_where_it_is_given():
    assert ModelConfig.from_hf({**PUBLISHED_05B, "head_dim": 128}).head_dim == 128


def test_an_absent_tie_means_untied_and_an_absent_theta_means_10000():
    absent = {k: v for k, v in PUBLISHED_05B.items() if k not in ("tie_word_embeddings", "rope_theta")}
    config = ModelConfig.from_hf(absent)
    assert (config.tie_embeddings, config.rope_theta) == (False, 10000.0)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"model_type": "llama"}, "llama"),
        ({"model_type": None}, "model_type"),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, "yarn"),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}}, "dynamic"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0}}, "yarn"),
        ({"use_sliding_window": True}, "use_sliding_window"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "sliding_attention"),
        ({"hidden_act": "gelu"}, "gelu"),
        ({"hidden_size": 192}, "hidden_size"),
        ({"intermediate_size": 4800}, "intermediate_size"),
        ({"num_attention_heads": 10, "num_key_value_heads": 4, "head_dim": 128}, "num_q_heads"),
        ({"num_attention_heads": 13}, "hidden_size / num_attention_heads"),
        ({"num_attention_heads": 0}, "num_attention_heads"),
        ({"num_attention_heads": "14"}, "num_attention_heads"),
        ({"num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 64}, "head_dim"),
        ({"head_dim": 96}, "head_dim"),
        ({"num_hidden_layers": 0}, "num_layers"),
        ({"num_hidden_layers": 2.0}, "num_layers"),
        ({"num_hidden_layers": True}, "num_layers"),
        ({"vocab_size": -1}, "vocab_size"),
        ({"max_position_embeddings": None}, "max_positions"),
        ({"rms_norm_eps": "small"}, "rms_norm_eps"),
        ({"rms_norm_eps": 0}, "rms_norm_eps"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps"),
        ({"rope_theta": [1e6]}, "rope_theta"),
        ({"rope_theta": float("inf")}, "rope_theta"),
        ({"rope_parameters": "default"}, "rope"),
        ({"rope_scaling": ["yarn"]}, "rope_scaling"),
        ({"rope_scaling": {"type": "yarn"}, "rope_parameters": {"rope_type": "default"}}, "yarn"),
        ({"rope_theta": 10**400}, "rope_theta"),
        ({"layer_types": 7}, "layer_types"),
        ({"tie_word_embeddings": "yes"}, "tie"),
    ],
)
def test_an_unsupported_or_broken_field_is_refused_by_name(change, named):
    with pytest.raises(ConfigError, match=named) as refusal:
        ModelConfig.from_hf({**PUBLISHED_05B, **change})
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("field", ["hidden_size", "num_key_value_heads", "rms_norm_eps", "max_position_embeddings"])
def test_a_missing_field_is_named(field):
    rest = {key: value for key, value in PUBLISHED_05B.items() if key != field}
    with pytest.raises(ConfigError, match=field):
        ModelConfig.from_hf(rest)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "\xff", "[" * 9999])
def test_a_file_that_is_no_json_object_is_named(tmp_path, text):
    (tmp_path / "config.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError, match=r"config\.json"):
        ModelConfig.from_hf_file(tmp_path / "config.json")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"config\.json.*Hugging Face folder"):
        ModelConfig.from_hf_file(tmp_path / "config.json")


def test_a_config_survives_its_own_json():
    config = ModelConfig.from_hf(PUBLISHED_05B)
    assert ModelConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


@pytest.mark.parametrize("change", [{"extra": 1}, {"head_dim": None}, {"num_layers": 1.5}, {"tie_embeddings": 1}])
def test_a_header_config_with_another_field_or_type_is_refused(change):
    with pytest.raises(ConfigError, match=next(iter(change))):
        ModelConfig.from_dict({**ModelConfig.from_hf(PUBLISHED_05B).to_dict(), **change})


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
SOME_FIELD = st.sampled_from([*PUBLISHED_05B, "rope_parameters", "rope_scaling", "head_dim", "layer_types"])


@given(st.dictionaries(SOME_FIELD, anything, min_size=1, max_size=4))
def test_nonsense_in_a_config_gives_a_config_or_one_error(changes):
    try:
        config = ModelConfig.from_hf({**PUBLISHED_05B, **changes})
    except ConfigError as refusal:
        assert "\n" not in str(refusal)  # noqa: PT017
    else:
        assert config.q_heads_per_kv_head >= 1


@pytest.mark.parametrize(
    ("size", "weights"),
    [("0.5B", 0.49), ("1.5B", 1.54), ("3B", 3.09), ("7B", 7.61), ("14B", 14.7), ("32B", 32.5)],
)
def test_every_published_model_has_as_many_weights_as_its_card_says(size, weights):
    """In 10⁹, tied embeddings counted once; source: "Number of Parameters" of each model card on the hub."""
    config = QWEN2_5_CODER[size]
    attention = config.hidden_size * (2 * config.q_size + 2 * config.kv_size)
    layer = attention + 3 * config.hidden_size * config.intermediate_size
    vocabulary = (1 if config.tie_embeddings else 2) * config.vocab_size * config.hidden_size
    assert (config.num_layers * layer + vocabulary) / 1e9 == pytest.approx(weights, rel=0.01)
    assert config.q_size == config.hidden_size


def test_the_list_of_published_models_agrees_with_a_published_file():
    assert ModelConfig.from_hf(PUBLISHED_05B) == QWEN2_5_CODER["0.5B"]
