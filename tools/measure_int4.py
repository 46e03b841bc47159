"""How the INT4 scales are chosen, and what INT4 costs: measured on the shipped model.

    python -m tools.measure_int4               writes data/int4_costs.json and prints the tables of docs/int4_scales.md
    python -m tools.measure_int4 --text TEXT   prints them for other text; TEXT: Python that trained nothing

Everything is compared with the unquantized checkpoint in float32. Without --text the text is the start of some
held-out files of .corpus/packed (`tools/tiny_corpus.py` makes it); minutes on one core.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lab_engine import data_path
from lab_engine.checkpoint import Checkpoint
from lab_engine.errors import NanoqwenError
from lab_engine.int4_costs import (
    COSTS_FILE,
    INT8,
    VARIANTS,
    Cost,
    Costs,
    Variant,
    bytes_per_weight,
    relative_error,
    total_error,
)
from lab_engine.quality import Quality, measure
from lab_engine.tokenizer import Tokenizer
from lab_engine.weights import MappedSource
from tools.tiny_corpus import CORPUS, load_held_out

MODEL = "tiny-coder"
HEAD = "model.embed_tokens.weight"
MATRIX = "model.layers.0.mlp.gate_proj.weight"
"""The matrix whose error is stored beside each row, so that a test can compute it again."""
TEXT_BYTES = 32_000
SHIPPED = Variant(4, "search")
SIGNED = Variant(4, "absmax8")

Function = Callable[[str, Tensor], Tensor]


def held_out_text() -> str:
    """The start of the held-out files: of each package the two that follow the median length, packages by name."""
    packages = defaultdict(list)
    try:
        for file in load_held_out(CORPUS / "packed"):
            packages[file.source].append(file.text)
    except OSError as error:
        raise NanoqwenError(
            f"{error.filename}: {error.strerror}; make it with tools.tiny_corpus, or give --text"
        ) from None
    texts = [
        text for name in sorted(packages) for text in sorted(packages[name], key=len)[len(packages[name]) // 2 :][:2]
    ]
    return "\n".join(texts).encode()[:TEXT_BYTES].decode(errors="ignore")


def text_of(path: Path) -> str:
    """The file's text; NanoqwenError where there is none."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise NanoqwenError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise NanoqwenError(f"{path}: is no UTF-8 text; expected Python source") from None


def checkpoint_hash(folder: Path) -> str:
    """SHA-256 of config and weights of a Hugging Face folder, file by file in the order of their names."""
    digest = hashlib.sha256()
    for path in sorted([folder / "config.json", *folder.glob("*.safetensors")]):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def with_variant(variant: Variant) -> Function:
    """Every matrix through one variant."""
    return lambda _, weight: variant.apply(weight)


def with_head(head: Callable[[Tensor], Tensor]) -> Function:
    """The shipped variant for every matrix but the embedding."""
    return lambda name, weight: head(weight) if name == HEAD else SHIPPED.apply(weight)


class Bench:
    """The model, its tokenizer and a text; `quality` measures one way to round the weights."""

    def __init__(self, text: str) -> None:
        self.text, self.folder = text, data_path(MODEL)
        self.checkpoint, self.tokenizer = Checkpoint(self.folder), Tokenizer.from_hf_folder(self.folder)

    def quality(self, function: Function) -> Quality:
        return measure(MappedSource(self.checkpoint, function), self.checkpoint, self.tokenizer, self.text)

    def cost(self, variant: Variant) -> Cost:
        weight = self.checkpoint.tensor(MATRIX)
        quality = self.quality(with_variant(variant))
        return Cost(
            variant,
            bytes_per_weight(self.checkpoint, variant),
            total_error(self.checkpoint, variant),
            relative_error(weight, variant.apply(weight)),
            quality.mean_kl,
            quality.bits_per_byte,
            quality.top1_agreement,
        )

    def provenance(self, seconds: float) -> Mapping[str, Any]:
        """Where, when and from what the numbers come."""
        return {
            "date": date.today().isoformat(),
            "command": "python -m tools.measure_int4",
            "python": platform.python_version(),
            "torch": torch.__version__,
            "seconds": round(seconds),
            "checkpoint": {"name": MODEL, "sha256": checkpoint_hash(self.folder)},
            "text": {
                "what": "held-out Python",
                "bytes": len(self.text.encode()),
                "tokens": len(self.tokenizer.encode(self.text)),
                "sha256": hashlib.sha256(self.text.encode()).hexdigest(),
            },
        }


def print_choices(bench: Bench, known: Mapping[Variant, Cost]) -> Quality:
    """The table of methods and of the embedding as Markdown; the quality of the 16-bit weights."""
    rows, k = bench.checkpoint.shapes[HEAD]
    baseline = bench.quality(lambda _, weight: weight)
    print("| weights | logit KL, nats a token | bits per byte | same top token | embedding, bytes |")
    print("|---|---|---|---|---|")

    def line(name: str, found: Quality | Cost, embedding: int) -> None:
        quality = f"{found.mean_kl:.4f} | {found.bits_per_byte:.4f} | {found.top1_agreement:.1%}"
        print(f"| {name} | {quality} | {embedding:,} |", flush=True)

    line("16-bit weights (baseline)", baseline, 2 * rows * k)
    line("INT4, max/7", known[Variant(4, "absmax7")], SHIPPED.bytes_of(rows, k))
    signed = bench.quality(with_variant(SIGNED))
    line("INT4, max/8 with the sign of the largest", signed, SHIPPED.bytes_of(rows, k))
    line("INT4, search (shipped)", known[SHIPPED], SHIPPED.bytes_of(rows, k))
    line("INT4 search, embedding INT8", bench.quality(with_head(INT8.apply)), INT8.bytes_of(rows, k))
    line("INT4 search, embedding 16-bit", bench.quality(with_head(lambda weight: weight)), 2 * rows * k)
    return baseline


def print_costs(costs: Sequence[Cost]) -> None:
    """The table of group sizes as Markdown."""
    print("\n| weights | bytes a weight | relative error | logit KL, nats a token | bits per byte | same top token |")
    print("|---|---|---|---|---|---|")
    for cost in costs:
        quality = f"{cost.mean_kl:.4f} | {cost.bits_per_byte:.4f} | {cost.top1_agreement:.1%}"
        print(f"| {cost.variant.name} | {cost.bytes_per_weight:.6g} | {cost.relative_error:.2%} | {quality} |")


def table_text(costs: Costs) -> str:
    """What data/int4_costs.json holds: the table that int4_costs.load_costs reads."""
    table = {
        "provenance": costs.provenance,
        "matrix": costs.matrix,
        "baseline_bits_per_byte": costs.baseline,
        "rows": [asdict(cost) for cost in costs.rows],
    }
    return json.dumps(table, indent=1) + "\n"


def main() -> int:
    """Measure everything once; one line for what goes wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path)
    path: Path | None = parser.parse_args().text
    start = time.monotonic()
    try:
        bench = Bench(held_out_text() if path is None else text_of(path))
        costs = tuple(bench.cost(variant) for variant in VARIANTS)
    except NanoqwenError as error:
        print(f"measure_int4: {error}", file=sys.stderr)
        return 2
    baseline = print_choices(bench, {cost.variant: cost for cost in costs})
    print_costs(costs)
    if path is None:
        found = Costs(costs, baseline.bits_per_byte, MATRIX, bench.provenance(time.monotonic() - start))
        data_path(MODEL).with_name(COSTS_FILE).write_text(table_text(found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
