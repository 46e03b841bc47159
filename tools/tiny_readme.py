"""data/README.md: what data/ holds, and the sources and licences of the text that trained the shipped model."""

from __future__ import annotations

from typing import Any

HEAD = """# data/

| file | what it is |
|---|---|
| tiny-coder/ | the shipped model as a Hugging Face folder: Qwen2, bf16 shards, tokenizer, training_record.json |
| tiny-coder.nanoqwen | the same model, INT4, in one file |
| int4_costs.json | what INT4 costs the model, measured by `tools/measure_int4.py` |
| h200/ | measurements from an NVIDIA H200, recorded by `tools/record_h200.py` |

The model was trained by `tools/train_tiny_coder.py` on Python source that its authors license permissively.
`tools/tiny_corpus.py` made the corpus: it reads each licence from the package's own metadata and refuses what is not
plainly permissive; it drops vendored copies, generated files, tables, files that do not parse, and exact and
near-duplicates; it removes leading licence comments (the text trains a model and is not redistributed). Tests are at
most a fifth of the bytes.
Packages marked *held out* were chosen by hash order before any training; they measured the model and never trained it.
"""


def data_readme(record: dict[str, Any]) -> str:
    """The page as Markdown, from what corpus.json holds."""
    rows = [row for row in record["sources"] if row["files"]]
    train, held, tokens = (record[key] / 1e6 for key in ("train_bytes", "held_out_bytes", "train_tokens"))
    sizes = f"Training text: {train:.0f} MB, {tokens:.0f} million tokens. Held out: {held:.1f} MB."
    summary = f"\n{sizes} Seed {record['seed']}.\n"
    table = ["\n| source | licence | files | kB | |", "|---|---|---|---|---|"]
    for row in sorted(rows, key=lambda row: str(row["pin"]).lower()):
        mark = "held out" if row["held_out"] else ""
        table.append(f"| {row['pin']} | {row['licence']} | {row['files']} | {row['bytes'] / 1e3:.0f} | {mark} |")
    return HEAD + summary + "\n".join(table) + "\n"
