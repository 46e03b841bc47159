"""What paged attention in Triton does: on a GPU where there is one, else in Triton's interpreter.

They run in a process of their own, from test_paged_attention_triton.py: the interpreter has to be chosen before Triton
is imported. On a GPU: `pytest tests/lab_engine/triton_behaviours.py`, which tests bfloat16 as well.
"""

import math
import os
from dataclasses import replace

os.environ.setdefault("CUDA_CACHE_DISABLE", "1")  # before torch: the driver would keep code in the home folder

import pytest
import torch

from lab_engine.attention_gpu import largest_errors, random_batch
from lab_engine.bench.models import QWEN_7B
from lab_engine.errors import NanoqwenError
from lab_engine.kv_pages import KVCache
from lab_engine.paged_attention import paged_attention
from tests.lab_engine.dense_attention import dense_attention, random_case

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPES = [torch.float32, torch.float16, *([torch.bfloat16] if DEVICE == "cuda" else [])]
TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-3}
LENGTHS = [1, 15, 16, 17, 31, 32, 33, 40, 56, 100]
INF = math.inf


def attend(*arguments, **keywords):
    from lab_engine.kernels.paged_attention_triton import paged_attention_triton

    return paged_attention_triton(*arguments, **keywords)


def batch(lengths=LENGTHS, heads=(2, 1), head_dim=64, dtype=torch.float32, **keywords):
    return random_batch(lengths, heads, head_dim, dtype, device=DEVICE, **keywords)


def is_right(given, num_splits=None):
    out, lse = attend(*given.arguments, num_splits=num_splits)
    assert out.dtype == lse.dtype == torch.float32
    assert all(error <= TOLERANCE[given.q.dtype] for error in largest_errors(given, out, lse))
    return True


@pytest.fixture
def garbage(monkeypatch):
    """Fresh memory holds NaN, as a part that nobody wrote may."""
    empty, empty_like = torch.empty, torch.empty_like
    monkeypatch.setattr(torch, "empty", lambda *size, **keywords: empty(*size, **keywords).fill_(math.nan))
    monkeypatch.setattr(torch, "empty_like", lambda tensor: empty_like(tensor).fill_(math.nan))


@pytest.mark.parametrize("num_splits", [1, 2, 4, 8])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("head_dim", [64, 128])
def test_every_length_equals_float64_for_every_number_of_splits(garbage, head_dim, dtype, num_splits):
    """Of eight splits, seven are empty for a length of one page."""
    assert is_right(batch(head_dim=head_dim, dtype=dtype), num_splits)


@pytest.mark.parametrize("spoiled", [0, 1])
def test_nan_in_one_output_or_in_one_lse_is_noticed(monkeypatch, spoiled):
    """Else no other test here would say much: max of (1e-6, NaN) is 1e-6."""
    given = batch([5, 40])
    found = attend(*given.arguments)
    monkeypatch.setitem(globals(), "attend", lambda *_, **__: found)
    assert is_right(given)
    found[spoiled][1, 0] = math.nan
    with pytest.raises(AssertionError):
        is_right(given)


@pytest.mark.parametrize(("ratio", "num_splits"), [(7, 1), (2, 2), (1, 4), (1, 8)])
def test_every_length_up_to_forty_equals_float64(ratio, num_splits):
    assert is_right(batch(range(1, 41), (ratio, 1), 16), num_splits)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("head_dim", [16, 32])
def test_small_heads_equal_float64(head_dim, dtype):
    assert is_right(batch([17, 40], head_dim=head_dim, dtype=dtype), num_splits=2)


@pytest.mark.parametrize("length", LENGTHS)
def test_one_sequence_equals_float64_without_pages(length):
    case = random_case(length, num_heads=3, num_kv_heads=1)
    table = torch.tensor([case.page_table], dtype=torch.int32)
    given = (case.q, case.k_pages, case.v_pages, table, torch.tensor([length], dtype=torch.int32))
    out, lse = (found.cpu() for found in attend(*(tensor.to(DEVICE) for tensor in given), num_splits=2))
    expected, expected_lse = dense_attention(case.q, case.k, case.v)
    assert (out - expected).abs().max() < 1e-5
    assert (lse - expected_lse).abs().max() < 1e-5


@pytest.mark.parametrize("fill", [math.nan, INF, -INF, 3e38, 0.0])
def test_what_slots_without_a_token_hold_never_matters(fill):
    """NaN of an empty slot would pass a multiplication by 0."""
    out, expected = (attend(*batch([1, 15, 33], fill=one).arguments, num_splits=2)[0] for one in (fill, 1.0))
    assert torch.equal(out, expected)


@pytest.mark.parametrize("ratio", [1, 2, 5, 6, 7, 8])
@pytest.mark.parametrize("head_dim", [64, 128])
def test_groups_of_any_size_share_a_product(ratio, head_dim):
    """Its 16 rows are more than a group has; the rows beyond it belong to nobody."""
    assert is_right(batch([17, 40], (2 * ratio, 2), head_dim, seed=ratio), num_splits=2)


@pytest.mark.parametrize("seed", range(4))
def test_pages_lie_in_any_order(seed):
    given = batch([100, 33], seed=seed)
    assert given.page_tables[0].diff().ne(1).any()
    assert is_right(given)


def test_an_empty_sequence_gives_zeros_and_the_others_are_right(garbage):
    given = batch([0, 5, 0, 33])
    out, lse = attend(*given.arguments, num_splits=2)
    assert (out[[0, 2]] == 0).all()
    assert (lse[[0, 2]] == -INF).all()
    assert is_right(given, num_splits=2)


def test_two_runs_are_equal_to_the_bit():
    given = batch([56, 100])
    first, second = (attend(*given.arguments, num_splits=4) for _ in range(2))
    assert torch.equal(first[0], second[0])
    assert torch.equal(first[1], second[1])


def test_nan_in_a_token_that_counts_is_not_hidden():
    given = batch([33])
    given.k_pages[0, given.page_tables[0, 1], 3] = math.nan
    assert attend(*given.arguments, num_splits=2)[0].isnan().all()


def test_the_padding_of_a_table_is_never_used():
    given = batch([1, 16, 56])
    expected = attend(*given.arguments)[0]
    for table, length in zip(given.page_tables, given.lengths.tolist(), strict=True):
        table[-(-length // 16) :] = 1 << 30
    assert torch.equal(attend(*given.arguments)[0], expected)


@pytest.mark.parametrize("scale", [0.0, 100.0])
def test_equal_and_extreme_scores_equal_float64(scale):
    given = batch([100])
    given.q.mul_(scale)
    out, lse = attend(*given.arguments, num_splits=4)
    error, lse_error = largest_errors(given, out, lse)
    assert error < 1e-4
    assert lse_error < 1e-6 * max(1.0, float(lse.abs().max()))


@pytest.mark.parametrize(("num_splits", "tolerance"), [(1, 1e-6), (2, 1e-4)])
def test_scores_beyond_float16_are_kept_in_float32(num_splits, tolerance):
    """30 * 20 in 128 dimensions: a product of 76,800, where float16 ends at 65,504; times the scale, 6788.

    A lse of that size is rounded to 2e-4, and so are the weights of two splits.
    """
    given = batch([40], head_dim=128, dtype=torch.float16)
    given.q.fill_(30)
    given.k_pages[~given.k_pages.isnan()] = 20
    out, lse = attend(*given.arguments, num_splits=num_splits)
    error, lse_error = largest_errors(given, out, lse)
    assert error < tolerance
    assert lse_error < 1e-6 * 6788
    assert lse[0].tolist() == pytest.approx([76_800 / math.sqrt(128) + math.log(40)] * 2, rel=1e-6)


@pytest.mark.parametrize("num_splits", [None, 2])
def test_no_sequences_give_empty_tensors(num_splits):
    config = replace(QWEN_7B, num_layers=1)
    cache = KVCache(config, num_pages=1, dtype=torch.float16, device=DEVICE)
    q = torch.empty(0, config.num_q_heads, config.head_dim, dtype=torch.float16, device=DEVICE)
    out, lse = attend(q, *cache.data[0], *cache.tables([]), num_splits=num_splits)
    assert (out.shape, lse.shape) == ((0, 28, 128), (0, 28))
    assert out.dtype == lse.dtype == torch.float32


def test_sequences_without_a_page_give_zeros():
    """Tables without a column, as KVCache.tables gives them for sequences that are all empty."""
    given = replace(batch([0, 0]), page_tables=torch.zeros(2, 0, dtype=torch.int32, device=DEVICE))
    out, lse = attend(*given.arguments)
    assert (out == 0).all()
    assert (lse == -INF).all()


def test_it_reads_a_kv_cache_as_it_is_and_agrees_with_the_readable_form():
    """Without a copy: the planes of a layer, and the tables of three sequences."""
    config = replace(QWEN_7B, num_layers=2)
    cache = KVCache(config, num_pages=9, dtype=torch.float32, device=DEVICE)
    cache.data.normal_()
    sequences = [cache.new_sequence() for _ in range(3)]
    for length, sequence in zip((40, 1, 17), sequences, strict=True):
        cache.append(sequence, length)
    q = torch.randn(3, config.num_q_heads, config.head_dim, device=DEVICE)
    tables, lengths = (tensor.to(DEVICE) for tensor in cache.tables(sequences))
    k_pages, v_pages = cache.data[1]
    out, _ = attend(q, k_pages, v_pages, tables, lengths)
    for row, sequence in enumerate(sequences):
        planes = q[row : row + 1].cpu(), k_pages.cpu(), v_pages.cpu()
        expected, _ = paged_attention(*planes, list(sequence.page_table), sequence.length)
        assert torch.allclose(out[row].cpu(), expected[0], atol=1e-5)


# Refused, each in one line


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"q": lambda q: q.long()}, r"q: found torch\.int64, expected float32"),
        ({"k_pages": lambda k: k.half()}, r"k_pages: found .*float16.*, expected .*float32"),
        ({"v_pages": lambda v: v[:, :, :8]}, r"v_pages: found \(1, \d+, 8, 64\).*, expected \(1, \d+, 16, 64\)"),
        ({"page_tables": lambda t: t.long()}, r"page_tables: found .*int64.*, expected .*int32"),
        ({"lengths": lambda n: n[:1]}, r"lengths: found \(1,\).*, expected \(2,\)"),
        ({"q": lambda q: q.transpose(0, 1).contiguous().transpose(0, 1)}, r"q: .*contiguous"),
        ({"q": lambda q: q[:, :0]}, r"0 query heads"),
        ({"k_pages": lambda k: k[:0], "v_pages": lambda v: v[:0]}, r"k_pages: found 0 KV heads, expected 1 or more"),
        ({"q": lambda q: q[0]}, r"q, k_pages and page_tables: found \(2, 64\), .*, expected 3, 4 and 2 dimensions"),
    ],
)
def test_arguments_that_the_kernel_would_misread_are_refused(changed, words):
    arguments = dict(vars(batch([5, 20])))
    for name, change in changed.items():
        arguments[name] = change(arguments[name])
    with pytest.raises(NanoqwenError, match=words) as caught:
        attend(**arguments)
    assert "\n" not in str(caught.value)


def test_heads_that_do_not_fit_are_refused():
    with pytest.raises(NanoqwenError, match="3 query heads: expected 1 to 16 for each of the 2 KV heads"):
        attend(*batch([5], heads=(3, 2)).arguments)
    for head_dim in (8, 48, 256):
        with pytest.raises(NanoqwenError, match=rf"head_dim: found {head_dim}, expected one of \(16, 32, 64, 128\)"):
            attend(*batch([5], head_dim=head_dim).arguments)
    with pytest.raises(NanoqwenError, match="num_splits: found 0"):
        attend(*batch([5]).arguments, num_splits=0)


@pytest.mark.skipif(DEVICE == "cuda", reason="a GPU computes bfloat16")
def test_bfloat16_is_refused_by_the_interpreter_which_would_get_it_wrong():
    with pytest.raises(NanoqwenError, match="bfloat16 as integers"):
        attend(*batch([5], dtype=torch.bfloat16).arguments)
