"""Paged attention in Triton: its source, how right and how fast it was on an H200, and the same on the GPU here."""

import ast
import re

import torch

from lab_engine import attention_gpu, gpu
from lab_engine.kernels import read_source
from lab_engine.recordings import Recording
from widgets.evidence import Table
from widgets.live_table import LiveTable
from widgets.machine import HERE
from widgets.playground import Badge
from widgets.source import Source

SOURCE = "paged_attention_triton.py"
_CONTEXTS, _REPLAYS = (512, 2048, 8192), 21


def kernel_source(name: str) -> Source:
    """One function of kernels/paged_attention_triton.py: attend_split, combine_splits or paged_attention_triton.

    Without the comments that only the project's checkers read.
    """
    text = read_source(SOURCE)
    functions = {node.name: node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}
    node = functions[name]
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    return Source(
        re.sub("  # (type: ignore|fmt: skip).*", "", "\n".join(text.splitlines()[first - 1 : node.end_lineno]))
    )


def errors_table(recording: Recording) -> Table:
    """How far the output and the log-sum-exp were from float64 on the H200, by the dtype of the pages."""
    rows = tuple(
        (name, f"{found['sequences']:,}", *(f"{found[key]:.1e}" for key in ("output_error", "lse_error", "tolerance")))
        for name, found in recording.data["correctness"].items()
    )
    columns = ("dtype", "sequences", "output, largest error", "lse, largest error", "allowed for the output")
    note = "Six sizes of a group, two head_dims, 1 to 8 splits; slots without a token held NaN or inf."
    return Table("The Triton kernels against float64", columns, rows, _badge(recording), note)


def speed_table(recording: Recording, bandwidth: float) -> Table:
    """Microseconds a layer: the floor that reading K and V sets, the Triton kernels, and PyTorch on contiguous caches.

    bandwidth: bytes a second that a reading brings at best. The peers are scaled_dot_product_attention with enable_gqa,
    of all forms of the call that were tried the fastest, and its flash form.
    """
    rows = []
    for row in recording.data["rows"]:
        floor, ours, peer = row["bytes"] / bandwidth * 1e6, row["triton"]["us"], row["sdpa"]["enable_gqa"]["us"]
        times = (f"{time:.1f}" for time in (ours, peer, row["sdpa"]["enable_gqa, flash"]["us"]))
        share, ratio = f"{100 * floor / ours:.0f} %", f"{ours / peer:.2f}"
        rows.append((str(row["batch"]), f"{row['context']:,}", f"{floor:.2f}", *times, share, ratio))
    columns = (
        "sequences",
        "tokens of each",
        "floor, µs",
        "Triton, µs",
        "SDPA, µs",
        "its flash form, µs",
        "floor ÷ Triton",
        "Triton ÷ SDPA",
    )
    note = (
        f"Floor: bytes of K and V ÷ {bandwidth / 1e12:g} TB/s (quoted: first experiment). "
        "One sequence of 64 tokens is next to nothing to read: what remains there is the cost of the launches."
    )
    return Table("Attention of a layer of the 7B, on the H200", columns, tuple(rows), _badge(recording), note)


def _badge(recording: Recording) -> Badge:
    return Badge("recorded", recording.badge_source)


def gpu_here() -> LiveTable:
    """Run the kernels on this machine's GPU, one sequence: how far from float64, and how many microseconds a layer?"""
    rows: list[tuple[str, ...]] = []
    note = "One sequence, timed as on the H200. SDPA: enable_gqa, contiguous caches. Errors up to 2e-3 are right."
    try:
        attention_gpu.check_gpu()
        rows = [_run_here(context) for context in _CONTEXTS]
    except Exception as error:  # noqa: BLE001 - an old GPU or a full one fails in many ways; the lab goes on
        note = f"Not run here: {error}".splitlines()[0]
    columns = ("tokens", "output, largest error", "Triton, µs", "SDPA, µs", "read by Triton, GB/s")
    table = Table("Attention of a layer of the 7B, here", columns, tuple(rows), HERE if rows else None, note)
    return LiveTable(table, "Paged attention on this machine's GPU: in the picture")


def _run_here(context: int) -> tuple[str, ...]:
    dtype = torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    layers = attention_gpu.layers_of(context, 1, dtype)
    error, _ = attention_gpu.errors_of(layers[0])
    caches = [attention_gpu.contiguous(layer) for layer in layers]
    ours, peer = (
        gpu.median_us(gpu.replay_seconds(run, _REPLAYS), len(layers))
        for run in (attention_gpu.paged(layers), attention_gpu.dense(layers, caches, "any", rows=False))
    )
    rate = attention_gpu.cache_bytes(context, 1) / ours / 1e3
    return f"{context:,}", f"{error:.1e}", f"{ours:.1f}", f"{peer:.1f}", f"{rate:,.0f}"
