"""Programs that are started: they find the engine from any folder, and one line says why they failed."""

import sys

import pytest

from lab_engine.errors import NanoqwenError
from lab_engine.processes import output_of


def test_a_program_finds_the_engine_from_any_folder(tmp_path, monkeypatch):
    """-S: without the packages that are installed, the engine among them."""
    monkeypatch.chdir(tmp_path)
    assert output_of([sys.executable, "-S", "-c", "import lab_engine; print(lab_engine.SHIPPED_MODEL)"]).strip()


def test_a_program_that_fails_leaves_its_status_and_its_last_line():
    with pytest.raises(NanoqwenError) as error:
        output_of([sys.executable, "-c", "import sys; print('a', file=sys.stderr); sys.exit('no memory')"])
    assert str(error.value).endswith(": ended with 1: no memory")
    assert "\n" not in str(error.value)


def test_a_program_that_says_nothing_is_quoted_so():
    with pytest.raises(NanoqwenError, match=r": ended with 3: it said nothing$"):
        output_of([sys.executable, "-c", "raise SystemExit(3)"])
