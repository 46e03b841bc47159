"""Run by the benchmark memory_over_weights in a process of its own: decode, and say what memory that took.

The two arguments are FILE and BACKEND.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import psutil

import lab_engine

_TOKENS = 32


def main(path: Path, backend: str) -> None:
    """Print one JSON object: token_ids, prompt_ids, beside_the_mapping (bytes), how."""
    decoder = lab_engine.load(path, backend)
    prompt_ids = decoder.tokenizer.encode("def fibonacci(n):")
    token_ids, most = [], 0
    for token_id in decoder.generate(prompt_ids, _TOKENS, frozenset()):
        token_ids.append(token_id)
        most = max(most, beside_the_mapping(path))
    how = "resident bytes" + (", less the resident pages of the mapped file" if _HAS_MAPS else "; the file's pages too")
    print(json.dumps({"token_ids": token_ids, "prompt_ids": prompt_ids, "beside_the_mapping": most, "how": how}))


_HAS_MAPS = hasattr(psutil.Process, "memory_maps")  # macOS has none


def beside_the_mapping(path: Path) -> int:
    """Resident bytes of this process, less those pages of `path` that its mapping holds in memory."""
    process = psutil.Process()
    mapped = 0
    if _HAS_MAPS:
        mapped = sum(part.rss for part in process.memory_maps() if part.path == str(path.resolve()))
    return int(process.memory_info().rss - mapped)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
