"""Run by the benchmark open_memory as a script of its own, without torch: open a file, and say what memory that took.

The one argument is FILE. Prints one JSON object: resident bytes when started (all is imported, nothing opened), opened
and parsed (the tokenizer too); and what the file holds: config, tokens.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import psutil

from lab_engine.nanoqwen_file import NanoqwenFile


def main(path: Path) -> None:
    """Resident bytes include the pages of the mapping that opening touched."""
    process = psutil.Process()
    started = process.memory_info().rss
    file = NanoqwenFile(path)
    opened = process.memory_info().rss
    tokens = len(file.tokenizer_spec()["tokenizer"]["model"]["vocab"])
    parsed = process.memory_info().rss
    found = {"config": file.config.to_dict(), "tokens": tokens}
    print(json.dumps({"started": started, "opened": opened, "parsed": parsed, **found}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
