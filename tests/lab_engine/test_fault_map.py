"""tests/README.md says which test would notice which fault: every test that it names must exist."""

import re
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
NAMED = re.findall(r"`(test_\w+\.py)::(\w+)`", (FOLDER.parent / "README.md").read_text(encoding="utf-8"))


def test_every_test_of_the_fault_table_exists():
    assert len(NAMED) > 60
    missing = []
    for file, name in NAMED:
        text = (FOLDER / file).read_text(encoding="utf-8")
        if f"def {name}(" not in text and f"\n{name} = " not in text:
            missing.append(f"{file}::{name}")
    assert missing == []
