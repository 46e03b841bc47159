"""The recording `paged_attention`: the Triton kernels compared with float64, and timed beside PyTorch's attention."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from lab_engine.errors import RecordingError
from lab_engine.gpu import REPLAYS, median_and_spread
from tools import h200_machine

if TYPE_CHECKING:
    from lab_engine.attention_gpu import Batch

SOURCES = ("lab_engine/kernels/paged_attention_triton.py",)

CONTEXTS, BATCHES = (64, 512, 2048, 8192), (1, 32)
FORMS = {
    "enable_gqa": ("any", False),
    "enable_gqa, flash": ("flash", False),
    "enable_gqa, cudnn": ("cudnn", False),
    "rows, flash": ("flash", True),
    "rows, cudnn": ("cudnn", True),
}
"""Ways to call scaled_dot_product_attention; in "rows" the query heads of a group are rows of a product."""

TOLERANCES = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 2e-3}
LENGTHS = (1, 15, 16, 17, 31, 32, 33, 40, 56, 100)


def record() -> tuple[dict[str, Any], dict[str, int]]:
    """Take the recording on this machine: its data, and the clocks while the kernels run."""
    h200_machine.check_device()
    data = {"correctness": correctness(), **speed()}
    return data, _clocks_under_load()


def correctness() -> dict[str, Any]:
    """The largest errors by dtype; RecordingError for an output or a lse beyond its tolerance, NaN included."""
    import torch

    return {name: _errors(name, _cases(getattr(torch, name))) for name in TOLERANCES}


def _errors(name: str, cases: Iterator[tuple[Batch, int | None]]) -> dict[str, Any]:
    from lab_engine.attention_gpu import errors_of

    found: list[tuple[float, float]] = []
    sequences = 0
    for batch, num_splits in cases:
        found.append(errors_of(batch, num_splits))
        sequences += len(batch.lengths)
        for what, error in zip(("output", "lse"), found[-1], strict=True):
            if not error <= TOLERANCES[name]:  # NaN as well; so max, which can drop one, sees none
                where = f"{name}, head_dim {batch.q.shape[-1]}, {num_splits} splits"
                raise RecordingError(f"{where}: {what} wrong by {error:.1e}, expected {TOLERANCES[name]:.0e} or less")
    output, lse_error = (max(errors) for errors in zip(*found, strict=True))
    return {"sequences": sequences, "output_error": output, "lse_error": lse_error, "tolerance": TOLERANCES[name]}


def _cases(dtype: Any) -> Iterator[tuple[Batch, int | None]]:
    """Every ratio, head_dim and number of splits; lengths 1 to 200; 1000 random lengths up to 8192."""
    from lab_engine.attention_gpu import random_batch

    shapes = [((2 * ratio, 2), head_dim) for ratio in (1, 2, 5, 6, 7, 8) for head_dim in (64, 128)]
    for heads, head_dim in shapes:
        for fill in (float("nan"), float("inf")):
            batch = random_batch(LENGTHS, heads, head_dim, dtype, fill)
            for num_splits in (1, 2, 4, 8):
                yield batch, num_splits
    yield random_batch(range(1, 201), dtype=dtype), None
    lengths = random.Random(0).choices(range(1, 8193), k=1000)
    for start in range(0, 1000, 50):
        yield random_batch(lengths[start : start + 50], dtype=dtype, seed=start), None


def speed() -> dict[str, Any]:
    """One row for each batch and context, in the shapes of the 7B, in bfloat16."""
    from lab_engine.attention_gpu import HEAD_DIM, HEADS, LAYERS
    from lab_engine.kernels import paged_attention_triton as triton_module

    return {
        "shape": {"layers": LAYERS, "q_heads": HEADS[0], "kv_heads": HEADS[1], "head_dim": HEAD_DIM},
        "launch": {"step": triton_module.STEP, "num_warps": triton_module.NUM_WARPS},
        "replays": REPLAYS,
        "rows": [_row(context, batch) for batch in BATCHES for context in CONTEXTS],
    }


def _row(context: int, batch: int) -> dict[str, Any]:
    """The times of one batch and context; RecordingError where the ways do not agree on what they compute."""
    from lab_engine.attention_gpu import cache_bytes, contiguous, dense, layers_of, paged
    from lab_engine.gpu import replay_seconds

    layers = layers_of(context, batch)
    caches = [contiguous(layer) for layer in layers]
    ours = paged(layers)
    times = {}
    for name, (backend, rows) in FORMS.items():
        peer = dense(layers, caches, backend, rows)
        _check_agreement(f"batch {batch}, context {context}, {name}", ours()[0], peer()[0])
        times[name] = median_and_spread(replay_seconds(peer, REPLAYS), len(layers))
    return {
        "batch": batch,
        "context": context,
        "bytes": cache_bytes(context, batch),
        "calls": len(layers),
        "triton": median_and_spread(replay_seconds(ours, REPLAYS), len(layers)),
        "sdpa": times,
    }


def _check_agreement(what: str, ours: Any, peer: Any) -> None:
    """Both read the same cache; the peer's output is rounded to bfloat16."""
    difference = float((ours - peer.float()).abs().max())
    if not difference <= 0.01 * max(1.0, float(ours.abs().max())):
        raise RecordingError(f"{what}: scaled_dot_product_attention differs by {difference:.1e}, so no time counts")


def _clocks_under_load() -> dict[str, int]:
    """The clocks while the kernels read 32 caches of 8192 tokens again and again."""
    import torch

    from lab_engine.attention_gpu import paged, random_batch

    attend = paged([random_batch([8192] * 32)] * 28)
    for _ in range(500):  # about two seconds of work, in which to ask
        attend()
    clocks = h200_machine.clocks_mhz()
    if torch.cuda.current_stream().query():
        raise RecordingError("clocks: the kernels had ended before nvidia-smi answered")
    torch.cuda.synchronize()
    return clocks
