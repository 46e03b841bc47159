"""What a process costs: seconds to its first token, and memory beside the mapped file."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from lab_engine.bench.models import QWEN_05B, shipped_model, tokens_agree, write_random_file
from lab_engine.bench.result import Measurement
from lab_engine.errors import NanoqwenError
from lab_engine.loading import open_source
from lab_engine.processes import child_environment, last_line, output_of

_PROMPT = "def fibonacci(n):"
_RUNS = 5


def first_token_tiny(backend: str) -> Measurement:
    """From the start of `nanoqwen generate` until its first token is on the pipe; the peer only imports torch."""
    path = shipped_model()
    command = [sys.executable, "-m", "lab_engine", "generate", _PROMPT, "--model", str(path), "--backend", backend]
    generate, torch_alone = [], []
    for _ in range(_RUNS + 1):  # in turn, so that a disturbance meets both; the first pair warms the disk cache
        generate.append(_until_first_token([*command, "--max-new-tokens", "8"], len(_PROMPT.encode())))
        torch_alone.append(_until_end([sys.executable, "-c", "import torch"]))
    found = json.loads(output_of([*command, "--max-new-tokens", "8", "--json"]))
    source, tokenizer = open_source(path)
    return Measurement(
        value=median(generate[1:]),
        passed=tokens_agree(found["token_ids"], tokenizer.encode(_PROMPT), source, tokenizer.vocab_size),
        how=f"median of {_RUNS} processes, from their start to the first byte after the prompt on stdout",
        peer=("import torch", median(torch_alone[1:])),
    )


def memory_tiny(backend: str) -> Measurement:
    """The shipped model."""
    return _memory(shipped_model(), backend)


def memory_05b(backend: str) -> Measurement:
    """Random weights in the shapes of the 0.5B, from a temporary file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "random.nanoqwen"
        write_random_file(path, QWEN_05B)
        return _memory(path, backend)


def _memory(path: Path, backend: str) -> Measurement:
    found = json.loads(output_of([sys.executable, "-m", "lab_engine.bench.memory_child", str(path), backend]))
    source, tokenizer = open_source(path)
    return Measurement(
        value=found["beside_the_mapping"],
        passed=tokens_agree(found["token_ids"], found["prompt_ids"], source, tokenizer.vocab_size),
        how=f"the most after any of {len(found['token_ids'])} tokens of one process: {found['how']}; "
        f"packed weights: {path.stat().st_size} bytes",
    )


def _until_first_token(command: list[str], prompt_bytes: int) -> float:
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=child_environment()) as process:
        assert process.stdout is not None
        got = process.stdout.read(prompt_bytes + 1)
        taken = time.perf_counter() - start
        _, errors = process.communicate()
    if len(got) <= prompt_bytes or process.returncode:
        raise NanoqwenError(f"bench first_token: nanoqwen generate printed no token: {last_line(errors)}")
    return taken


def _until_end(command: list[str]) -> float:
    start = time.perf_counter()
    output_of(command)
    return time.perf_counter() - start
