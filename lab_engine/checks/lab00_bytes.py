"""Lab 00, bytes_per_step: what one decode step reads."""

from typing import Any

from lab_engine.checks.case import Args, Case, Mismatch
from lab_engine.checks.exercise import Exercise
from lab_engine.checks.values import describe, number, numbers_row
from lab_engine.checks.verdict import Row


def bytes_per_step(
    hidden: int,
    intermediate: int,
    layers: int,
    q_heads: int,
    kv_heads: int,
    head_dim: int,
    vocab: int,
    context: int,
) -> int:
    """Bytes that one decode step reads: all INT4 weights once, K and V of `context` tokens.

    A weight costs half a byte and its share of an fp16 scale a group of 128. The weights are
    q, k, v, o, gate, up, down of each layer and lm_head (vocab × hidden). K and V are 16-bit.
    Norms, biases and one embedding row are ignored.

    Qwen2.5-Coder-7B at context 512:
    >>> bytes_per_step(3584, 18944, 28, 28, 4, 128, 152064, 512)
    3674976256
    """
    q_and_o = 2 * hidden * q_heads * head_dim
    k_and_v = 2 * hidden * kv_heads * head_dim
    mlp = 3 * hidden * intermediate
    weights = layers * (q_and_o + k_and_v + mlp) + vocab * hidden
    kv_cache = layers * kv_heads * head_dim * 2 * 2 * context
    return weights * 66 // 128 + kv_cache


def _judge_bytes(args: Args, expected: int, yours: Any) -> Mismatch | None:
    if isinstance(yours, bool) or not isinstance(yours, int | float):
        return Mismatch(f"returned {describe(yours)}; expected an int", hint="Bytes are a whole number: a Python int.")
    if yours == expected:
        return None
    whole = int(yours) if yours == yours // 1 else yours
    return Mismatch(
        expected=numbers_row("expected bytes", [expected]),
        yours=numbers_row("your bytes", [whole]),
        differ=(0,),
        hint=_hint_for_bytes(args, int(yours) - expected),
    )


def _hint_for_bytes(args: Args, difference: int) -> str:
    """A usual mistake is wrong by exactly the bytes of one thing."""
    hidden, _, layers, q_heads, kv_heads, head_dim, vocab, context = args
    kv = 4 * layers * kv_heads * head_dim * context
    packed_weights = bytes_per_step(*args) - kv
    head = vocab * hidden * 66 // 128
    known = {
        -packed_weights * 2 // 66: "0.5 + 2/128 bytes a weight: each group of 128 has an fp16 scale.",
        -kv // 2: "Two planes a head: K and V.",
        kv * q_heads // kv_heads - kv: "KV is stored once a group of query heads: count kv_heads.",
        kv: "The cache is 16-bit: 2 bytes a number.",
        -head: "Every logit needs its row of lm_head.",
    }
    embedding = dict.fromkeys(
        (head, vocab * hidden * 2, vocab * hidden), "One row of the embedding table is read, not all."
    )
    return (known | embedding).get(difference, "")


def _show_bytes(args: Args) -> tuple[Row, ...]:
    names = ("hidden", "intermediate", "layers", "q_heads", "kv_heads", "head_dim", "vocab", "context")
    return (Row("argument", names), Row("value", tuple(number(value) for value in args)))


_MATRICES = "List the matrices of a layer: q, k, v, o, gate, up, down. What is the shape of each?"
_7B = (3584, 18944, 28, 28, 4, 128, 152064)
_HALF_B = (896, 4864, 24, 14, 2, 64, 151936)

BYTES_CASES = (
    Case("7B at context 512", (*_7B, 512), _MATRICES),
    Case("0.5B at context 128", (*_HALF_B, 128), _MATRICES),
    Case("7B at context 8192", (*_7B, 8192), "Only the KV cache grows with the context."),
    Case("0.5B at context 0", (*_HALF_B, 0), "An empty cache costs nothing; the weights stay."),
    Case("one query head a KV head", (640, 1408, 3, 5, 5, 128, 1003, 57), _MATRICES),
    Case("heads wider than hidden", (384, 896, 5, 9, 3, 128, 777, 33), "q and o have q_heads × head_dim, not hidden."),
    Case("one layer", (256, 384, 1, 6, 2, 64, 99, 1), _MATRICES),
)


EXERCISE = Exercise(
    lab="00_tour",
    solution=bytes_per_step,
    cases=BYTES_CASES,
    judge=_judge_bytes,
    show=_show_bytes,
    first_hints=(
        "List the matrices of a layer with their shapes: q, k, v, o, gate, up, down. Then lm_head.",
        "Weights × 0.515625, then for each token of the context 2 × layers × kv_heads × head_dim × 2 bytes.",
    ),
)
