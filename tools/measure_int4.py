"""How the INT4 scales are chosen, and what the output head costs: measured on the shipped model, printed as a table.

    python -m tools.measure_int4 --text TEXT       the table of docs/int4_scales.md; TEXT: Python that trained nothing

Compares, against the unquantized checkpoint: the three methods of int4.quantize_rows on every matrix, and for the
best of them the embedding (which is also the output head) in INT4, INT8 and 16 bits.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from lab_engine import data_path
from lab_engine.checkpoint import Checkpoint
from lab_engine.config import GROUP
from lab_engine.int4 import BYTES_PER_WEIGHT, dequantize, quantize_rows
from lab_engine.quality import measure
from lab_engine.tokenizer import Tokenizer
from lab_engine.weights import MappedSource

HEAD = "model.embed_tokens.weight"


def int8_rows(weight: Tensor) -> Tensor:
    """A matrix rounded to INT8 codes with one fp16 scale, max|w| / 127, for each group of 128."""
    groups = weight.reshape(weight.shape[0], -1, GROUP)
    scales = (groups.abs().amax(dim=-1, keepdim=True) / 127).half().float()
    q = (groups / torch.where(scales == 0, torch.inf, scales)).round().clamp(-127, 127)
    return (q * scales).reshape(weight.shape)


def with_method(method: str) -> Callable[[str, Tensor], Tensor]:
    """Every matrix through quantize_rows with one method."""
    return lambda _, weight: dequantize(*quantize_rows(weight, method))


def with_head(head: Callable[[Tensor], Tensor]) -> Callable[[str, Tensor], Tensor]:
    """The shipped method for every matrix but the embedding."""
    return lambda name, weight: head(weight) if name == HEAD else dequantize(*quantize_rows(weight))


def main() -> None:
    """Print the table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--model", type=Path, default=data_path("tiny-coder"))
    arguments = parser.parse_args()
    text = arguments.text.read_text(encoding="utf-8")
    checkpoint, tokenizer = Checkpoint(arguments.model), Tokenizer.from_hf_folder(arguments.model)
    rows, k = checkpoint.shapes[HEAD]
    variants = {
        "16-bit weights (baseline)": (lambda _, weight: weight, 2.0),
        "INT4, max/7": (with_method("absmax7"), BYTES_PER_WEIGHT),
        "INT4, max/8 with the sign of the largest": (with_method("absmax8"), BYTES_PER_WEIGHT),
        "INT4, search (shipped)": (with_method("search"), BYTES_PER_WEIGHT),
        "INT4 search, embedding INT8": (with_head(int8_rows), 1 + 2 / GROUP),
        "INT4 search, embedding 16-bit": (with_head(lambda weight: weight), 2.0),
    }
    print("| weights | logit KL, nats a token | bits per byte | same top token | embedding, bytes |")
    print("|---|---|---|---|---|")
    for name, (function, head_bytes) in variants.items():
        result = measure(MappedSource(checkpoint, function), checkpoint, tokenizer, text)
        print(
            f"| {name} | {result.mean_kl:.4f} | {result.bits_per_byte:.4f} | {result.top1_agreement:.1%} "
            f"| {round(rows * k * head_bytes):,} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
