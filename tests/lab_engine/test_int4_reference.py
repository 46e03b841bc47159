"""The fast INT4 code against the readable one: the same codes, scales and words, bit for bit."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lab_engine.int4 import GROUP, pack_words, quantize_groups, quantize_rows, unpack_words
from lab_engine.int4_reference import pack_word, quantize_group, unpack_word
from lab_engine.nanoqwen_file import LAYOUTS

seeds = st.integers(0, 2**32 - 1)


def generator(seed):
    return torch.Generator().manual_seed(seed)


def repeated(*weights):
    return lambda _: torch.tensor(weights).repeat(-(-GROUP // len(weights)))[:GROUP]


def lattice(largest, step):
    """Whole multiples of a step that fp16 holds."""
    return lambda seed: torch.randint(-largest, largest + 1, (GROUP,), generator=generator(seed)).float() * step


def outlier(seed):
    group = torch.randn(GROUP, generator=generator(seed)) * 0.02
    group[seed % GROUP] = 1.5
    return group


HARD = {
    "normal": lambda seed: torch.randn(GROUP, generator=generator(seed)) * 0.02,
    "heavy tails": lambda seed: torch.randn(GROUP, generator=generator(seed)) ** 3,
    "one sign": lambda seed: torch.rand(GROUP, generator=generator(seed)) * -0.1,
    "outlier": outlier,
    "zeros": repeated(0.0),
    "minus zero": repeated(-0.0),
    "scale 0 in fp16": repeated(1e-7, -1e-7),
    "smallest scale": repeated(3e-7, -3e-7, 1e-7),
    "subnormal scales": lambda seed: torch.randn(GROUP, generator=generator(seed)) * 1e-6,
    "largest negative": repeated(-0.4375, 0.43, 0.1),
    "both extremes": repeated(0.4375, -0.4375, 0.1),
    "both extremes, the negative first": repeated(-0.4375, 0.4375, 0.1),
    "scales near the end of fp16": repeated(450000.0, 1.0, -30000.0),
    "exact": lattice(7, 0.0625),
    "exact with small codes": lattice(2, 0.0123),
    "exact, one step": lattice(1, 3e-5),
    "halves of a step": lambda seed: (torch.randint(-15, 15, (GROUP,), generator=generator(seed)) + 0.5) * 0.03125,
}


@given(st.lists(st.tuples(st.sampled_from(sorted(HARD)), seeds), min_size=2, max_size=6))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_whole_matrices_are_quantized_as_group_by_group_by_hand(dtype, row):
    groups = torch.stack([HARD[kind](seed) for kind, seed in row])
    groups = groups.clamp(min=torch.finfo(dtype).min, max=torch.finfo(dtype).max).to(dtype)
    q, scales = quantize_rows(groups.reshape(1, -1))
    by_hand = [quantize_group(group) for group in groups.float()]
    assert torch.equal(q.reshape(-1, GROUP), torch.stack([codes for codes, _ in by_hand]))
    assert bits(scales[0]) == bits(torch.stack([scale for _, scale in by_hand]))


def bits(scales):
    return scales.view(torch.int16).tolist()


@given(st.sampled_from([1, 3, 8, 32, 100, 256]), seeds)
def test_groups_of_another_size_are_quantized_as_by_hand(size, seed):
    groups = torch.randn(3, size, generator=generator(seed)).bfloat16()
    q, scales = quantize_groups(groups)
    for found, found_scale, group in zip(q, scales, groups.float(), strict=True):
        codes, scale = quantize_group(group)
        assert torch.equal(found, codes)
        assert bits(found_scale[None]) == bits(scale[None])


def test_a_matrix_of_several_blocks_is_quantized_as_its_groups():
    """More than the 2**20 weights that are quantized at once, and more than one thread's share."""
    groups = torch.randn(9000, GROUP, generator=generator(3)) * 0.02
    groups[8190], groups[8193], groups[8999] = HARD["exact with small codes"](1), 0, HARD["both extremes"](0)
    q, scales = quantize_groups(groups)
    for at in (0, 1, 4500, *range(8188, 8196), 8998, 8999):
        codes, scale = quantize_group(groups[at])
        assert torch.equal(q[at], codes)
        assert bits(scales[at, None]) == bits(scale[None])


def test_an_exact_group_changes_no_other_group():
    """Its own coarse scale is tried for it alone, so a file does not depend on how a matrix is cut into pieces."""
    normal = torch.randn(500, GROUP, generator=generator(0))
    alone = quantize_groups(normal)
    beside = quantize_groups(torch.cat([normal, *(lattice(m, 0.5)(m)[None] for m in range(1, 7)), torch.zeros(1, 128)]))
    assert torch.equal(beside[0][:500], alone[0])
    assert torch.equal(beside[1][:500], alone[1])


@pytest.mark.parametrize("layout", LAYOUTS)
@given(codes=st.lists(st.integers(-8, 7), min_size=8, max_size=24).filter(lambda codes: len(codes) % 8 == 0))
def test_words_are_packed_as_by_hand_and_come_back(layout, codes):
    words = pack_words(torch.tensor([codes], dtype=torch.int8), layout)
    by_hand = [pack_word(codes[at : at + 8], layout) for at in range(0, len(codes), 8)]
    assert [word & 0xFFFFFFFF for word in words[0].tolist()] == by_hand
    assert [code for word in by_hand for code in unpack_word(word, layout)] == codes
    assert unpack_words(words, layout).tolist() == [codes]


def test_the_published_word_by_hand():
    toy = [-7, -1, 0, 3, 5, -4, 2, 7]
    assert pack_word(toy, "linear") == 0xFA4DB871
    assert pack_word(toy) == 0xF4B7AD81
    codes, scale = quantize_group(torch.tensor(toy) * 0.0625)
    assert codes.tolist() == toy
    assert scale == 0.0625
