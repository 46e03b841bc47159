"""The torch backend: packed kernel, fallback and exact weights against each other; attention and RoPE on its own."""

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lab_engine.backends import torch as backend_module
from lab_engine.backends.torch import TorchBackend, has_packed_kernel, make
from lab_engine.backends.torch_attention import StepAttention
from lab_engine.config import ModelConfig
from lab_engine.convert import convert
from lab_engine.errors import BackendError
from lab_engine.int4 import pack_words, quantize_rows
from lab_engine.loading import load_decoder, open_source
from lab_engine.reference import reference_logits, rope_tables, rotate
from lab_engine.weights import Int4Matrix
from tests.lab_engine.dense_attention import dense_attention, random_case
from tests.lab_engine.tiny_models import random_checkpoint

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ROOT / "data" / "tiny-coder.nanoqwen"
IDS = torch.randint(0, 396, (40,), generator=torch.Generator().manual_seed(3)).tolist()
needs_packed_kernel = pytest.mark.skipif(not has_packed_kernel(), reason="this CPU has no packed INT4 kernel")


def config_of(heads=4, kv_heads=2, head_dim=64):
    return ModelConfig(256, 256, 1, heads, kv_heads, head_dim, 300, 4096, 1e6, 1e-6, True)


def random_int4(rows, k, seed=0):
    generator = torch.Generator().manual_seed(1000 * rows + k + seed)
    q, scales = quantize_rows(torch.randn(rows, k, generator=generator) * 0.05)
    return Int4Matrix(pack_words(q), scales)


def activations(tokens, k):
    return torch.randn(tokens, k, generator=torch.Generator().manual_seed(tokens)).to(torch.bfloat16)


def relative(found, expected):
    return float((found.double() - expected.double()).norm() / expected.double().norm())


# One matrix


@pytest.mark.parametrize("tokens", [1, 2, 8, 9, 33])
@pytest.mark.parametrize(("rows", "k"), [(1000, 128), (4096, 256), (333, 384), (64, 1152), (1, 128), (65, 2048)])
def test_a_product_equals_the_dequantized_one_for_odd_row_counts_too(rows, k, tokens):
    """Both sides of the switch from the packed kernel to dequantize-and-multiply."""
    matrix, x = random_int4(rows, k), activations(tokens, k)
    backend = TorchBackend(config_of(), torch.bfloat16)
    found = backend.linear(x, backend.load_matrix([matrix]))
    assert found.shape == (tokens, rows)
    assert relative(found, x.float() @ matrix.float().T) < 5e-3


@needs_packed_kernel
@pytest.mark.parametrize(("rows", "k"), [(1000, 128), (333, 384)])
def test_packed_kernel_and_fallback_agree(monkeypatch, rows, k):
    matrix, x = random_int4(rows, k), activations(3, k)
    packed = TorchBackend(config_of(), torch.bfloat16)
    monkeypatch.setattr(backend_module, "has_packed_kernel", lambda: False)
    fallback = TorchBackend(config_of(), torch.bfloat16)
    loaded, dense = packed.load_matrix([matrix]), fallback.load_matrix([matrix])
    assert loaded.packed is not None
    assert dense.packed is None
    assert relative(packed.linear(x, loaded), fallback.linear(x, dense)) < 5e-3
    assert ("packed" in packed.describe(), "packed" in fallback.describe()) == (True, False)


@pytest.mark.parametrize("tokens", [1, 20])
def test_joined_parts_give_their_rows_in_turn(tokens):
    parts = [random_int4(rows, 256, rows) for rows in (256, 128, 100)]
    x = activations(tokens, 256)
    for dtype in (torch.bfloat16, torch.float32):
        backend = TorchBackend(config_of(), dtype)
        found = backend.linear(x.to(dtype), backend.load_matrix(parts))
        expected = torch.cat([x.float() @ part.float().T for part in parts], dim=1)
        assert relative(found, expected) < 5e-3


@pytest.mark.parametrize("chunk", [1, 5 * 256, 64 * 256, 100 * 256])
def test_a_matrix_may_be_packed_and_dequantized_in_any_pieces(monkeypatch, chunk):
    matrix, backend = random_int4(333, 256), TorchBackend(config_of(), torch.bfloat16)
    whole = {tokens: backend.linear(activations(tokens, 256), backend.load_matrix([matrix])) for tokens in (1, 20)}
    monkeypatch.setattr(backend_module, "_CHUNK_WEIGHTS", chunk)
    for tokens, expected in whole.items():
        found = backend.linear(activations(tokens, 256), backend.load_matrix([matrix]))
        assert relative(found, expected) < 5e-3


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_floating_weights_are_multiplied_too(dtype):
    weight, backend = torch.randn(50, 256), TorchBackend(config_of(), dtype)
    x = activations(3, 256)
    assert relative(backend.linear(x.to(dtype), backend.load_matrix([weight])), x.float() @ weight.T) < 5e-3


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_an_embedding_row_is_exact_whatever_the_dtype(dtype):
    matrix, backend = random_int4(333, 256), TorchBackend(config_of(), dtype)
    ids = torch.tensor([0, 332, 5, 5])
    found = backend.embed(backend.load_matrix([matrix]), ids)
    assert torch.equal(found, matrix.float()[ids])
    assert found.dtype == torch.float32


@pytest.mark.parametrize("form", ["int4", "float"])
def test_logits_that_differ_by_less_than_a_bf16_step_are_told_apart(form):
    """bf16 has a step of 0.125 from 16 to 32: rows whose logits are 20, 20.01 and 20.02 would tie there."""
    weight, x = torch.zeros(333, 256), torch.zeros(1, 256, dtype=torch.bfloat16)
    weight[[300, 7, 100], 0], x[0, [0, 128]] = 20.0, 1.0
    weight[[300, 7, 100], 128] = torch.tensor([0.02, 0.01, 0.0])  # another group, with a scale of its own
    q, scales = quantize_rows(weight)
    matrix = Int4Matrix(pack_words(q), scales) if form == "int4" else weight
    backend = TorchBackend(config_of(), torch.bfloat16)
    logits = backend.logits(x, backend.load_matrix([matrix]))
    assert logits.dtype == torch.float32
    assert logits.argsort(descending=True)[:3].tolist() == [300, 7, 100]
    assert backend.argmax(logits) == 300


# Small operations


@pytest.mark.parametrize("places", [[5], [5, 9], [0, 332], [332, 331, 7]])
def test_argmax_takes_the_lowest_of_equal_ids(places):
    logits = torch.zeros(333)
    logits[places] = 1.0
    assert TorchBackend(config_of(), torch.float32).argmax(logits) == min(places)


def test_argmax_refuses_nan():
    with pytest.raises(BackendError, match="NaN"):
        TorchBackend(config_of(), torch.float32).argmax(torch.tensor([0.0, math.nan, 1.0]))


@pytest.mark.parametrize("fill", [math.nan, math.inf])
@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim"), [(4, 2, 64), (28, 4, 128), (12, 2, 64), (8, 1, 64), (4, 4, 128)]
)
@pytest.mark.parametrize(
    ("length", "tokens"), [(1, 1), (15, 1), (16, 1), (17, 1), (33, 1), (17, 17), (33, 33), (33, 5)]
)
def test_attention_equals_float64_whatever_the_empty_slots_hold(length, tokens, heads, kv_heads, head_dim, fill):
    case = random_case(length, tokens, heads, kv_heads, head_dim, fill)
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 3e-2)):
        backend = TorchBackend(config_of(heads, kv_heads, head_dim), dtype)
        q, k_pages, v_pages = (x.to(dtype) for x in (case.q, case.k_pages, case.v_pages))
        out = backend.paged_attention(q, k_pages, v_pages, torch.tensor(case.page_table), length)
        assert out.shape == (tokens, heads, head_dim)
        assert (out - dense_attention(case.q, case.k, case.v)[0]).abs().max() < tolerance


SHORT = st.integers(1, 200) | st.sampled_from([15, 16, 17, 32, 33, 1000])
LONG = st.integers(1024, 2100) | st.sampled_from([1024, 1039, 1040, 1041, 2048])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@settings(max_examples=40, deadline=None)
@given(
    length=SHORT | LONG,
    ratio=st.sampled_from([1, 2, 5, 6, 7, 8]),
    head_dim=st.sampled_from([64, 128]),
    fill=st.sampled_from([math.nan, math.inf]),
    spread=st.sampled_from(["just the sequence", "anywhere", "in one run"]),
    seed=st.integers(0, 1000),
)
def test_a_step_equals_float64_on_any_pool(dtype, length, ratio, head_dim, fill, spread, seed):
    """In a pool of its own or a large one. A long past returns bfloat16, whose rounding is at most 1/256."""
    case = random_case(length, 1, 2 * ratio, 2, head_dim, fill, dtype, seed)
    k_pages, v_pages, table = case.k_pages, case.v_pages, torch.tensor(case.page_table, dtype=torch.int32)
    if spread != "just the sequence":
        places = torch.arange(7, 7 + len(table)) if spread == "in one run" else torch.randperm(400)[: len(table)]
        large = (torch.full((2, 400, 16, head_dim), fill, dtype=dtype) for _ in "kv")
        k_pages, v_pages = (
            x.index_copy(1, places, y[:, table]) for x, y in zip(large, (k_pages, v_pages), strict=True)
        )
        table = places.int()
    out = TorchBackend(config_of(2 * ratio, 2, head_dim), dtype).paged_attention(
        case.q, k_pages, v_pages, table, length
    )
    expected = dense_attention(case.q, case.k, case.v)[0]
    assert out.shape == expected.shape
    allowed = 1e-5 if dtype == torch.float32 or length < 1024 else 2e-3 + expected.abs() / 256
    assert ((out - expected).abs() <= allowed).all()


def test_kept_memory_shows_nothing_of_the_sequence_before():
    """Longer, shorter, longer, in and out of inference mode: each as if it were the first."""
    attention = StepAttention(torch.bfloat16)
    for length, mode in ((100, True), (17, False), (1, False), (300, True), (100, False)):
        case = random_case(length, dtype=torch.bfloat16)
        arguments = case.q, case.k_pages, case.v_pages, torch.tensor(case.page_table), length
        with torch.inference_mode(mode):
            assert torch.equal(attention(*arguments), StepAttention(torch.bfloat16)(*arguments))


def test_a_long_step_takes_the_path_with_kept_memory_and_a_prompt_does_not(monkeypatch):
    """From 1024 tokens on; ids may be int64 and have a page to spare."""
    calls = []
    backend = TorchBackend(config_of(28, 4, 128), torch.bfloat16)
    right = backend._step_attention
    monkeypatch.setattr(backend, "_step_attention", lambda *arguments: calls.append(arguments[4]) or right(*arguments))
    for length, tokens in ((1023, 1), (1024, 1), (1024, 2)):
        case = random_case(length, tokens, 28, 4, 128, dtype=torch.bfloat16)
        out = backend.paged_attention(case.q, case.k_pages, case.v_pages, torch.tensor([*case.page_table, 0]), length)
        expected = dense_attention(case.q, case.k, case.v)[0]
        assert ((out - expected).abs() - expected.abs() / 256).max() <= 2e-3
    assert calls == [1024]


def test_products_beyond_fp16_survive_in_both_dtypes():
    """q = 30 and k = 20 in 128 dims: 76,800 before the scale."""
    case = random_case(20, head_dim=128)
    expected = case.v[0].repeat_interleave(2, dim=0)
    for dtype in (torch.float32, torch.bfloat16):
        k_pages = torch.full_like(case.k_pages, 19.0)
        k_pages[:, case.page_table[0], 0] = 20.0
        backend = TorchBackend(config_of(head_dim=128), dtype)
        tensors = (x.to(dtype) for x in (torch.full((1, 4, 128), 30.0), k_pages, case.v_pages))
        out = backend.paged_attention(*tensors, torch.tensor(case.page_table), 20)
        assert torch.allclose(out[0].float(), expected, atol=2e-2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rope_and_append_turns_q_and_k_writes_k_and_v_and_nothing_else(dtype):
    backend = TorchBackend(config_of(), dtype)
    qkv, bias = torch.randn(3, 8 * 64), torch.randn(8 * 64)
    data = torch.full((2, 2, 5, 16, 64), math.nan, dtype=dtype)
    slots = torch.tensor([47, 0, 17])
    cos, sin = (table[10:13] for table in rope_tables(config_of(), 20))
    q = backend.rope_and_append(qkv.to(dtype), bias, cos[:, None], sin[:, None], data, slots)
    heads = (qkv.to(dtype).float() + bias).view(3, 8, 64)
    written = data.flatten(2, 3)[:, :, slots]
    one_step = {"rtol": torch.finfo(dtype).eps, "atol": 1e-6}  # products may be fused: the last bit differs
    torch.testing.assert_close(q, rotate(heads[:, :4], cos, sin).to(dtype), **one_step)
    torch.testing.assert_close(written[0], rotate(heads[:, 4:6], cos, sin).to(dtype).transpose(0, 1), **one_step)
    assert torch.equal(written[1], heads[:, 6:].to(dtype).transpose(0, 1))
    assert int(data.isnan().all(dim=-1).sum()) == 2 * 2 * (5 * 16 - 3)


# The whole model: (c) of the fast path against the reference


def check_against_reference(path, ids, prompt_tokens, **keywords):
    """Relative error <= 3e-2, and the same top-1 wherever the top-2 gap is larger than the largest error."""
    decoder = load_decoder(path, "torch", **keywords)
    decoder.cache.data.fill_(math.nan)
    expected = reference_logits(open_source(path)[0], ids)[prompt_tokens - 1 :]
    found = torch.stack([decoder.prefill(ids[:prompt_tokens]), *map(decoder.step, ids[prompt_tokens:])])
    error = (found - expected).abs().max(dim=-1).values
    assert ((found - expected).norm(dim=-1) / expected.norm(dim=-1)).max() <= 3e-2
    largest, second = expected.topk(2).values.unbind(dim=-1)
    decided = largest - second > error
    assert decided.float().mean() > 0.5
    assert torch.equal(found.argmax(dim=-1)[decided], expected.argmax(dim=-1)[decided])
    return decoder


@pytest.mark.parametrize(
    "shape",
    [
        {"head_dim": 64},
        {"head_dim": 128, "num_attention_heads": 14, "num_key_value_heads": 2, "tie_word_embeddings": False},
        {"head_dim": 128, "vocab_size": 1000, "hidden_size": 384, "intermediate_size": 1152},
        {"vocab_size": 4096, "tie_word_embeddings": False, "num_hidden_layers": 4},
    ],
)
@pytest.mark.parametrize("prompt_tokens", [1, 7, 17])
def test_the_fast_path_is_close_to_the_reference(tmp_path, shape, prompt_tokens):
    path = convert(random_checkpoint(tmp_path / "m", seed=2, **shape), tmp_path / "m.nanoqwen")
    decoder = check_against_reference(path, IDS[: prompt_tokens + 20], prompt_tokens)
    assert ("packed" in decoder.backend.describe()) == has_packed_kernel()


def test_a_floating_checkpoint_in_bfloat16_is_close_to_the_reference(shared_checkpoint):
    check_against_reference(shared_checkpoint, IDS, 9, dtype=torch.bfloat16)


@pytest.mark.parametrize("prompt", ["def fibonacci(n):", "class Stack:\n    def push(self, item):\n        "])
@pytest.mark.skipif(not SHIPPED.exists(), reason="data/tiny-coder.nanoqwen is not there yet")
def test_the_fast_path_of_the_shipped_model_is_close_to_the_reference(prompt):
    ids = load_decoder(SHIPPED, "torch").tokenizer.encode(prompt + "\n    return value + 1\n\n\ndef main():\n")
    check_against_reference(SHIPPED, ids, 5)


LOGITS = """
import sys, torch
from pathlib import Path
from lab_engine.loading import load_decoder
dtype = {"None": None, "bfloat16": torch.bfloat16}[sys.argv[2]]
decoder = load_decoder(Path(sys.argv[1]), "torch", dtype)
ids = [int(word) for word in sys.argv[4].split(",")]
torch.save([decoder.backend.describe(), decoder.prefill(ids[:20]), decoder.step(ids[20])], sys.argv[3])
"""


@pytest.mark.parametrize(("dtype", "tolerance"), [("None", 1e-5), ("bfloat16", 3e-2)])
def test_a_cpu_without_avx_takes_the_fallback_and_agrees(shared_file, tmp_path, dtype, tolerance):
    """ATEN_CPU_CAPABILITY=default makes PyTorch behave as on the oldest CPU; without a wish it decodes in float32."""
    environment = {**os.environ, "ATEN_CPU_CAPABILITY": "default", "OMP_NUM_THREADS": "1"}
    arguments = [str(shared_file), dtype, str(tmp_path / "logits"), ",".join(map(str, IDS))]
    subprocess.run([sys.executable, "-c", LOGITS, *arguments], cwd=ROOT, env=environment, check=True)
    description, *found = torch.load(tmp_path / "logits")
    assert "dequantize and multiply" in description
    assert ("float32" if dtype == "None" else dtype) in description
    assert "DEFAULT" in description
    expected = reference_logits(open_source(shared_file)[0], IDS)
    for logits, row in zip(found, expected[19:], strict=False):
        assert relative(logits, row) <= tolerance


@pytest.mark.parametrize("missing", backend_module.PACKED_OPERATORS)
def test_a_pytorch_without_a_private_operator_falls_back(monkeypatch, missing):
    class Without:
        def __getattr__(self, name: str) -> object:
            if name == missing:
                raise AttributeError(name)
            return object()

    monkeypatch.setattr(torch.ops, "aten", Without())
    assert not has_packed_kernel()
    monkeypatch.undo()
    monkeypatch.setattr(backend_module, "has_packed_kernel", lambda: False)
    assert make(config_of(), None).dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64, torch.int8])
def test_another_dtype_is_refused_by_name(shared_file, dtype):
    with pytest.raises(BackendError, match=str(dtype)):
        load_decoder(shared_file, "torch", dtype)


def test_the_default_dtype_is_the_fastest():
    assert make(config_of(), None).dtype == (torch.bfloat16 if has_packed_kernel() else torch.float32)
    assert make(config_of(), torch.float32).dtype == torch.float32


# Odd logits


@pytest.mark.parametrize("value", [float("nan"), 0.0])
def test_logits_that_are_all_equal_or_no_numbers_come_back_as_they_are(value):
    backend = make(config_of(), torch.bfloat16)
    matrix = backend.load_matrix([random_int4(300, 256)])
    logits = backend.logits(torch.full((1, 256), value, dtype=torch.bfloat16), matrix)
    assert torch.equal(logits.nan_to_num(7.0), torch.full((300,), value).nan_to_num(7.0))


def test_logits_of_nan_choose_no_token_and_name_the_cause():
    backend = make(config_of(), torch.bfloat16)
    matrix = backend.load_matrix([random_int4(300, 256)])
    logits = backend.logits(torch.full((1, 256), float("nan"), dtype=torch.bfloat16), matrix)
    with pytest.raises(BackendError, match="NaN"):
        backend.argmax(logits)
