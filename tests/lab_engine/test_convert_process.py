"""Conversion as a process: complete under its name or not there at all, and small in memory."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from lab_engine.convert import convert
from tests.lab_engine.tiny_models import edit_json, edit_tensors

ROOT = Path(__file__).resolve().parents[2]
CONVERT = """
import sys
from pathlib import Path
import lab_engine.convert as c
c.convert(sys.argv[1], Path(sys.argv[2]))
"""
CONVERT_SLOWLY = """
import sys, time
from pathlib import Path
import lab_engine.convert as c
pack = c.pack_words
c.pack_words = lambda *arguments: (time.sleep(0.5), pack(*arguments))[1]
c.convert(sys.argv[1], Path(sys.argv[2]))
"""


def test_a_full_disk_is_one_line_and_leaves_the_old_file(shared_checkpoint, tmp_path):
    """RLIMIT_FSIZE makes the operating system itself refuse the bytes after the first 100,000."""
    resource = pytest.importorskip("resource")

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    out = tmp_path / "m.nanoqwen"
    out.write_bytes(b"old")
    command = [sys.executable, "-c", CONVERT, str(shared_checkpoint), str(out)]
    done = subprocess.run(command, cwd=ROOT, preexec_fn=limit, capture_output=True, text=True, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert "FileFormatError" in last
    assert "m.nanoqwen: cannot be written (File too large)" in last
    assert out.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [out]


def test_ctrl_c_in_the_middle_leaves_nothing_and_a_rerun_is_byte_identical(checkpoint, shared_file, tmp_path):
    """A real SIGINT to a real process, once its temporary file has begun to grow."""
    out = tmp_path / "out" / "m.nanoqwen"
    out.parent.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", CONVERT_SLOWLY, str(checkpoint), str(out)], cwd=ROOT, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 60
    while not list(out.parent.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in stderr
    assert list(out.parent.iterdir()) == []
    assert convert(checkpoint, out).read_bytes() == shared_file.read_bytes()


# Memory

MEASURE = """
import sys
from pathlib import Path
import lab_engine.convert, torch, transformers
def peak():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) * 1024
before = peak()
lab_engine.convert.convert(sys.argv[1], Path(sys.argv[2]))
print(peak() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak memory from /proc")
def test_peak_memory_stays_below_four_times_the_largest_tensor_and_300_mb(checkpoint, tmp_path):
    """One tensor of 102 MB, held once as the mapped file at most: the bound that is asserted is tighter."""
    edit_json(checkpoint / "config.json", vocab_size=200_000)
    edit_tensors(checkpoint, model__embed_tokens__weight=torch.ones(200_000, 256, dtype=torch.float16))
    command = [sys.executable, "-c", MEASURE, str(checkpoint), str(tmp_path / "m.nanoqwen")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    largest = 200_000 * 256 * 2
    assert int(done.stdout) < largest + (100 << 20) < 4 * largest + 300_000_000
