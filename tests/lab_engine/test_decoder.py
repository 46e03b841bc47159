"""The decoder in float32 against the reference: prefill, steps, pieces, page boundaries, undefined memory, forks."""

import math
from pathlib import Path

import pytest
import torch

from lab_engine import decoder as decoder_module
from lab_engine.convert import convert
from lab_engine.decoder import STAGES
from lab_engine.errors import OutOfPages, PromptError, TokenizerError
from lab_engine.loading import load_decoder, open_source
from lab_engine.nanoqwen_file import NanoqwenFile
from lab_engine.paged_attention import paged_attention
from lab_engine.reference import reference_logits
from tests.lab_engine.tiny_models import random_checkpoint

IDS = torch.randint(0, 396, (40,), generator=torch.Generator().manual_seed(3)).tolist()
SHIPPED = Path(__file__).resolve().parents[2] / "data" / "tiny-coder.nanoqwen"
LENGTHS = [1, 2, 15, 16, 17, 31, 32, 33]
ORDER = [4, 1, 5, 0, 3, 2]
SHAPES = [
    {"head_dim": 64, "num_attention_heads": 4, "num_key_value_heads": 2},
    {"head_dim": 128, "num_attention_heads": 6, "num_key_value_heads": 2, "rope_theta": 1e4},
    {"head_dim": 64, "num_attention_heads": 14, "num_key_value_heads": 2, "tie_word_embeddings": False},
    {"head_dim": 128, "num_attention_heads": 2, "num_key_value_heads": 2, "tie_word_embeddings": False},
    {"head_dim": 64, "num_attention_heads": 8, "num_key_value_heads": 1},
]


@pytest.fixture(scope="module")
def expected(shared_file):
    """The reference's logits of every prefix of IDS, on the weights of `shared_file`."""
    return reference_logits(open_source(shared_file)[0], IDS)


def poison(decoder, value=math.nan):
    """Fill the whole pool: what no token has written is undefined memory."""
    decoder.cache.data.fill_(value)
    return decoder


def step_through(decoder, ids, start):
    """Logits after each of ids[start:], fed one at a time."""
    return torch.stack([decoder.step(token_id) for token_id in ids[start:]])


# Equal to the reference


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "-".join(map(str, shape.values())))
def test_prefill_and_steps_equal_the_reference(tmp_path, shape):
    path = convert(random_checkpoint(tmp_path / "m", seed=5, **shape), tmp_path / "m.nanoqwen")
    decoder = poison(load_decoder(path, "torch", torch.float32, page_order=ORDER))
    expected = reference_logits(open_source(path)[0], IDS)
    logits = decoder.prefill(IDS[:20])
    assert logits.dtype == torch.float32
    assert logits.shape == (433,)
    assert (logits - expected[19]).abs().max() <= 1e-4
    assert (step_through(decoder, IDS, 20) - expected[20:]).abs().max() <= 1e-4


@pytest.mark.skipif(not SHIPPED.exists(), reason="data/tiny-coder.nanoqwen is not there yet")
def test_the_shipped_model_equals_the_reference():
    decoder = poison(load_decoder(SHIPPED, "torch", torch.float32))
    ids = decoder.tokenizer.encode("class Stack:\n    def push(self, item):\n        self.items.append(item)\n")
    expected = reference_logits(open_source(SHIPPED)[0], ids)
    assert (decoder.prefill(ids[:9]) - expected[8]).abs().max() <= 1e-4
    assert (step_through(decoder, ids, 9) - expected[9:]).abs().max() <= 1e-4


def test_a_hugging_face_folder_is_decoded_without_converting_it(shared_checkpoint):
    decoder = load_decoder(shared_checkpoint, "torch", torch.float32)
    expected = reference_logits(open_source(shared_checkpoint)[0], IDS)
    assert (decoder.prefill(IDS) - expected[-1]).abs().max() <= 1e-4


@pytest.mark.parametrize("fill", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("length", LENGTHS)
def test_undefined_slots_never_reach_the_logits(load_exact, expected, length, fill):
    decoder = poison(load_exact(page_order=ORDER), fill)
    assert (decoder.prefill(IDS[:length]) - expected[length - 1]).abs().max() <= 1e-4
    steps = step_through(decoder, IDS[: length + 3], length)
    assert (steps - expected[length : length + 3]).abs().max() <= 1e-4


def test_every_length_from_1_to_40_is_right_one_token_at_a_time(load_exact, expected):
    decoder = poison(load_exact(page_order=ORDER))
    logits = torch.cat([decoder.prefill(IDS[:1])[None], step_through(decoder, IDS, 1)])
    assert (logits - expected).abs().max() <= 1e-4
    assert decoder.sequence.page_table == [4, 1, 5]


@pytest.mark.parametrize("piece", [1, 5, 16, 17, 39, 40])
def test_a_prompt_in_pieces_gives_the_same_logits(load_exact, expected, monkeypatch, piece):
    monkeypatch.setattr(decoder_module, "PREFILL_TOKENS", piece)
    decoder = poison(load_exact(page_order=ORDER))
    assert (decoder.prefill(IDS) - expected[-1]).abs().max() <= 1e-4
    assert decoder.sequence.length == len(IDS)


def test_reused_pages_hold_nothing_of_the_sequence_before(load_exact, expected):
    decoder = load_exact()
    for _ in range(3):
        decoder.prefill(IDS[::-1])
        assert (decoder.prefill(IDS[:17]) - expected[16]).abs().max() <= 1e-4
        assert (decoder.step(IDS[17]) - expected[17]).abs().max() <= 1e-4
    assert decoder.cache.pool.num_used == 2


def test_page_ids_do_not_matter(load_exact):
    ascending, shuffled = load_exact(), poison(load_exact(page_order=ORDER))
    assert torch.equal(ascending.prefill(IDS), shuffled.prefill(IDS))
    assert torch.equal(ascending.step(7), shuffled.step(7))


def test_another_attention_may_be_put_in(exact_decoder, expected):
    """The readable paged attention in place of the backend's, in prefill and in steps."""

    def readable(q, k_pages, v_pages, page_table, length):
        return paged_attention(q, k_pages, v_pages, page_table.tolist(), length)[0]

    poison(exact_decoder).attention = readable
    assert (exact_decoder.prefill(IDS[:20]) - expected[19]).abs().max() <= 1e-4
    assert (step_through(exact_decoder, IDS, 20) - expected[20:]).abs().max() <= 1e-4


def test_the_observer_sees_every_stage_in_order(exact_decoder):
    seen = []
    exact_decoder.observer = lambda stage, layer, output: seen.append((stage, layer, tuple(output.shape)))
    exact_decoder.prefill(IDS[:5])
    layers = [(stage, layer) for layer in range(2) for stage in STAGES[1:-1]]
    assert [entry[:2] for entry in seen] == [("embed", None), *layers, ("lm_head", None)]
    shapes = {stage: shape for stage, _, shape in seen}
    assert (shapes["embed"], shapes["qkv"], shapes["gate_up"]) == ((5, 256), (5, 512), (5, 384))
    assert shapes["lm_head"] == (433,)


# Several sequences in one cache


def test_a_second_sequence_does_not_disturb_the_first(load_exact):
    alone = load_exact(page_order=ORDER)
    alone.prefill(IDS[:20])
    undisturbed = step_through(alone, IDS, 20)

    decoder = poison(load_exact(page_order=ORDER))
    decoder.prefill(IDS[:20])
    first, decoder.sequence = decoder.sequence, decoder.cache.new_sequence()
    decoder.prefill(IDS[::-1][:18])
    second = decoder.sequence
    found = []
    for token_id in IDS[20:]:
        decoder.sequence = first
        found.append(decoder.step(token_id))
        decoder.sequence = second
        decoder.step(token_id)
    assert torch.equal(torch.stack(found), undisturbed)
    assert not set(first.page_table) & set(second.page_table)


def test_forks_match_unshared_runs_bit_for_bit(load_exact):
    """A prompt of 20, then token A on one and token B on the other: page 0 is shared, page 1 is copied."""
    unshared = {}
    for token_id in (17, 23):
        decoder = load_exact()
        decoder.prefill(IDS[:20])
        unshared[token_id] = torch.stack([decoder.step(token_id), decoder.step(IDS[21])])

    decoder = poison(load_exact(page_order=ORDER))
    decoder.prefill(IDS[:20])
    sequences = {17: decoder.sequence, 23: decoder.cache.fork(decoder.sequence)}
    found = {17: [], 23: []}
    for turn in range(2):
        for token_id, sequence in sequences.items():
            decoder.sequence = sequence
            found[token_id].append(decoder.step(token_id if turn == 0 else IDS[21]))
    for token_id, logits in found.items():
        assert torch.equal(torch.stack(logits), unshared[token_id])
    assert not torch.equal(unshared[17], unshared[23])
    owners = [decoder.cache.pool.ref_count(page_id) for page_id in sequences[17].page_table]
    assert owners == [2, 1]


# Refusals, and what is left after them


def test_an_empty_prompt_is_refused(exact_decoder):
    with pytest.raises(PromptError, match="prompt: found 0 tokens"):
        exact_decoder.prefill([])


@pytest.mark.parametrize("token_id", [-1, 433, 2**40])
def test_a_token_id_out_of_range_is_refused(exact_decoder, token_id):
    exact_decoder.prefill(IDS[:3])
    for action in (lambda: exact_decoder.prefill([1, token_id]), lambda: exact_decoder.step(token_id)):
        with pytest.raises(PromptError, match=f"token id {token_id}: expected 0 to 432"):
            action()
    assert exact_decoder.sequence.length == 3


def test_token_ids_may_come_as_a_tensor(exact_decoder):
    assert torch.equal(exact_decoder.prefill(torch.tensor(IDS)), exact_decoder.prefill(IDS))


def test_a_step_without_a_sequence_is_refused(exact_decoder):
    with pytest.raises(PromptError, match="call prefill first"):
        exact_decoder.step(1)


def test_a_prompt_longer_than_the_positions_is_refused(exact_decoder):
    with pytest.raises(PromptError, match="found 97 tokens, expected at most 96"):
        exact_decoder.prefill([1] * 97)
    exact_decoder.prefill([1] * 96)
    with pytest.raises(PromptError, match="96 tokens"):
        exact_decoder.step(1)
    assert exact_decoder.sequence.length == 96


def test_a_prompt_longer_than_the_pool_is_refused(load_exact):
    decoder = load_exact(num_pages=2)
    with pytest.raises(PromptError, match="found 33 tokens, expected at most 32"):
        decoder.prefill([1] * 33)
    decoder.prefill([1] * 32)
    with pytest.raises(PromptError, match="32 tokens"):
        decoder.step(1)


def test_room_counts_positions_pages_and_a_shared_tail(load_exact):
    decoder = load_exact(num_pages=3)
    decoder.prefill(IDS[:20])
    assert decoder.room() == 28
    other = decoder.cache.fork(decoder.sequence)
    assert decoder.room() == 12  # the copy of the tail takes the last page
    decoder.step(1)
    assert decoder.room() == 11
    decoder.sequence = other  # now the only owner of its tail, but no page is free
    assert decoder.room() == 12
    decoder.cache.fork(other)
    assert decoder.room() == 0
    with pytest.raises(PromptError, match="room for no more"):
        decoder.step(1)
    assert decoder.sequence is other
    assert load_exact(num_pages=100).room() == 96


@pytest.mark.parametrize("pass_number", [1, 2, 4])
def test_after_a_failed_pass_the_decoder_is_usable_and_no_page_is_lost(exact_decoder, monkeypatch, pass_number):
    """A prompt in pieces fails in one of them; Ctrl-C is the commonest cause."""
    expected = exact_decoder.prefill(IDS)
    calls = []

    def interrupted(gate_up):
        calls.append(1)
        if len(calls) == pass_number:
            raise KeyboardInterrupt
        return type(exact_decoder.backend).silu_mul(exact_decoder.backend, gate_up)

    monkeypatch.setattr(decoder_module, "PREFILL_TOKENS", 20)
    monkeypatch.setattr(exact_decoder.backend, "silu_mul", interrupted)
    with pytest.raises(KeyboardInterrupt):
        exact_decoder.prefill(IDS)
    assert exact_decoder.cache.pool.num_used == 0
    with pytest.raises(PromptError, match="call prefill first"):
        exact_decoder.step(1)
    monkeypatch.undo()
    assert torch.equal(exact_decoder.prefill(IDS), expected)


def test_a_sequence_freed_by_hand_does_not_break_the_decoder(exact_decoder):
    expected = exact_decoder.prefill(IDS)
    exact_decoder.cache.free(exact_decoder.sequence)
    assert torch.equal(exact_decoder.prefill(IDS), expected)


@pytest.mark.parametrize("num_pages", [0, -3])
def test_a_cache_without_pages_is_refused(load_exact, num_pages):
    with pytest.raises(ValueError, match="num_pages"):
        load_exact(num_pages=num_pages)


def test_a_cache_that_no_memory_holds_is_refused_in_one_line(load_exact):
    with pytest.raises(OutOfPages, match="smaller num_pages"):
        load_exact(num_pages=2**45)


def test_logits_are_an_ordinary_tensor_that_a_sampler_may_change(exact_decoder):
    logits = exact_decoder.prefill(IDS)
    logits[3] = -math.inf
    again = exact_decoder.prefill(IDS)
    assert again[3] > -math.inf


def test_a_broken_tokenizer_section_names_the_file(shared_file, tmp_path):
    path = tmp_path / "broken.nanoqwen"
    data = bytearray(shared_file.read_bytes())
    section = NanoqwenFile(shared_file).sections["tokenizer"]
    data[section.offset :] = b"{}".ljust(section.length)
    path.write_bytes(data)
    with pytest.raises(TokenizerError, match=r"broken\.nanoqwen"):
        load_decoder(path)
