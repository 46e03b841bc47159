"""The bytes of attention are those that one counts by hand; times are taken as they are said to be."""

import itertools

import pytest

from lab_engine import SHIPPED_MODEL, data_path
from lab_engine.attention_costs import (
    CONTEXTS,
    WAYS,
    kv_bytes_per_token,
    step_cost,
    time_attention,
    token_passes,
)
from lab_engine.bench.models import QWEN_7B
from lab_engine.errors import NanoqwenError
from lab_engine.kv_trace import TINY
from lab_engine.nanoqwen_file import NanoqwenFile

SHIPPED = NanoqwenFile(data_path(SHIPPED_MODEL)).config


def test_a_token_s_bytes_are_layers_times_two_times_kv_heads_times_128_dims_times_two():
    assert kv_bytes_per_token(QWEN_7B) == 28 * 2 * 4 * 128 * 2 == 57_344
    assert kv_bytes_per_token(SHIPPED) == 6 * 2 * 2 * 128 * 2 == 6_144


def test_at_2048_tokens_a_layer_of_the_7b_reads_4_19_megabytes_and_a_table_of_512():
    pages, block = (step_cost(QWEN_7B, 2048, way) for way in ("pages", "contiguous"))
    assert block.read // 28 == 4_194_304
    assert pages.table // 28 == 512
    assert pages.read - block.read == pages.table == 14_336
    assert round(100 * pages.table / block.read, 3) == 0.012


def test_without_a_cache_2048_tokens_take_2_098_176_passes_and_with_one_2048():
    assert token_passes(2048, cached=False) == sum(range(1, 2049)) == 2_098_176
    assert token_passes(2048, cached=True) == 2048
    passes = [step_cost(QWEN_7B, context, "no cache").token_passes for context in range(1, 100)]
    assert sum(passes) == token_passes(99, cached=False)


def test_without_a_cache_every_row_reads_its_past_and_nothing_is_kept():
    cost = step_cost(QWEN_7B, 3, "no cache")
    assert (cost.read, cost.written, cost.stored) == ((1 + 2 + 3) * 57_344, 3 * 57_344, 0)


@pytest.mark.parametrize(("tokens", "pages"), [(1, 1), (15, 1), (16, 1), (17, 2), (32, 2), (33, 3), (56, 4)])
def test_pages_keep_whole_pages_and_four_bytes_for_each(tokens, pages):
    cost = step_cost(QWEN_7B, tokens, "pages")
    assert cost.stored == pages * (917_504 + 4)
    assert (cost.read, cost.written) == (tokens * 57_344 + 28 * 4 * pages, 57_344)


def test_a_contiguous_cache_keeps_1_75_gib_whatever_the_context():
    assert {step_cost(QWEN_7B, context, "contiguous").stored for context in CONTEXTS} == {7 << 28}


def test_doubling_the_context_doubles_a_cached_step_and_quadruples_one_without():
    for way, factor in (("no cache", 4), ("contiguous", 2), ("pages", 2)):
        read = [step_cost(QWEN_7B, context, way).read for context in CONTEXTS]
        assert all(abs(b / a - factor) < 0.05 for a, b in itertools.pairwise(read)), way


@pytest.mark.parametrize(
    ("context", "way", "said"),
    [
        (0, "pages", "context: found 0, expected 1 to 2048"),
        (2049, "pages", "context: found 2049, expected 1 to 2048"),
        (1, "ring", "way 'ring': expected one of no cache, contiguous, pages"),
    ],
)
def test_what_cannot_be_counted_is_refused_in_one_line(context, way, said):
    with pytest.raises(NanoqwenError, match=said):
        step_cost(SHIPPED, context, way)
    assert len(WAYS) == 3


def test_a_time_is_the_best_of_at_least_three():
    ticks = iter([0, 5, 10, 12, 20, 29, 100, 103, 110, 111, 120, 127])  # prompt: 5, 2, 9; step: 3, 1, 7
    (found,) = time_attention(TINY, (17,), budget=0.0, clock=lambda: float(next(ticks)))
    assert (found.tokens, found.prefill, found.step) == (17, 2.0, 1.0)


def test_a_prompt_of_many_tokens_takes_longer_than_a_step_and_more_so_the_longer_it_is():
    short, long = time_attention(SHIPPED, (128, 1024), budget=0.2)
    assert short.step < short.prefill
    assert long.prefill / short.prefill > 2 * long.step / short.step
