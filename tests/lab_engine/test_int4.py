"""INT4: the published words, the groups that break careless quantizers, and the error that each method leaves."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lab_engine.errors import NanoqwenError
from lab_engine.int4 import (
    BYTES_PER_WEIGHT,
    GROUP,
    dequantize,
    dequantize_words,
    pack_words,
    quantize_groups,
    quantize_rows,
    round_to_scales,
    shuffle_words,
    unpack_words,
)
from lab_engine.nanoqwen_file import LAYOUTS

METHODS = ("absmax7", "absmax8", "search")
TOY = [-7, -1, 0, 3, 5, -4, 2, 7]
TOY_WEIGHTS = [-0.43, -0.07, 0.02, 0.19, 0.31, -0.25, 0.13, 0.4375]


def word(pattern: int) -> torch.Tensor:
    """A tensor (1, 1) that holds these 32 bits."""
    return torch.from_numpy(np.array([[pattern]], dtype=np.uint32).view(np.int32))


def pattern(words: torch.Tensor) -> int:
    """The 32 bits of a tensor of one word."""
    return int(words.numpy().view(np.uint32).item())


def group_of(*weights: float) -> torch.Tensor:
    """One row of one group that repeats these weights."""
    return torch.tensor(weights, dtype=torch.float32).repeat(-(-GROUP // len(weights)))[None, :GROUP]


def error(weight: torch.Tensor, method: str) -> torch.Tensor:
    """Squared error of each group, float64."""
    difference = dequantize(*quantize_rows(weight, method)).double() - weight.double()
    return difference.reshape(weight.shape[0], -1, GROUP).square().sum(dim=-1)


# Packing


@pytest.mark.parametrize(("layout", "published"), [("linear", 0xFA4DB871), ("value_shuffle", 0xF4B7AD81)])
def test_the_toy_codes_give_the_published_word(layout, published):
    codes = torch.tensor([TOY], dtype=torch.int8)
    assert pattern(pack_words(codes, layout)) == published
    assert torch.equal(unpack_words(word(published), layout), codes)


def test_the_bytes_of_the_toy_word_in_a_file_are_81_ad_b7_f4():
    assert pack_words(torch.tensor([TOY], dtype=torch.int8)).numpy().tobytes() == bytes.fromhex("81adb7f4")


@pytest.mark.parametrize(
    ("linear", "shuffled"), [(0x76543210, 0x75316420), (0x75316420, 0x73625140), (0xFA4DB871, 0xF4B7AD81)]
)
def test_the_shuffle_moves_even_weights_to_the_low_half(linear, shuffled):
    assert pattern(shuffle_words(word(linear))) == shuffled


def test_shuffling_three_times_gives_the_word_back():
    words = torch.randint(-(2**31), 2**31 - 1, (3, 5), dtype=torch.int32)
    assert not torch.equal(shuffle_words(words), words)
    assert torch.equal(shuffle_words(shuffle_words(shuffle_words(words))), words)


def test_shuffling_linear_words_equals_packing_shuffled():
    q = torch.randint(-8, 8, (3, 256), dtype=torch.int8)
    assert torch.equal(shuffle_words(pack_words(q, "linear")), pack_words(q, "value_shuffle"))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_all_sixteen_nibbles_mean_n_minus_8(layout):
    for nibble in range(16):
        assert unpack_words(word(0x11111111 * nibble), layout).tolist() == [[nibble - 8] * 8]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_negative_codes_neither_vanish_nor_smear(layout):
    first, second = ([*pair, 0, 0, 0, 0, 0, 0] for pair in ((-1, 3), (3, -1)))
    q = torch.tensor([first, second, [-8] * 8], dtype=torch.int8)
    words = pack_words(q, layout)
    assert words[0] != words[1]
    assert torch.equal(unpack_words(words, layout), q)
    every = torch.arange(-7, 8, dtype=torch.int8).repeat(8)[None]
    assert int((unpack_words(pack_words(every, layout), layout) < 0).sum()) == 7 * 8


@pytest.mark.parametrize("layout", LAYOUTS)
def test_unpacking_agrees_with_a_scalar_reader(layout):
    words = torch.randint(-(2**31), 2**31 - 1, (2, 3), dtype=torch.int32)
    codes = unpack_words(words, layout).reshape(2, 3, 8)
    for (row, column), bits in np.ndenumerate(words.numpy().view(np.uint32)):
        nibbles = [(int(bits) >> (4 * place)) & 15 for place in range(8)]
        for place, weight in enumerate(LAYOUTS[layout]):
            assert codes[row, column, weight] == nibbles[place] - 8


@pytest.mark.parametrize("value", [-9, 8, 15])
def test_a_code_outside_four_bits_is_refused(value):
    with pytest.raises(NanoqwenError, match=str(value)):
        pack_words(torch.full((1, 8), value, dtype=torch.int8))


@pytest.mark.parametrize("shape", [(8,), (2, 12), (1, 2, 8)])
def test_codes_of_another_shape_are_refused(shape):
    with pytest.raises(NanoqwenError, match="multiple of 8"):
        pack_words(torch.zeros(shape, dtype=torch.int8))


def test_an_unknown_layout_is_refused():
    for action in (
        lambda: pack_words(torch.zeros(1, 8, dtype=torch.int8), "tiled"),
        lambda: unpack_words(word(0), "tiled"),
    ):
        with pytest.raises(NanoqwenError, match="tiled"):
            action()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_dequantizing_words_equals_dequantizing_codes(dtype):
    """Bit for bit in float32; in 16 bits only the scale and the product may round."""
    q = torch.randint(-8, 8, (5, 384), dtype=torch.int8)
    scales = (torch.rand(5, 3) * 0.05 + 1e-3).half()
    exact = dequantize(q, scales)
    found = dequantize_words(pack_words(q), scales, torch.empty(q.shape, dtype=dtype))
    assert found.dtype == dtype
    assert found.shape == (5, 384)
    step = {torch.float32: 0.0, torch.bfloat16: 2**-7, torch.float16: 2**-10}[dtype]
    assert ((found.float() - exact).abs() <= step * exact.abs()).all()


# Quantizing


def test_the_toy_group_gives_the_published_scale_and_codes():
    q, scales = quantize_rows(group_of(*TOY_WEIGHTS), "absmax7")
    assert q[0, :8].tolist() == TOY
    assert scales.tolist() == [[0.0625]]
    assert scales.numpy().view(np.uint16).item() == 0x2C00


@pytest.mark.parametrize("method", METHODS)
def test_a_group_of_zeros_has_code_0_and_scale_0(method):
    q, scales = quantize_rows(torch.zeros(2, 256), method)
    assert not q.any()
    assert scales.tolist() == [[0, 0], [0, 0]]
    assert pattern(pack_words(q[:1, :8])) == 0x88888888


@pytest.mark.parametrize("method", METHODS)
def test_weights_below_fp16s_scales_become_codes_0_not_nan(method):
    q, scales = quantize_rows(group_of(1e-7, -1e-7), method)
    if scales.item() == 0:
        assert not q.any()
    assert (dequantize(q, scales).abs() <= 2e-7).all()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("size", [1, 32, 64, 128, 384])
def test_groups_of_any_size_are_quantized_each_for_itself(method, size):
    groups = torch.randn(2, 3, size, generator=torch.Generator().manual_seed(0)) * 0.05
    q, scales = quantize_groups(groups, method)
    assert (q.dtype, scales.dtype) == (torch.int8, torch.float16)
    assert (q.shape, scales.shape) == (groups.shape, (2, 3))
    alone = quantize_groups(groups[1, 2], method)
    assert torch.equal(q[1, 2], alone[0])
    assert torch.equal(scales[1, 2], alone[1])


@pytest.mark.parametrize("method", METHODS)
def test_rows_are_quantized_as_their_groups_of_128(method):
    weight = torch.randn(3, 384, generator=torch.Generator().manual_seed(0))
    q, scales = quantize_groups(weight.reshape(3, 3, GROUP), method)
    rows = quantize_rows(weight, method)
    assert torch.equal(rows[0], q.reshape(3, 384))
    assert torch.equal(rows[1], scales)


def test_codes_for_a_given_scale_use_the_scale_that_the_file_holds():
    """0.1 is stored as 0.0999756: 0.25 is 2.5006 steps of that, and 2.5 of 0.1, which rounds to 2."""
    q, scales = round_to_scales(torch.tensor([[0.0, 0.1, 0.25, 2.0, -2.0], [1.0] * 5]), torch.tensor([0.1, 1e-9]))
    assert scales.tolist() == [0.0999755859375, 0.0]
    assert q.tolist() == [[0, 1, 3, 7, -8], [0] * 5]


def test_a_given_scale_over_65504_is_refused():
    with pytest.raises(NanoqwenError, match="65504"):
        round_to_scales(torch.ones(1, 8), torch.tensor([7e4]))


def test_a_scale_that_fp16_rounds_up_shrinks_the_codes():
    """3e-7 / 7 is stored as 5.96e-8: the code that comes closest is 5, and 7 would read back as 4.2e-7."""
    q, scales = quantize_rows(group_of(3e-7, -3e-7), "absmax7")
    assert scales.float().item() == 2.0**-24
    assert q[0, :2].tolist() == [5, -5]


@pytest.mark.parametrize("method", METHODS)
def test_a_tiny_group_does_not_hide_behind_a_large_one(method):
    weight = torch.cat([group_of(0.4375, -0.2), group_of(0.004, -0.002)], dim=1)
    q, scales = quantize_rows(weight, method)
    assert (q != 0).all()
    assert scales[0, 0].abs() > 50 * scales[0, 1].abs()


def test_the_largest_weight_that_fits_is_accepted_and_a_larger_one_refused():
    assert dequantize(*quantize_rows(group_of(458528.0, 1.0), "absmax7")).max() == 458528
    for method in METHODS:
        with pytest.raises(NanoqwenError, match="65504"):
            quantize_rows(group_of(-4.6e5 * 2, 1.0), method)
    with pytest.raises(NanoqwenError, match="65504"):
        quantize_rows(group_of(4.6e5, 1.0), "absmax7")
    with pytest.raises(NanoqwenError, match="65504"):
        quantize_rows(group_of(4.6e5, 1.0), "search")


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("method", METHODS)
def test_a_weight_that_is_not_finite_is_refused(method, bad):
    weight = torch.ones(3, 256)
    weight[1, 200] = bad
    with pytest.raises(NanoqwenError, match="NaN or inf"):
        quantize_rows(weight, method)


@pytest.mark.parametrize("shape", [(8, 192), (8, 64), (8, 1), (8, 288), (128,), (0, 128), (2, 0), (1, 2, 128)])
def test_a_shape_that_has_no_whole_groups_is_refused(shape):
    with pytest.raises(NanoqwenError, match="multiple of 128"):
        quantize_rows(torch.ones(shape))


@pytest.mark.parametrize("groups", [torch.tensor(0.5), torch.ones(3, 0), torch.ones(0)], ids=["0-d", "(3, 0)", "(0,)"])
@pytest.mark.parametrize("action", [quantize_groups, lambda groups: round_to_scales(groups, torch.ones(3))])
def test_groups_without_a_weight_are_refused_with_their_shape(action, groups):
    with pytest.raises(NanoqwenError) as error:
        action(groups)
    assert str(error.value) == f"groups of shape {tuple(groups.shape)}: expected (..., g) with g at least 1"


@pytest.mark.parametrize(
    "action", [quantize_rows, quantize_groups, lambda groups: round_to_scales(groups, torch.ones(1))]
)
def test_what_is_no_tensor_is_refused_by_its_type(action):
    with pytest.raises(NanoqwenError, match=r"^weights: found list, expected a tensor$"):
        action([[0.5] * 128])


def test_no_groups_give_no_codes():
    q, scales = quantize_groups(torch.ones(2, 0, 8))
    assert (q.shape, scales.shape) == ((2, 0, 8), (2, 0))


@pytest.mark.parametrize("method", METHODS)
def test_a_layer_s_own_weight_which_wants_a_gradient_is_quantized_as_its_values(method):
    weight = torch.nn.Linear(128, 4).weight
    assert weight.requires_grad
    for found, expected in zip(quantize_rows(weight, method), quantize_rows(weight.detach(), method), strict=True):
        assert torch.equal(found, expected)
        assert not found.requires_grad


def test_codes_for_given_scales_need_no_gradient_either():
    weight = torch.nn.Linear(8, 2).weight
    scales = weight.abs().amax(dim=-1) / 7
    q, stored = round_to_scales(weight, scales)
    assert torch.equal(q, round_to_scales(weight.detach(), scales.detach())[0])
    assert not stored.requires_grad


def test_an_unknown_method_is_refused():
    with pytest.raises(NanoqwenError, match="absmax9"):
        quantize_rows(torch.ones(1, 128), "absmax9")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("sign", [1, -1])
def test_a_one_sided_group_keeps_its_sign_and_its_largest_weight(method, sign):
    weight = sign * torch.linspace(0.01, 0.5, GROUP)[None]
    q, scales = quantize_rows(weight, method)
    back = dequantize(q, scales)
    assert (back * sign >= 0).all()
    assert back[0, -1].item() == pytest.approx(sign * 0.5, rel=0.1)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_any_floating_dtype_is_quantized_as_its_float32_value(dtype):
    weight = (torch.randn(4, 256, generator=torch.Generator().manual_seed(1)) * 0.05).to(dtype)
    for found, expected in zip(quantize_rows(weight), quantize_rows(weight.float()), strict=True):
        assert torch.equal(found, expected)


def test_the_error_of_normal_weights_falls_from_method_to_method():
    """11.7 % is what step / sqrt(12) gives for max|w| = 2.83 sigma; -8 at the extreme saves an eighth of it."""
    weight = torch.randn(256, 2048, generator=torch.Generator().manual_seed(0)) * 0.02
    relative = {m: float((error(weight, m).sum() / weight.double().square().sum()).sqrt()) for m in METHODS}
    assert relative["absmax7"] == pytest.approx(0.117, abs=0.001)
    assert relative["absmax8"] == pytest.approx(0.103, abs=0.001)
    assert relative["search"] < 0.97 * relative["absmax8"]


@given(
    st.integers(0, 2**32 - 1), st.sampled_from([1e-6, 1e-3, 0.05, 10.0]), st.sampled_from(["normal", "heavy", "flat"])
)
def test_the_search_is_never_worse_than_the_plain_scale_in_any_group(seed, scale, kind):
    generator = torch.Generator().manual_seed(seed)
    normal = torch.randn(4, 256, generator=generator) * scale
    weight = {"normal": normal, "heavy": normal**3, "flat": torch.rand(4, 256, generator=generator) * scale}[kind]
    assert (error(weight, "search") <= error(weight, "absmax7") * (1 + 1e-5)).all()


fp16_scale = st.floats(2.0**-24, 60000.0, width=16) | st.floats(-60000.0, -(2.0**-24), width=16)


@given(st.lists(st.integers(-8, 7), min_size=GROUP, max_size=GROUP), fp16_scale)
def test_weights_that_int4_holds_exactly_come_back_exactly(codes, scale):
    weight = torch.tensor([codes], dtype=torch.float32) * scale
    if weight.abs().max() <= 7 * 65504:
        assert torch.equal(dequantize(*quantize_rows(weight)), weight)


@given(st.integers(1, 8), st.integers(0, 2**32 - 1), fp16_scale)
def test_exact_groups_of_small_codes_come_back_exactly(largest, seed, scale):
    """Codes that use only a few of the 16 levels: max / 7 is not their step, so the plain scale loses them."""
    generator = torch.Generator().manual_seed(seed)
    codes = torch.randint(-largest, min(largest, 7) + 1, (2, GROUP), generator=generator)
    weight = codes.float() * scale
    if weight.abs().max() <= 7 * 65504:
        assert torch.equal(dequantize(*quantize_rows(weight)), weight)


def test_a_weight_takes_0_515625_bytes():
    q, scales = quantize_rows(torch.randn(4, 512))
    assert (pack_words(q).nbytes + scales.nbytes) / q.numel() == BYTES_PER_WEIGHT == 0.515625
