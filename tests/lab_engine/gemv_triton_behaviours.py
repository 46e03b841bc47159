"""What the GEMV's Triton rungs do: on a GPU where there is one, else in Triton's interpreter.

They run in a process of their own, from test_gemv_triton.py: the interpreter has to be chosen before Triton is
imported. On a GPU: `pytest tests/lab_engine/gemv_triton_behaviours.py`.
"""

import os

os.environ.setdefault("CUDA_CACHE_DISABLE", "1")  # before torch: the driver would keep code in the home folder

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lab_engine.errors import NanoqwenError
from lab_engine.int4 import pack_words

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
RUNGS = ["triton_naive", "triton_coalesced", "triton_best"]
NAN, INF = float("nan"), float("inf")


def gemv(name, words, scales, x):
    from lab_engine.kernels.gemv_triton import load

    return load(name, words, scales)(x)


def case(n, k, seed=0, fill=NAN):
    """Random codes int8 (n, k), words, scales and x; `fill` (words: all bits) lies before and behind each."""
    generator = torch.Generator().manual_seed(seed)
    q = torch.randint(-8, 8, (n, k), generator=generator, dtype=torch.int8)
    scales = 0.02 + 0.1 * torch.rand(n, k // 128, generator=generator)
    scales = (scales * torch.randint(0, 2, scales.shape, generator=generator).mul(2).sub(1)).half()
    x = torch.randn(k, generator=generator).half()
    return q, framed(pack_words(q), -1), framed(scales, fill), framed(x, fill)


def framed(tensor, fill, margin=4096):
    """`tensor` as a view into the middle of memory that holds `fill`."""
    memory = torch.full((tensor.numel() + 2 * margin,), fill, dtype=tensor.dtype, device=DEVICE)
    view = memory[margin : margin + tensor.numel()].view(tensor.shape)
    view.copy_(tensor)
    return view


def error(y, q, scales, x):
    """||y - float64|| / ||float64||; computed from the codes, not from the words."""
    expected = (q.double() * scales.cpu().double().repeat_interleave(128, dim=1)) @ x.cpu().double()
    return float((y.cpu().double() - expected).norm() / expected.norm())


SMALL, LARGE = [(1, 128), (7, 256), (8, 384), (33, 640)], [(33, 1024), (2, 3584), (9, 4096 + 128)]


@pytest.mark.parametrize(
    ("name", "n", "k"), [(name, *shape) for name in RUNGS for shape in SMALL + LARGE * (name != RUNGS[0])]
)
def test_every_shape_equals_float64(name, n, k):
    """One group, K below, at and above what a turn of a loop covers; rows below, at and above a program's."""
    q, words, scales, x = case(n, k, seed=n)
    y = gemv(name, words, scales, x)
    assert (y.shape, y.dtype) == ((n,), torch.float32)
    assert error(y, q, scales, x) < 1e-5


@settings(max_examples=12, deadline=None, derandomize=True, database=None)
@given(n=st.integers(1, 40), groups=st.integers(1, 12), seed=st.integers(0, 99))
@pytest.mark.parametrize("name", RUNGS[1:])
def test_any_number_of_rows_and_groups_equals_float64(name, n, groups, seed):
    q, words, scales, x = case(n, 128 * groups, seed)
    assert error(gemv(name, words, scales, x), q, scales, x) < 1e-5


@pytest.mark.parametrize("name", RUNGS)
def test_each_code_in_each_place_of_a_word_is_read_exactly(name):
    """Row r holds code r - 8 everywhere; x is a single 1, at each of the first 32 places: four words."""
    q = torch.arange(-8, 8, dtype=torch.int8)[:, None].expand(16, 128).contiguous()
    words, scales = pack_words(q).to(DEVICE), torch.ones(16, 1, dtype=torch.float16, device=DEVICE)
    for place in range(32):
        x = torch.zeros(128, dtype=torch.float16, device=DEVICE)
        x[place] = 1
        assert gemv(name, words, scales, x).tolist() == list(range(-8, 8))


@pytest.mark.parametrize("name", RUNGS)
@pytest.mark.parametrize("fill", [NAN, INF, 6e4])
def test_what_lies_around_the_tensors_never_matters(name, fill):
    _, *framed_in_it = case(9, 640, fill=fill)
    _, *framed_in_zeros = case(9, 640, fill=0.0)
    assert torch.equal(gemv(name, *framed_in_it), gemv(name, *framed_in_zeros))


@pytest.mark.parametrize("name", RUNGS)
def test_two_runs_are_equal_to_the_bit(name):
    _, words, scales, x = case(33, 1280)
    assert torch.equal(gemv(name, words, scales, x), gemv(name, words, scales, x))


@pytest.mark.parametrize("name", RUNGS)
def test_sums_beyond_float16_are_kept_in_float32(name):
    """128 · 7 · 60,000 is 820 times the largest float16."""
    q = torch.full((3, 128), 7, dtype=torch.int8)
    words, scales = pack_words(q).to(DEVICE), torch.ones(3, 1, dtype=torch.float16, device=DEVICE)
    x = torch.full((128,), 6e4, dtype=torch.float16, device=DEVICE)
    assert gemv(name, words, scales, x).tolist() == pytest.approx([128 * 7 * 6e4] * 3, rel=1e-6)


@pytest.mark.parametrize("name", RUNGS)
def test_nan_in_x_is_not_hidden(name):
    _, words, scales, x = case(9, 640)
    x[639] = NAN
    assert gemv(name, words, scales, x).isnan().all()


@pytest.mark.parametrize("name", RUNGS)
def test_a_scale_of_zero_makes_its_group_nothing(name):
    q, words, scales, x = case(9, 256)
    scales[:, 1] = 0
    assert error(gemv(name, words, scales, x), q, scales, x) < 1e-5


# Refused, each in one line


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({0: lambda w: w.long()}, r"words: found \(9, 80\) torch\.int64 .*, expected \(9, 80\) torch\.int32"),
        ({0: lambda w: w[:, :-1]}, r"words: found \(9, 79\) .*, expected \(9, 80\)"),
        ({0: lambda w: w.T.contiguous().T}, r"words: expected contiguous memory; pass words\.contiguous\(\)"),
        ({1: lambda s: s.float()}, r"scales: found .*float32.*, expected .*float16"),
        ({1: lambda s: s[0]}, r"scales: found \(5,\), expected \(n, k / 128\)"),
        ({1: lambda s: s[:0]}, r"scales: found \(0, 5\), expected \(n, k / 128\), neither of them 0"),
        ({2: lambda x: x.float()}, r"x: found .*float32.*, expected \(640,\) torch\.float16"),
        ({2: lambda x: x[:-128]}, r"x: found \(512,\) .*, expected \(640,\)"),
    ],
)
def test_tensors_that_a_kernel_would_misread_are_refused(changed, words):
    arguments = list(case(9, 640)[1:])
    for place, change in changed.items():
        arguments[place] = change(arguments[place])
    with pytest.raises(NanoqwenError, match=words) as caught:
        gemv("triton_best", *arguments)
    assert "\n" not in str(caught.value)


def test_an_unknown_rung_is_told_the_known_ones():
    with pytest.raises(NanoqwenError, match="'fastest': expected one of triton_naive, triton_coalesced, triton_best"):
        gemv("fastest", *case(1, 128)[1:])
