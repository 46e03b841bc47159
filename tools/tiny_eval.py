"""How good tiny-coder is: held-out bits per byte, and twenty fixed prompts.

Bits per byte: total nats / ln 2 / total UTF-8 bytes of the held-out files as plain text. Each file follows one
<|endoftext|> (not scored) and is cut into windows of 2048 tokens with stride 1024; each token is scored once, with at
least 1024 tokens of context where the file has them.

Prompts: a completion counts when there are at least 3 new non-blank, different whole lines such that prompt + lines
parses (FIM: prefix + middle + suffix, with the whole middle or the middle cut at a whole line) and no new non-blank
line stands more than twice.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from tools.tiny_filter import parses
from tools.tiny_tokenizer import END_OF_TEXT, FIM_MIDDLE, FIM_PREFIX, FIM_SUFFIX, MAX_POSITIONS

STRIDE = 1024
MAX_NEW_TOKENS = 160
MIN_NEW_LINES = 3
Generate = Callable[[list[int], int], list[int]]


@dataclass(frozen=True)
class EvalPrompt:
    """A prompt; `suffix` is None for a plain one."""

    name: str
    prefix: str
    suffix: str | None = None


PROMPTS = (
    EvalPrompt("fibonacci", "def fibonacci(n):\n"),
    EvalPrompt("is_prime", 'def is_prime(n):\n    """Return True if n is a prime number."""\n'),
    EvalPrompt("factorial", 'def factorial(n):\n    """Return the factorial of n."""\n'),
    EvalPrompt(
        "read_json", 'import json\n\n\ndef read_json(path):\n    """Read a JSON file and return its contents."""\n'
    ),
    EvalPrompt(
        "count_words", 'def count_words(text):\n    """Return a dictionary that maps each word to its count."""\n'
    ),
    EvalPrompt("flatten", "def flatten(items):\n"),
    EvalPrompt("bubble_sort", "def bubble_sort(values):\n"),
    EvalPrompt("write_lines", "import os\n\n\ndef write_lines(path, lines):\n"),
    EvalPrompt("gcd", 'def gcd(a, b):\n    """Return the greatest common divisor of a and b."""\n'),
    EvalPrompt("parse_date", "from datetime import datetime\n\n\ndef parse_date(value):\n"),
    EvalPrompt("stack", 'class Stack:\n    """A simple last-in, first-out stack."""\n\n    def __init__(self):\n'),
    EvalPrompt(
        "point",
        "class Point:\n    def __init__(self, x, y):\n"
        "        self.x = x\n        self.y = y\n\n    def distance(self, other):\n",
    ),
    EvalPrompt("counter", "class Counter:\n    def __init__(self):\n"),
    EvalPrompt(
        "config", 'class Config:\n    """Holds the settings of the application."""\n\n    def __init__(self, path):\n'
    ),
    EvalPrompt(
        "binary_search",
        "def binary_search(items, target):\n    low = 0\n    high = len(items) - 1\n    while low <= high:\n",
        "    return -1\n",
    ),
    EvalPrompt("clamp", "def clamp(value, low, high):\n", "    return value\n"),
    EvalPrompt("load_lines", "def load_lines(path):\n    lines = []\n", "    return lines\n"),
    EvalPrompt(
        "main",
        "import argparse\n\n\ndef main():\n    parser = argparse.ArgumentParser()\n",
        '\n\nif __name__ == "__main__":\n    main()\n',
    ),
    EvalPrompt(
        "queue",
        "class Queue:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):\n",
        "\n    def __len__(self):\n        return len(self.items)\n",
    ),
    EvalPrompt("merge", "def merge_dicts(first, second):\n    result = {}\n", "    return result\n"),
)


@dataclass(frozen=True)
class Verdict:
    """What a prompt gave: whether it counts, why not, and the text that was generated."""

    name: str
    counts: bool
    reason: str
    text: str


def judge(prompt: EvalPrompt, completion: str) -> tuple[bool, str]:
    """(counts, reason): the rule of the module's docstring applied to one completion."""
    lines = completion.splitlines(keepends=True)
    if prompt.suffix is None and lines and not lines[-1].endswith("\n"):
        lines.pop()
    reason = f"fewer than {MIN_NEW_LINES} new lines that differ"
    for end in range(len(lines), 0, -1):
        middle = "".join(lines[:end])
        fresh = Counter(line.strip() for line in lines[:end] if line.strip())
        if len(fresh) < MIN_NEW_LINES:
            break
        if max(fresh.values()) > 2:
            reason = "a line stands more than twice"
        elif parses(prompt.prefix + middle + (prompt.suffix or "")):
            return True, f"{len(fresh)} lines"
        else:
            reason = "no prefix of whole lines parses"
    return False, reason


def prompt_ids(prompt: EvalPrompt, tokenizer: Tokenizer) -> list[int]:
    """The ids of a prompt in plain or FIM form."""
    if prompt.suffix is None:
        return list(tokenizer.encode(prompt.prefix).ids)
    return list(tokenizer.encode(f"{FIM_PREFIX}{prompt.prefix}{FIM_SUFFIX}{prompt.suffix}{FIM_MIDDLE}").ids)


def run_prompts(generate: Generate, tokenizer: Tokenizer, prompts: Sequence[EvalPrompt] = PROMPTS) -> list[Verdict]:
    """A verdict for each prompt. `generate(ids, max_new_tokens)` is greedy and gives the new ids, no stop token."""
    verdicts = []
    for prompt in prompts:
        text = tokenizer.decode(generate(prompt_ids(prompt, tokenizer), MAX_NEW_TOKENS))
        counts, reason = judge(prompt, text)
        verdicts.append(Verdict(prompt.name, counts, reason, text))
    return verdicts


@dataclass(frozen=True)
class ScoredWindows:
    """ids (windows, 2049) int16, padded; scored (windows, 2048) bool: which next tokens count; total UTF-8 bytes."""

    ids: npt.NDArray[np.int16]
    scored: npt.NDArray[np.bool_]
    bytes: int

    def bits_per_byte(self, nats: float) -> float:
        return nats / math.log(2) / self.bytes


def scored_windows(texts: Sequence[str], tokenizer: Tokenizer) -> ScoredWindows:
    """The held-out texts as windows. Raises ValueError when there is nothing to score."""
    start_id = tokenizer.token_to_id(END_OF_TEXT)
    ids, scored = [], []
    for encoding in tokenizer.encode_batch(list(texts)):
        tokens = np.array([start_id, *encoding.ids], np.int16)
        done = 1
        for start in range(0, len(tokens), STRIDE):
            if done >= len(tokens):
                break
            window = tokens[start : start + MAX_POSITIONS]
            ids.append(np.pad(window, (0, MAX_POSITIONS + 1 - len(window))))
            targets = np.arange(start + 1, start + 1 + MAX_POSITIONS)
            scored.append((targets >= done) & (targets < start + len(window)))
            done = start + len(window)
    if not ids:
        raise ValueError("no held-out text to score")
    return ScoredWindows(np.stack(ids), np.stack(scored), sum(len(text.encode()) for text in texts))
