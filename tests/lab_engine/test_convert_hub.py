"""Converting a hub id, seen from the library: what is downloaded, and what works from the cache (see test_hub too)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab_engine.hub_stand_in import Hub, serve

ROOT = Path(__file__).resolve().parents[2]
CONVERT = """
import sys
from pathlib import Path
from lab_engine.convert import convert
from lab_engine.errors import NanoqwenError
for name in sys.argv[2:]:
    try:
        print(convert(name, Path(sys.argv[1]) / f"{name.replace('/', '-')}.nanoqwen"))
    except NanoqwenError as error:
        print("refused:", error)
"""


@pytest.fixture
def convert_from(tmp_path):
    """Convert ids in a process of their own, whose hub is at this endpoint; returns the lines that it printed."""

    def run(endpoint, *repo_ids):
        environment = {**os.environ, "HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "0"}
        command = [sys.executable, "-c", CONVERT, str(tmp_path), *repo_ids]
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True, timeout=90
        )
        return done.stdout.splitlines()

    return run


def test_a_hub_id_is_downloaded_without_its_pickles_and_works_offline_afterwards(
    convert_from, checkpoint, shared_file, tmp_path
):
    (checkpoint / "pytorch_model.bin").write_bytes(b"a pickle")
    out = tmp_path / "someone-tiny.nanoqwen"
    hub = Hub("someone/tiny", checkpoint)
    with serve(hub) as endpoint:
        lines = convert_from(endpoint, "someone/tiny", "some one/..")
    assert lines[0] == str(out)
    assert out.read_bytes() == shared_file.read_bytes()
    assert any(request.endswith("/model.safetensors") for request in hub.requests)
    assert not any(request.endswith(".bin") for request in hub.requests)
    assert lines[1].startswith("refused: some one/..: not a hub id")

    out.unlink()
    assert convert_from(endpoint, "someone/tiny") == [str(out)]  # nobody answers there any more
    assert out.read_bytes() == shared_file.read_bytes()
