"""How a GPU's products are judged and put in turn, with a stand-in that computes them on the CPU."""

import math

import pytest
import torch

from lab_engine.config import ModelConfig
from lab_engine.gemv_gpu import GemvToken, stage_errors, token_errors, without_last_rows
from lab_engine.gemv_peer import token_work
from lab_engine.gemv_token import STAGES, Reference, random_hidden, random_weights
from tests.lab_engine.gemv_stand_in import StandInBackend

SMALL = ModelConfig(256, 384, 3, 4, 2, 64, 512, 1024, 1e6, 1e-6, tie_embeddings=True)


@pytest.fixture(scope="module")
def weights():
    return random_weights(SMALL, 3, "cpu")


def token_of(weights, **keywords):
    return GemvToken(StandInBackend(SMALL, **keywords), weights, random_hidden(SMALL, "cpu"))


def spoil(operation, place):
    def wrong(name, result):
        if name == operation:
            result[place] += 0.1 * result.abs().max() + 1
        return result

    return wrong


@pytest.mark.parametrize("dependent", [False, True])
def test_a_token_is_the_chain_of_all_stages_and_starts_afresh_each_time(weights, dependent):
    token = token_of(weights)
    for _ in range(2):
        token.run(dependent=dependent)
    h, logits = Reference(weights).token(token.start)
    assert (token.h - h).abs().max() < 1e-5
    assert int(token.token_id) == int(logits.argmax())
    stages = [*[stage for _ in range(3) for stage in STAGES], "lm_head"]
    assert token.backend.calls == 2 * [(stage, dependent and place > 0) for place, stage in enumerate(stages)]


def test_o_reads_the_first_numbers_that_qkv_wrote(weights):
    token = token_of(weights)
    token.run(dependent=False)
    assert token.attention.data_ptr() == token.qkv.data_ptr()
    assert len(token.attention) == SMALL.q_size


def test_right_stages_and_tokens_have_errors_of_rounding_alone(weights):
    token = token_of(weights)
    token.run(dependent=True)
    for errors in (stage_errors(token.backend, weights), token_errors(token, weights)):
        assert all(0 <= error < 1e-6 for error in errors.values())
    assert set(stage_errors(token.backend, weights)) == {*STAGES, "lm_head"}


@pytest.mark.parametrize("stage", [*STAGES, "lm_head"])
def test_one_wrong_number_of_a_stage_is_an_error_of_that_stage_alone(weights, stage):
    errors = stage_errors(StandInBackend(SMALL, spoil(stage, 7)), weights)
    assert errors[stage] > 1e-2
    assert all(error < 1e-6 for other, error in errors.items() if other != stage)


def test_another_id_than_that_of_the_largest_logit_is_an_error_beyond_all(weights):
    def next_one(name, result):
        return result + 1 if name == "argmax" else result

    assert stage_errors(StandInBackend(SMALL, next_one), weights)["lm_head"] == math.inf
    token = token_of(weights, wrong=next_one)
    token.run(dependent=False)
    assert token_errors(token, weights)["logits"] == math.inf


def test_nan_is_an_error(weights):
    nan = lambda name, result: result * math.nan if name == "down" else result  # noqa: E731
    assert math.isnan(stage_errors(StandInBackend(SMALL, nan), weights)["down"])


def test_a_wrong_stage_of_any_layer_shows_in_the_token(weights):
    token = token_of(weights, wrong=spoil("gate_up", -1))
    token.run(dependent=False)
    assert token_errors(token, weights)["h"] > 1e-3


def test_every_part_loses_its_last_rows(weights):
    short = without_last_rows(weights, 7)
    [layer] = short.layers
    assert [part.shape for part in layer.qkv] == [(256 - 7, 256), (128 - 7, 256), (128 - 7, 256)]
    assert [part.shape for part in layer.gate_up] == [(384 - 7, 256)] * 2
    assert (layer.o[0].shape, layer.down[0].shape) == ((256 - 7, 256), (256 - 7, 384))
    assert short.lm_head[0].shape == (512 - 7, 256)
    assert torch.equal(layer.qkv_bias[249:370], weights.layers[0].qkv_bias[256:377])
    assert all(error < 1e-6 for error in stage_errors(StandInBackend(SMALL), short).values())


def test_the_calls_of_a_token_come_layer_by_layer_then_lm_head():
    seen = []

    def calls(stage, layers):
        return [lambda layer=layer: seen.append((stage, layer)) for layer in range(layers)]

    work = token_work({stage: calls(stage, 2) for stage in STAGES} | {"lm_head": calls("lm_head", 1)})
    assert not seen
    work()
    assert seen == [*[(stage, layer) for layer in range(2) for stage in STAGES], ("lm_head", 0)]
