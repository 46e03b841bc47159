"""What INT4 costs: errors against float64 and theory, bytes counted by hand, and a stored table that is not stale."""

import re

import numpy as np
import pytest
import torch

from lab_engine import data_path, int4_costs
from lab_engine.checkpoint import Checkpoint
from lab_engine.errors import FileFormatError, NanoqwenError
from lab_engine.int4 import dequantize, quantize_rows
from lab_engine.int4_costs import (
    INT8,
    MATRICES,
    VARIANTS,
    Variant,
    bytes_per_weight,
    load_costs,
    matrix_errors,
    normal_error,
    relative_error,
    total_error,
)
from tools.bootstrap import ROOT
from tools.measure_int4 import MODEL, checkpoint_hash, print_costs, table_text

SEARCH = Variant(4, "search")


@pytest.fixture(scope="module")
def shipped():
    return Checkpoint(data_path(MODEL))


def weights(rows=3, k=384):
    return torch.randn(rows, k, generator=torch.Generator().manual_seed(5)) * 0.03


# Variants


@pytest.mark.parametrize("method", ["absmax7", "absmax8", "search"])
def test_groups_of_128_are_what_the_file_holds(method):
    assert torch.equal(Variant(4, method).apply(weights()), dequantize(*quantize_rows(weights(), method)))


@pytest.mark.parametrize("group", [32, 64, 128, 384])
def test_absmax7_equals_a_computation_in_float64(group):
    exact = weights().double().numpy().reshape(3, -1, group)
    scales = (np.abs(exact).max(axis=-1, keepdims=True).astype(np.float32) / 7).astype(np.float16).astype(np.float64)
    expected = np.clip(np.round(exact / scales), -8, 7) * scales
    found = Variant(4, "absmax7", None if group == 384 else group).apply(weights())
    np.testing.assert_allclose(found.numpy(), expected.reshape(3, 384), rtol=1e-6)


def test_int8_has_127_levels_on_each_side_and_keeps_zeros():
    weight = torch.cat([torch.linspace(-0.5, 0.5, 128)[None], torch.zeros(1, 128)])
    found = INT8.apply(weight)
    step = float(np.float16(0.5 / 127))
    assert (found - weight).abs().max() <= step * 0.51
    assert len(found[0].unique()) == 128
    assert not found[1].any()


@pytest.mark.parametrize(("group", "scales"), [(32, 60), (64, 30), (128, 15), (None, 5)])
def test_five_rows_of_384_take_960_bytes_of_nibbles_and_two_for_each_scale(group, scales):
    assert Variant(4, "search", group).bytes_of(5, 384) == 960 + 2 * scales


def test_int8_takes_a_byte_and_two_for_each_scale():
    assert INT8.bytes_of(2, 256) == 2 * 256 + 2 * 2 * 2


def test_a_row_that_has_no_whole_groups_is_refused_with_its_shape():
    with pytest.raises(NanoqwenError, match=r"\(3, 96\): expected \(rows, k\) with k a multiple of 64"):
        Variant(4, "search", 64).apply(weights(3, 96))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((3, "search"), "bits: found 3, expected 4 or 8"),
        (("4", "search"), "bits: found '4', expected 4 or 8"),
        ((8, "search"), "method of INT8: found 'search', expected absmax127"),
        ((4, "absmax127"), "method of INT4: found 'absmax127', expected absmax7 or absmax8 or search"),
        ((4, "search", 0), "group: found 0, expected a number of weights, or None for a whole row"),
        ((4, "search", -32), "group: found -32, expected a number of weights, or None for a whole row"),
        ((4, "search", 12.8), "group: found 12.8, expected a number of weights, or None for a whole row"),
    ],
)
def test_a_variant_that_there_is_not_is_refused_with_what_there_is(arguments, message):
    with pytest.raises(NanoqwenError) as error:
        Variant(*arguments)
    assert str(error.value) == message


@pytest.mark.parametrize("variant", [INT8, SEARCH], ids=lambda variant: variant.name)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1e38])
def test_weights_that_no_scale_of_fp16_reaches_are_refused_whatever_the_bits(variant, bad):
    weight = weights()
    weight[1, 200] = bad
    with pytest.raises(NanoqwenError, match=r"NaN or inf|65504|no finite fp16 number"):
        variant.apply(weight)


@pytest.mark.parametrize("shape", [(384,), (1, 2, 128), (0, 128), (2, 0)])
def test_a_weight_that_is_no_matrix_is_refused_with_its_shape(shape):
    with pytest.raises(NanoqwenError, match=rf"^weight of shape {re.escape(str(shape))}: expected \(rows, k\)$"):
        Variant(8, "absmax127", None).apply(torch.ones(shape))


def test_the_relative_error_is_rms_over_rms():
    assert relative_error(torch.tensor([3.0, 4.0]), torch.tensor([3.0, 3.5])) == pytest.approx(0.1)
    assert relative_error(torch.zeros(2), torch.zeros(2)) == 0


# The shipped model


def test_every_matrix_of_every_layer_has_an_error(shipped):
    errors = matrix_errors(shipped)
    layers = [(layer, matrix) for layer in range(6) for matrix in MATRICES]
    assert [(one.layer, one.matrix) for one in errors] == [*layers, (None, "embed")]
    weight = shipped.tensor("model.layers.3.self_attn.v_proj.weight").double()
    back = dequantize(*quantize_rows(weight.float())).double()
    found = next(one.error for one in errors if (one.layer, one.matrix) == (3, "v"))
    assert found == pytest.approx(float(((back - weight) ** 2).mean().sqrt() / (weight**2).mean().sqrt()), rel=1e-9)


def test_the_total_is_that_of_all_weights_in_one_list(shared_checkpoint):
    source = Checkpoint(shared_checkpoint)
    names = [name for name, shape in source.shapes.items() if len(shape) == 2 and "lm_head" not in name]
    everything = torch.cat([source.tensor(name).flatten() for name in names])
    back = torch.cat([SEARCH.apply(source.tensor(name)).flatten() for name in names])
    assert total_error(source, SEARCH) == pytest.approx(relative_error(everything, back), rel=1e-9)


# Theory


@pytest.mark.parametrize(
    ("method", "group", "published"),
    [("absmax7", 128, "11.7%"), ("absmax7", 64, "10.8%"), ("absmax7", 32, "9.7%"), ("absmax8", 128, "10.3%")],
)
def test_normal_weights_have_the_error_that_the_documents_quote(method, group, published):
    assert f"{normal_error(method, group):.1%}" == published
    assert published.replace("%", " %") in (ROOT / "docs" / "int4_scales.md").read_text()


def test_a_step_over_the_root_of_twelve_is_nearly_the_error():
    """max|w| of 128 normal weights is 2.83 sigma on average; the step is a seventh of it."""
    assert normal_error() == pytest.approx(2.83 / 7 / 12**0.5, rel=0.02)


# The stored table


def test_the_table_was_made_from_todays_checkpoint():
    """A red test here: run `python -m tools.measure_int4`."""
    assert load_costs().provenance["checkpoint"] == {"name": MODEL, "sha256": checkpoint_hash(data_path(MODEL))}


def test_the_table_has_a_row_for_every_variant_and_says_how_it_was_made():
    costs = load_costs()
    assert tuple(cost.variant for cost in costs.rows) == VARIANTS
    assert {"date", "command", "python", "torch", "seconds", "checkpoint", "text"} == set(costs.provenance)
    assert {"what", "bytes", "tokens", "sha256"} == set(costs.provenance["text"])
    assert costs.badge_source == "python -m tools.measure_int4, 32,000 bytes of held-out Python"


def test_the_stored_bytes_are_those_of_a_count_by_hand(shipped):
    """6 layers of q, k, v, o, gate, up, down and the embedding: rows and columns from the config's numbers."""
    shapes = [(512, 384), (256, 384), (256, 384), (384, 512), (896, 384), (896, 384), (384, 896)] * 6 + [(4096, 384)]
    weights = sum(rows * k for rows, k in shapes)
    scales = {32: weights / 32, 64: weights / 64, 128: weights / 128, None: sum(rows for rows, _ in shapes)}
    for cost in load_costs().rows:
        code = 1 if cost.variant.bits == 8 else 0.5
        assert cost.bytes_per_weight == pytest.approx(code + 2 * scales[cost.variant.group] / weights, rel=1e-12)
        assert cost.bytes_per_weight == bytes_per_weight(shipped, cost.variant)


@pytest.mark.parametrize("row", range(len(VARIANTS)), ids=lambda row: VARIANTS[row].name)
def test_the_stored_errors_of_one_matrix_come_out_again(shipped, row):
    cost = load_costs().rows[row]
    weight = shipped.tensor(load_costs().matrix)
    assert relative_error(weight, cost.variant.apply(weight)) == pytest.approx(cost.matrix_error, rel=1e-6)


def test_the_stored_total_errors_come_out_again_for_the_plain_methods(shipped):
    for cost in load_costs().rows:
        if cost.variant.method != "search":
            assert total_error(shipped, cost.variant) == pytest.approx(cost.relative_error, rel=1e-6)


def test_more_bytes_cost_less_and_a_better_scale_is_worth_four_times_as_many_scales():
    costs = {(cost.variant.method, cost.variant.group): cost for cost in load_costs().rows}
    baseline = load_costs().baseline
    for method in ("absmax7", "search"):
        kls = [costs[method, group].mean_kl for group in (32, 64, 128, None)]
        assert kls == sorted(kls)
    assert costs["search", 128].mean_kl < costs["absmax7", 32].mean_kl
    assert costs["absmax127", 128].mean_kl < 0.01
    assert all(baseline < cost.bits_per_byte < 1 and 0 < cost.top1_agreement < 1 for cost in costs.values())


@pytest.mark.parametrize("content", ["", "[]", '{"rows": []}', '{"rows": [{"variant": {"bits": 4}}]}'])
def test_a_file_that_is_no_table_is_refused_with_what_to_do(tmp_path, monkeypatch, content):
    (tmp_path / "broken.json").write_text(content)
    monkeypatch.setattr(int4_costs, "data_path", lambda _: tmp_path / "broken.json")
    with pytest.raises(FileFormatError, match=r"broken\.json: not a table of costs .*measure_int4$"):
        load_costs()


def test_the_table_is_written_as_the_tool_writes_it():
    assert table_text(load_costs()) == data_path("int4_costs.json").read_text()


def test_the_documents_table_is_the_stored_one(capsys):
    print_costs(load_costs().rows)
    assert capsys.readouterr().out.strip() in (ROOT / "docs" / "int4_scales.md").read_text()
