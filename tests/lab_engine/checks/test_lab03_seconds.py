import numpy as np
import pytest

from lab_engine import gemv
from lab_engine.checks.lab03_seconds import EXERCISE as SECONDS
from lab_engine.checks.lab03_seconds import gemv_seconds
from lab_engine.gemv import H200
from tests.lab_engine.checks.answers import names


def seconds_with(combine=max, *, bytes_per_weight=0.515625, lanes=lambda gpu: gpu.int_lanes, sms=lambda gpu: gpu.sms):
    """A gemv_seconds that does one thing differently."""

    def seconds(n, k, gpu, int_ops_per_weight, edge_s):
        memory = n * k * bytes_per_weight / gpu.bandwidth
        return combine(memory, n * k * int_ops_per_weight / (sms(gpu) * lanes(gpu) * gpu.clock_hz)) + edge_s

    return seconds


def scaled(factor):
    return lambda *args: factor * gemv_seconds(*args)


ALL = names(SECONDS)
COMPUTE = {
    "down at 4.5 instructions a weight",
    "o on an A100 at 6 instructions a weight",
    "lm_head at 3 instructions a weight",
    "16 integer lanes",
}
MEMORY = ALL - COMPUTE
TINY = "an edge longer than all else"
NO_EDGE = "lm_head without an edge"
WRONG = {
    "sum instead of max": (
        seconds_with(lambda a, b: a + b),
        "The two overlap",
        ALL - {"no instructions at all"},
    ),
    "min": (seconds_with(min), "The longer one counts", ALL),
    "no scales": (seconds_with(bytes_per_weight=0.5), "0.5156 bytes a weight", MEMORY - {TINY}),
    "a byte a weight": (seconds_with(bytes_per_weight=1.015625), "The weights are INT4", None),
    "fp16 weights": (seconds_with(bytes_per_weight=2), "The weights are INT4", None),
    "edge inside max": (
        lambda *args: max(gemv_seconds(*args[:4], 0.0), args[4]),
        "Nothing flows while the edge is waited for",
        ALL - {NO_EDGE},
    ),
    "edge on the memory alone": (
        lambda n, k, gpu, ops, edge: max(n * k * 0.515625 / gpu.bandwidth + edge, n * k * ops / gpu.int_rate),
        "Nothing flows while the edge is waited for",
        COMPUTE,
    ),
    "no edge": (lambda *args: gemv_seconds(*args[:4], 0.0), "Nothing flows", ALL - {NO_EDGE}),
    "memory only": (seconds_with(lambda memory, _: memory), "64 integer lanes", COMPUTE),
    "128 lanes": (seconds_with(lanes=lambda _: 128), "64 integer lanes", COMPUTE),
    "64 lanes on every GPU": (seconds_with(lanes=lambda _: 64), "16 integer lanes", {"16 integer lanes"}),
    "one SM": (seconds_with(sms=lambda _: 1), "All SMs work", ALL - {"no instructions at all"}),
    "one lane": (seconds_with(lanes=lambda _: 1), "64 integer lanes", ALL - {"no instructions at all"}),
    "instructions only": (seconds_with(lambda _, work: work), "The longer one counts: here the bytes", MEMORY),
    "in µs": (scaled(1e6), "In seconds", ALL),
    "in ms": (scaled(1e3), "In seconds", ALL),
    "NaN": (lambda *_: float("nan"), "Two times", ALL),
    "the example's answer": (lambda *_: 3.82e-6, "", None),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_time_fails_with_its_own_hint_on_the_cases_that_show_it(name, failing_cases):
    wrong, hint, only = WRONG[name]
    verdict = SECONDS.check(wrong)
    assert verdict.status == "failed"
    assert hint in verdict.hint, verdict
    assert verdict.hint
    if only is not None:
        assert failing_cases(SECONDS, wrong) == only


@pytest.mark.parametrize(
    "right",
    [
        gemv_seconds,
        gemv.gemv_seconds,
        seconds_with(bytes_per_weight=0.5156),
        seconds_with(bytes_per_weight=66 / 128),
        lambda *args: np.float32(gemv_seconds(*args)),
        lambda *args: np.float64(gemv_seconds(*args)),
        lambda *args: float(f"{gemv_seconds(*args):.3e}"),
    ],
)
def test_a_right_time_passes_with_fewer_decimals_and_from_numpy_too(right):
    verdict = SECONDS.check(right)
    assert verdict.status == "passed", verdict


def test_the_known_times():
    assert f"{1e6 * gemv_seconds(3584, 3584, H200, 0.63, 2.4e-6):.2f}" == "3.82"
    assert f"{1e6 * gemv_seconds(3584, 18944, H200, 4.5, 2.4e-6):.1f}" == "22.3"


@pytest.mark.parametrize("case", SECONDS.cases, ids=lambda case: case.name)
def test_the_solution_is_the_engine_s_formula(case):
    assert gemv_seconds(*case.args) == pytest.approx(gemv.gemv_seconds(*case.args))


def test_the_cases_differ_in_what_limits_them():
    compute = {c.name for c in SECONDS.cases if gemv_seconds(*c.args) > gemv_seconds(*c.args[:3], 0.0, c.args[4])}
    assert compute == COMPUTE


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda *_: "3.82 µs", "returned a str; expected a float, in seconds"),
        (lambda *_: (3.82e-6,), "returned a tuple of 1; expected a float, in seconds"),
        (lambda *_: True, "returned a bool; expected a float, in seconds"),
        (lambda *_: np.array([1.0]), "returned a float64 ndarray of shape (1,); expected a float, in seconds"),
        (lambda *args: args[2].speed, "raised AttributeError: 'Gpu' object has no attribute 'speed'"),
        (lambda *_: 1 / 0, "raised ZeroDivisionError: division by zero"),
    ],
)
def test_another_form_is_refused_in_words(wrong, message):
    assert SECONDS.check(wrong).message.startswith(message)


def test_the_verdict_shows_the_arguments_and_both_times():
    verdict = SECONDS.check(scaled(2))
    assert [row.values for row in verdict.given[:2]] == [
        ("n", "k", "int_ops_per_weight", "edge_s"),
        ("3,584", "3,584", "0.63", "2.4e−06"),
    ]
    assert verdict.given[2].note == "H200: bandwidth 4.68e+12, sms 132, clock_hz 1.82e+09, int_lanes 64"
    assert verdict.expected.values == ("3.815",)
