"""The trace of a generation says what the decoder really did, and changes nothing of it."""

import math

import pytest
import torch

from lab_engine import data_path
from lab_engine.config import ModelConfig
from lab_engine.decoder import STAGES
from lab_engine.decoder_trace import bytes_per_stage, trace_generation
from lab_engine.errors import NanoqwenError
from lab_engine.running_example import RUNNING_EXAMPLE, trace_running_example
from tests.lab_engine.dense_attention import dense_attention

PROMPT = "def add(a, b):\n    return a + b"
CONFIG_7B = ModelConfig(3584, 18944, 28, 28, 4, 128, 152064, 32768, 1e6, 1e-6, False)
CONFIG_05B = ModelConfig(896, 4864, 24, 14, 2, 64, 151936, 32768, 1e6, 1e-6, True)


def shipped() -> bool:
    try:
        return data_path("tiny-coder.nanoqwen").exists()
    except NanoqwenError:
        return False


@pytest.fixture(scope="module")
def decoder(load_exact):
    made = load_exact(page_order=[4, 1, 5, 0, 3, 2])
    made.cache.data.fill_(math.nan)
    return made


@pytest.fixture(scope="module")
def trace(decoder):
    return trace_generation(decoder, PROMPT, 40)


def test_it_is_one_prefill_and_then_one_token_a_step(trace, decoder):
    ids = decoder.tokenizer.encode(PROMPT)
    assert trace.prompt_tokens == len(ids)
    assert trace.steps[0].token_ids == tuple(ids)
    assert [step.kind for step in trace.steps] == ["prefill"] + ["step"] * (40 - len(ids))
    for before, after in zip(trace.steps, trace.steps[1:], strict=False):
        assert after.token_ids == (before.next_id,)
        assert after.start == before.start + len(before.token_ids)
    assert decoder.sequence.length == 40


def test_its_tokens_and_text_are_those_of_generate(trace, decoder):
    new_ids = [step.next_id for step in trace.steps]
    ids = decoder.tokenizer.encode(PROMPT)
    assert list(decoder.generate(ids, len(new_ids), frozenset())) == new_ids
    assert trace.text == decoder.tokenizer.decode(new_ids)


def test_tables_pages_and_slots_are_those_of_the_cache(trace):
    for step in trace.steps:
        last = step.start + len(step.token_ids) - 1
        assert step.page_table == (4, 1, 5)[: last // 16 + 1]
        assert (step.page, step.page_id, step.slot) == (last // 16, step.page_table[-1], last % 16)
    taken = [page for step in trace.steps for page in step.pages_taken]
    assert taken == [4, 1, 5]


def test_every_pass_runs_every_stage_in_order(trace):
    layers = [(stage, layer) for layer in range(2) for stage in STAGES[1:-1]]
    for step in trace.steps:
        assert [(s.stage, s.layer) for s in step.stages] == [("embed", None), *layers, ("lm_head", None)]
        assert all(s.rms > 0 and s.bytes_read > 0 for s in step.stages)


def test_attention_is_the_softmax_over_all_positions(trace, decoder, load_exact):
    for step in trace.steps:
        assert len(step.attention) == 2
        for weights in step.attention:
            assert len(weights) == step.start + len(step.token_ids)
            assert sum(weights) == pytest.approx(1, abs=1e-5)
    seen = []
    again = load_exact()
    original = again.attention
    again.attention = lambda q, *rest: (seen.append((q.clone(), rest)), original(q, *rest))[1]
    again.prefill(decoder.tokenizer.encode(PROMPT))
    q, (k_pages, _, page_table, length) = seen[0]
    k = k_pages[:, page_table].flatten(1, 2)[:, :length].transpose(0, 1)
    one_hot = torch.eye(length)[:, None].expand(-1, k.shape[1], -1)
    weights, _ = dense_attention(q[-1:], k, one_hot)
    assert trace.steps[0].attention[0] == pytest.approx(weights[0].mean(dim=0).tolist(), abs=1e-5)


def test_the_five_most_probable_tokens_are_those_of_the_logits(trace, decoder):
    logits = decoder.prefill(decoder.tokenizer.encode(PROMPT))[: decoder.tokenizer.vocab_size]
    step, best = trace.steps[0], logits.topk(5)
    assert [entry[0] for entry in step.top] == best.indices.tolist()
    assert [entry[2] for entry in step.top] == pytest.approx(logits.softmax(-1)[best.indices].tolist(), rel=1e-4)
    assert step.top[0][1] == decoder.tokenizer.token_text(step.next_id) == step.next_text
    assert step.margin == pytest.approx(float(best.values[0] - best.values[1]), abs=1e-4)


def test_the_decoder_is_left_as_it_was(trace, decoder):
    assert trace.steps
    assert decoder.observer is None
    assert decoder.attention == decoder.backend.paged_attention


def test_bytes_of_a_step_are_the_published_ones():
    """A prompt's last step of the 7B at context 512 and of the 0.5B at 128, without their embedding row."""
    for config, context, published in ((CONFIG_7B, 512, 3_674_976_256), (CONFIG_05B, 128, 256_271_616)):
        stages = bytes_per_stage(config, context)
        assert tuple(stages) == STAGES
        assert sum(stages.values()) - stages["embed"] == published


@pytest.mark.skipif(not shipped(), reason="data/tiny-coder.nanoqwen is not there yet")
def test_the_running_example_has_56_tokens_on_pages_5_9_2_12():
    trace = trace_running_example()
    last = trace.steps[-1]
    assert (RUNNING_EXAMPLE.num_tokens, RUNNING_EXAMPLE.page_table) == (56, (5, 9, 2, 12))
    assert last.page_table == (5, 9, 2, 12)
    assert (last.start, last.page, last.page_id, last.slot) == (55, 3, 12, 7)
    assert trace.num_pages == 16
    assert min(step.margin for step in trace.steps) > 1e-2  # else the text may differ on another machine
