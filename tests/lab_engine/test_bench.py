"""bench: each number is of the right thing, stands beside a right limit, and a wrong output prints no number."""

import io
import json
import math
import os
import signal
import sys
from collections import namedtuple
from types import SimpleNamespace

import pytest
import torch
import xxhash

import lab_engine
from lab_engine import bench, cli
from lab_engine.bench import attention, decode, files, machine, models, startup
from lab_engine.bench.qwen_tokenizer import CONTROL_TOKENS, TEXT_TOKENS, qwen_sized_tokenizer
from lab_engine.config import ModelConfig
from lab_engine.kv_pages import KVCache, PagePool
from lab_engine.nanoqwen_file import NanoqwenFile
from lab_engine.reference import reference_logits
from lab_engine.tokenizer import Tokenizer
from lab_engine.weights import FileSource
from tests.lab_engine.tiny_models import random_checkpoint

SMALL = ModelConfig(256, 384, 2, 4, 2, 64, 512, 1024, 1e6, 1e-6, tie_embeddings=True)
SMALL_7B = ModelConfig(256, 384, 2, 14, 2, 128, 512, 4096, 1e6, 1e-6, tie_embeddings=False)
DESIGN_NAMES = [
    *("decode/tiny-coder", "decode/qwen2.5-coder-0.5b", "prefill512/qwen2.5-coder-0.5b", "first_token/tiny-coder"),
    *("memory_over_weights/tiny-coder", "pack/fp16", "open/4gb", "open_memory/4gb", "verify/fp"),
    *("attention2048/qwen2.5-coder-7b", "cache_step/256"),
]
FIELDS = {"name", "value", "unit", "limit", "peer", "load", "passed", "kind", "device", "versions"}


@pytest.fixture(scope="module")
def long_file(tmp_path_factory):
    """A random model with room for the prompts that are measured."""
    from lab_engine.convert import convert

    folder = tmp_path_factory.mktemp("bench")
    return convert(random_checkpoint(folder / "hf", max_position_embeddings=1024), folder / "long.nanoqwen")


@pytest.fixture
def small(monkeypatch, long_file):
    """Small shapes, few runs, slow machine: the benchmarks run in seconds and their arithmetic is the same."""
    monkeypatch.setattr(lab_engine, "SHIPPED_MODEL", str(long_file))
    for module in (models, decode, files, startup):
        monkeypatch.setattr(module, "QWEN_05B", SMALL, raising=False)
    for module in (models, files, attention):
        monkeypatch.setattr(module, "QWEN_7B", SMALL_7B, raising=False)
    for module in (decode, startup):
        monkeypatch.setattr(module, "_RUNS", 2)
    monkeypatch.setattr(files, "_ROWS", 256)
    monkeypatch.setattr(files, "_K", 512)
    monkeypatch.setattr(files, "qwen_sized_tokenizer", lambda: qwen_sized_tokenizer(1000))
    for module in (decode, files, attention):
        monkeypatch.setattr(module, "read_bandwidth", lambda: 1e10, raising=False)
    monkeypatch.setattr(decode, "matmul_flops", lambda _: 1e11)


def measure(name):
    (result,) = bench.run([name], "torch", lambda _: None)
    return result


def test_the_names_of_the_design_are_there():
    names = [benchmark.name for benchmark in bench.BENCHMARKS]
    assert set(DESIGN_NAMES) <= set(names)
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", [benchmark.name for benchmark in bench.BENCHMARKS])
def test_every_benchmark_runs_and_passes_its_own_check(small, name):
    result = measure(name)
    assert result.passed
    assert result.value is not None
    assert result.value > 0
    assert set(result.to_dict()) >= FIELDS
    assert result.kind == "measured"
    assert set(result.load) == {"busy", "other_cores"}
    json.dumps(result.to_dict())


@pytest.mark.parametrize("name", ["decode/qwen2.5-coder-0.5b", "prefill512/qwen2.5-coder-0.5b"])
def test_a_wrong_output_prints_no_value(monkeypatch, small, name):
    decoder = models.random_decoder(SMALL, "torch")
    right = decoder.backend.logits
    monkeypatch.setattr(decoder.backend, "logits", lambda x, matrix: right(x, matrix).roll(1))
    result = measure(name)
    assert (result.passed, result.value) == (False, None)
    assert "failed" in render(bench.as_table([result]))


def test_attention_that_forgets_the_last_token_is_noticed(monkeypatch, small):
    make = attention.make_backend

    def forgetful(*arguments):
        backend = make(*arguments)
        right = backend.paged_attention
        backend.paged_attention = lambda q, k, v, table, length: right(q, k, v, table, length - 1024)
        return backend

    monkeypatch.setattr(attention, "make_backend", forgetful)
    assert measure("attention2048/qwen2.5-coder-7b").value is None


def test_a_step_of_the_cache_for_256_sequences_is_right_and_has_a_value(small):
    found = measure("cache_step/256")
    assert found.passed
    assert found.value > 0


@pytest.mark.parametrize("place", [0, 1, 2], ids=["slots", "tables", "lengths"])
def test_a_cache_step_that_is_wrong_in_one_number_is_noticed(monkeypatch, small, place):
    """One off in the slots, the tables or the lengths of the batch."""
    append_each, tables = KVCache.append_each, KVCache.tables

    def off(tensor, here):
        tensor[(0,) * tensor.ndim] += here
        return tensor

    monkeypatch.setattr(KVCache, "append_each", lambda *arguments: off(append_each(*arguments), place == 0))
    monkeypatch.setattr(
        KVCache,
        "tables",
        lambda *arguments: tuple(off(one, place == at) for at, one in enumerate(tables(*arguments), start=1)),
    )
    assert measure("cache_step/256").value is None


def test_a_cache_that_gives_one_page_to_two_sequences_is_noticed(monkeypatch, small):
    take = PagePool.take
    monkeypatch.setattr(PagePool, "take", lambda pool: take(pool) // 2 * 2)
    assert measure("cache_step/256").value is None


def test_a_checksum_that_is_not_compared_is_noticed(monkeypatch, small):
    monkeypatch.setattr(NanoqwenFile, "verify", lambda _: [])
    assert measure("verify/fp").value is None


def test_opening_a_4_gb_file_takes_little_memory_and_parses_no_tokenizer(monkeypatch, small):
    monkeypatch.setattr(files, "QWEN_7B", models.QWEN_7B)
    monkeypatch.setattr(files, "qwen_sized_tokenizer", qwen_sized_tokenizer)
    result = measure("open_memory/4gb")
    assert 0 < result.value < 8e6  # the header, as text and as objects
    assert result.value < result.peer["value"] / 2  # of 5.5 MB of JSON


@pytest.mark.parametrize("name", ["open/4gb", "open_memory/4gb"])
def test_a_file_that_opens_with_another_tokenizer_is_noticed(monkeypatch, small, name):
    write, other = files.write_sparse_file, qwen_sized_tokenizer(999)
    monkeypatch.setattr(files, "write_sparse_file", lambda path, config, _: write(path, config, other))
    assert measure(name).value is None


def test_a_process_that_fails_leaves_its_last_line(monkeypatch, small, tmp_path):
    child = tmp_path / "child.py"
    child.write_text("import sys\nsys.exit('no memory today')")
    monkeypatch.setattr(files, "_OPEN_CHILD", child)
    result = measure("open_memory/4gb")
    assert result.value is None
    assert "no memory today" in result.how


def test_packing_that_loses_a_sign_is_noticed(monkeypatch, small):
    pack = files.pack_words
    monkeypatch.setattr(files, "pack_words", lambda q: pack(q.abs().clamp(max=7)))
    assert measure("pack/fp16").value is None


def test_a_failed_check_is_exit_status_1_and_null_in_json(monkeypatch, capsys, small):
    monkeypatch.setattr(NanoqwenFile, "verify", lambda _: [])
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(sys, "argv", ["nanoqwen", "bench", "verify/fp", "--json"])
    with pytest.raises(SystemExit) as left:
        cli.main()
    captured = capsys.readouterr()
    assert left.value.code == 1
    assert [(found["name"], found["value"]) for found in json.loads(captured.out)] == [("verify/fp", None)]
    assert captured.err == "verify/fp …\nverify/fp: the output was wrong, so there is no value\n"


def test_one_benchmark_that_cannot_run_does_not_lose_the_others(monkeypatch, small):
    monkeypatch.setattr(lab_engine, "SHIPPED_MODEL", "gone.nanoqwen")
    said = []
    missing, there = bench.run(["decode/tiny-coder", "pack/fp16"], "torch", said.append)
    assert (missing.value, missing.passed) == (None, False)
    assert "gone.nanoqwen" in missing.how
    assert there.passed
    assert any("gone.nanoqwen" in line for line in said)


def render(table):
    from rich.console import Console

    console = Console(width=140, record=True, file=io.StringIO())
    console.print(table)
    return console.export_text()


def test_the_table_shows_value_limit_share_and_peer():
    common = {"load": {"busy": True, "other_cores": 0.7}, "passed": True, "kind": "measured", "device": "d", "how": "h"}
    fast = bench.Result(name="pack/fp16", value=2e9, unit="bytes/s", limit=8e9, peer=None, versions={}, **common)
    peer = {"name": "import torch", "value": 1.5}
    slow = bench.Result(name="first_token/tiny-coder", value=2.0, unit="s", limit=0.5, peer=peer, versions={}, **common)
    text = render(bench.as_table([fast, slow]))
    for part in ("2.00 GB/s", "8.00 GB/s", "25%", "2.00 s", "500.00 ms", "import torch: 1.50 s", "busy: 0.7 cores"):
        assert part in text


# The arithmetic


def test_a_step_of_the_05b_reads_every_weight_once_and_its_context():
    """24 layers of qkv 896·1152, o 896·896, gate + up 2·4864·896, down 4864·896, and a head of 151936·896."""
    layer = 896 * 1152 + 896 * 896 + 3 * 4864 * 896
    weights = 24 * layer + 151936 * 896
    float32 = 4 * (24 * (2 * 896 + 1152) + 896)
    context = 128 * 24 * 2 * 2 * 64 * 2
    assert models.step_bytes(models.QWEN_05B, 128) == weights * 0.515625 + float32 + context


def test_a_step_of_the_7b_does_not_read_the_whole_untied_embedding():
    """facts of the 7B: 6.526 G layer weights and a head of 3584 × 152064, at 0.515625 bytes."""
    weights = 28 * (3584 * 4608 + 3584 * 3584 + 3 * 18944 * 3584) + 3584 * 152064
    assert models.step_bytes(models.QWEN_7B, 0) == pytest.approx(weights * 0.515625, rel=1e-3)


def test_operations_of_a_prompt_are_counted_as_pytorch_counts_them():
    from torch.utils.flop_counter import FlopCounterMode

    tokens = 64
    source = models.RandomSource(SMALL)
    with FlopCounterMode(display=False) as counter:
        reference_logits(source, list(range(tokens)))
    # The reference computes all of the square of scores and every row of logits; a prefill needs half and one.
    square = 2 * SMALL.num_layers * 2 * tokens * tokens * SMALL.q_size
    half = SMALL.num_layers * 2 * tokens * (tokens + 1) * SMALL.q_size
    heads = 2 * SMALL.vocab_size * SMALL.hidden_size * (tokens - 1)
    assert models.prompt_operations(SMALL, tokens) == counter.get_total_flops() - square + half - heads


def test_random_weights_are_the_same_each_time_and_in_a_file(tmp_path):
    source = models.RandomSource(SMALL)
    name = "model.layers.1.mlp.down_proj.weight"
    models.write_random_file(tmp_path / "r.nanoqwen", SMALL)
    stored = FileSource(NanoqwenFile(tmp_path / "r.nanoqwen")).matrix(name)
    for matrix in (source.matrix(name), stored):
        assert torch.equal(matrix.words, models.RandomSource(SMALL).matrix(name).words)
        assert torch.equal(matrix.scales, source.matrix(name).scales)
    assert not torch.equal(source.matrix(name).words[:2], source.matrix(name.replace(".1.", ".0.")).words[:2])
    codes = source.matrix(name).float() / source.matrix(name).scales[0, 0]
    assert sorted(set(codes.round().flatten().int().tolist())) == list(range(-8, 8))


def test_a_sparse_file_opens_and_takes_no_more_room_than_its_tokenizer(tmp_path):
    spec = qwen_sized_tokenizer(1000)
    files.write_sparse_file(tmp_path / "s.nanoqwen", models.QWEN_7B, spec)
    opened = NanoqwenFile(tmp_path / "s.nanoqwen")
    assert opened.config == models.QWEN_7B
    assert opened.size > 3.9e9
    assert opened.tokenizer_spec() == spec
    assert xxhash.xxh3_64_hexdigest(opened.array("tokenizer")) == opened.sections["tokenizer"].xxh3
    if hasattr(os.stat_result, "st_blocks"):
        assert (tmp_path / "s.nanoqwen").stat().st_blocks * 512 < 1 << 20


def test_the_large_tokenizer_has_qwens_number_of_tokens_and_works():
    """151,643 bytes and merges and 22 control tokens: 151,665, as the 7B's tokenizer_config.json says."""
    spec = qwen_sized_tokenizer()
    assert len(spec["tokenizer"]["model"]["vocab"]) == TEXT_TOKENS == 151_643
    assert len(spec["tokenizer"]["model"]["merges"]) == TEXT_TOKENS - 256
    assert len(json.dumps(spec, ensure_ascii=False).encode()) > 5e6
    tokenizer = Tokenizer(spec)
    assert tokenizer.vocab_size == TEXT_TOKENS + CONTROL_TOKENS == 151_665
    made_up = "".join(tokenizer.token_text(token_id) for token_id in (300, 5000, 150_000))
    ids = tokenizer.encode(made_up)
    assert tokenizer.decode(ids) == made_up
    assert len(ids) < len(made_up)
    assert tokenizer.decode(tokenizer.encode("naïve 🙂\r\n12")) == "naïve 🙂\r\n12"


def test_the_large_tokenizer_is_the_same_each_time():
    assert qwen_sized_tokenizer(1000) == qwen_sized_tokenizer(1000)


def test_logits_agree_within_the_tolerance_and_no_further():
    source, ids = models.RandomSource(SMALL), [1, 2, 3, 4]
    right = reference_logits(source, ids)[-2:]
    slack = models.TOLERANCE * right.abs().amax(dim=-1).min()
    assert models.logits_agree(right, source, ids)
    worst = right.argmin(dim=-1)[0]
    for factor, verdict in ((0.9, True), (1.2, False)):
        found = right.clone()
        found[0, worst] -= factor * slack * right.abs().amax(dim=-1)[0] / right.abs().amax(dim=-1).min()
        assert models.logits_agree(found, source, ids) is verdict
    assert not models.logits_agree(right.roll(1, dims=0), source, ids)
    assert not models.logits_agree(right * math.nan, source, ids)


def test_tokens_agree_only_with_the_best_or_nearly_best():
    source, prompt = models.RandomSource(SMALL), [5, 6, 7]
    ids = []
    for _ in range(3):
        ids.append(int(reference_logits(source, prompt + ids)[-1, :256].argmax()))
    assert models.tokens_agree(ids, prompt, source, 256)
    assert not models.tokens_agree([*ids[:2], (ids[2] + 1) % 256], prompt, source, 256)
    assert not models.tokens_agree([], prompt, source, 256)


# The machine


def test_the_load_meter_counts_other_programs_and_not_this_one_or_its_children(monkeypatch):
    """In 10 s: 12 s of work on the machine, of which 4 s are ours and 3 s our children's: 0.5 cores for others."""
    Times = namedtuple("Times", "user system idle iowait steal guest guest_nice")
    readings = iter([Times(100, 50, 900, 5, 1, 40, 0), Times(108, 53, 906, 7, 2, 44, 0)])
    own = iter([(1.0, 0.5, 0.0, 0.0, 9.0), (4.0, 1.5, 2.0, 1.0, 9.0)])
    clock = iter([0.0, 10.0])
    monkeypatch.setattr(machine.psutil, "cpu_times", lambda: next(readings))
    monkeypatch.setattr(machine.psutil, "Process", lambda: SimpleNamespace(cpu_times=lambda: next(own)))
    monkeypatch.setattr(machine.time, "perf_counter", lambda: next(clock))
    assert machine.LoadMeter().read() == {"busy": True, "other_cores": 0.5}


def test_rates_of_the_machine_are_plausible():
    assert 1e8 < machine.read_bandwidth() < 1e13
    assert 1e8 < machine.matmul_flops(torch.float32) < 1e16
