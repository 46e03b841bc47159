"""What data/ promises: the shipped model's size, its record, and that it writes Python in INT4 too."""

import json

import pytest
from tokenizers import Tokenizer

from lab_engine import SHIPPED_MODEL, data_path
from lab_engine.loading import open_source
from lab_engine.mistakes import exact_decoder
from lab_engine.nanoqwen_file import NanoqwenFile
from lab_engine.weights import DenseSource
from tools.tiny_eval import run_prompts

MIB = 1 << 20


@pytest.fixture(scope="module")
def record():
    return json.loads((data_path("tiny-coder") / "training_record.json").read_text())


def test_the_model_is_small_and_measured_on_packages_it_never_saw(record):
    assert 8e6 <= record["parameters"] <= 12e6
    assert record["held_out_bits_per_byte"] <= 0.95
    assert record["seconds"] <= 8 * 60
    assert {"device", "driver", "torch", "command", "seed", "loss_curve", "bpb_curve"} <= set(record)


def test_data_leaves_room_for_recordings():
    files = [path for path in data_path("").rglob("*") if path.is_file()]
    models = [path for path in files if "h200" not in path.parts]
    assert sum(path.stat().st_size for path in models) <= 34 * MIB
    assert max(path.stat().st_size for path in files if path.suffix == ".safetensors") <= 12 * MIB


def test_query_heads_share_kv_heads_so_that_a_wrong_mapping_shows():
    config = NanoqwenFile(data_path(SHIPPED_MODEL)).config
    assert config.num_kv_heads >= 2
    assert config.q_heads_per_kv_head == 2
    assert config.head_dim == 128


def test_in_int4_at_least_14_of_20_prompts_become_whole_lines_of_python():
    source, tokenizer = open_source(data_path(SHIPPED_MODEL))
    decoder = exact_decoder(DenseSource(source), tokenizer, num_pages=64)
    stops = tokenizer.fim_stop_token_ids

    def generate(ids: list[int], max_new_tokens: int) -> list[int]:
        return list(decoder.generate(ids, max_new_tokens, stops))

    verdicts = run_prompts(generate, Tokenizer.from_file(str(data_path("tiny-coder") / "tokenizer.json")))
    assert len(verdicts) == 20
    assert sum(verdict.counts for verdict in verdicts) >= 14, [v.name for v in verdicts if not v.counts]
