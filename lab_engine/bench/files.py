"""The file's costs: packing weights, opening a large file, comparing its checksums."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import xxhash

from lab_engine.bench.machine import median_seconds, read_bandwidth
from lab_engine.bench.models import QWEN_05B, QWEN_7B, write_random_file
from lab_engine.bench.qwen_tokenizer import CONTROL_TOKENS, qwen_sized_tokenizer
from lab_engine.bench.result import Measurement
from lab_engine.config import ModelConfig
from lab_engine.errors import NanoqwenError
from lab_engine.int4 import BYTES_PER_WEIGHT, dequantize, pack_words, quantize_rows, unpack_words
from lab_engine.nanoqwen_file import (
    ALIGNMENT,
    QUANTIZATION,
    TOKENIZER,
    NanoqwenFile,
    section_length,
    tensor_shapes,
)
from lab_engine.nanoqwen_writer import preamble_and_header
from lab_engine.processes import output_of
from lab_engine.tokenizer import Tokenizer

_ROWS, _K, _PIECE_ROWS = 4096, 4096, 256  # pieces as the converter takes them
_READ_BYTES = 1 << 22
_OPEN_CHILD = Path(__file__).with_name("open_child.py")


def pack_fp16(_: str) -> Measurement:
    """fp16 weights to INT4 words and scales, with the search for scales, as `nanoqwen convert` does it."""
    codes = torch.randint(-8, 8, (_ROWS, _K), generator=torch.Generator().manual_seed(0), dtype=torch.int8)
    codes[:, ::128] = -8  # the largest code in every group: its scale can be found again
    weight = dequantize(codes, torch.full((_ROWS, _K // 128), 2.0**-9)).half()
    noisy = torch.randn(_ROWS, _K, generator=torch.Generator().manual_seed(1)).mul_(0.02).half()

    def pack() -> None:
        for start in range(0, _ROWS, _PIECE_ROWS):
            pack_words(quantize_rows(noisy[start : start + _PIECE_ROWS])[0])

    runs = 5
    taken = median_seconds(pack, runs)
    return Measurement(
        value=noisy.nbytes / taken,
        passed=_comes_back(weight[:_PIECE_ROWS]) and _is_close(noisy[:_PIECE_ROWS]),
        how=f"fp16 bytes a second, median of {runs} times {_ROWS} × {_K} weights",
        limit=read_bandwidth() * 2 / (2 + BYTES_PER_WEIGHT),
    )


def _comes_back(weight: torch.Tensor) -> bool:
    """Weights that INT4 holds exactly are exact after a round trip through the words."""
    q, scales = quantize_rows(weight)
    return torch.equal(dequantize(unpack_words(pack_words(q)), scales), weight.float())


def _is_close(weight: torch.Tensor) -> bool:
    """Normal weights lose no more than the plain scale max|w| / 7 would lose."""
    search, plain = (
        (dequantize(*quantize_rows(weight, method)) - weight.float()).square().mean()
        for method in ("search", "absmax7")
    )
    return bool(search <= plain)


def open_4gb(_: str) -> Measurement:
    """Open a file of the 7B's size with Qwen's number of tokens; the peer reads all of it."""
    with _file_of_7b() as (path, tokens):
        file, runs = NanoqwenFile(path), 9
        last = file.array("lm_head.weight")
        right_shape = last.shape == (QWEN_7B.vocab_size, QWEN_7B.hidden_size // 8)
        start = time.perf_counter()
        known = Tokenizer(file.tokenizer_spec()).vocab_size
        first_use = time.perf_counter() - start
        return Measurement(
            value=median_seconds(lambda: NanoqwenFile(path), runs),
            passed=file.config == QWEN_7B and right_shape and not last[-1].any() and known == tokens + CONTROL_TOKENS,
            how=f"median of {runs} times: map {path.stat().st_size} bytes, check header and structure; "
            f"then the first use of its tokenizer of {known} tokens took {first_use:.2f} s",
            peer=("reading the file", median_seconds(lambda: _read(path), 1)),
        )


def open_memory(_: str) -> Measurement:
    """Resident bytes that opening the same file adds to a process; the peer parses the tokenizer too."""
    with _file_of_7b() as (path, tokens):
        # by its path and with -P: as a module of this package it would import torch, whose memory could be used again
        found = json.loads(output_of([sys.executable, "-P", str(_OPEN_CHILD), str(path)]))
        return Measurement(
            value=found["opened"] - found["started"],
            passed=found["config"] == QWEN_7B.to_dict() and found["tokens"] == tokens,
            how=f"one process that opened {path.stat().st_size} bytes; all of it had {found['started']} resident bytes "
            f"before and {found['opened']} after",
            peer=("opening it and parsing its tokenizer", found["parsed"] - found["started"]),
        )


@contextmanager
def _file_of_7b() -> Iterator[tuple[Path, int]]:
    """A file of the 7B's size, sparse, so that it takes no disk; and the number of text tokens in its tokenizer."""
    tokenizer = qwen_sized_tokenizer()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sparse.nanoqwen"
        try:
            write_sparse_file(path, QWEN_7B, tokenizer)
        except OSError as error:
            raise NanoqwenError(f"bench open: {folder} does not take a file of 4 GB ({error.strerror})") from None
        yield path, len(tokenizer["tokenizer"]["model"]["vocab"])


def verify_file(_: str) -> Measurement:
    """Compare all checksums of a file in the shapes of the 0.5B; the peer only reads it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "random.nanoqwen"
        write_random_file(path, QWEN_05B)
        size, runs = path.stat().st_size, 5
        file = NanoqwenFile(path)
        taken = median_seconds(file.verify, runs)
        intact = file.verify() == []
        file.array("model.norm.weight")[7] += 1  # the mapping is copy-on-write: the file stays as it is
        return Measurement(
            value=size / taken,
            passed=intact and file.verify() == ["model.norm.weight"] and NanoqwenFile(path).verify() == [],
            how=f"median of {runs} times, {size} bytes in the disk cache",
            peer=("reading the file", size / median_seconds(lambda: _read(path), runs)),
        )


def _read(path: Path) -> None:
    buffer = bytearray(_READ_BYTES)
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def write_sparse_file(path: Path, config: ModelConfig, tokenizer: dict[str, Any]) -> None:
    """A file with a right header and tokenizer whose other sections are holes: it opens, but verifying it does not."""
    spec = json.dumps(tokenizer, ensure_ascii=False).encode()
    shapes = {**tensor_shapes(config), TOKENIZER: ("JSON", (len(spec),))}
    sections: dict[str, Any] = {}
    offset = end = 1 << 20
    for name, (dtype, shape) in shapes.items():
        length = section_length(dtype, shape)
        sections[name] = {"dtype": dtype, "shape": shape, "offset": offset, "length": length, "xxh3": "0" * 16}
        sections[name] |= {"layout": "value_shuffle"} if dtype == "INT4" else {}
        end = offset + length
        offset = -(-end // ALIGNMENT) * ALIGNMENT
    sections[TOKENIZER]["xxh3"] = xxhash.xxh3_64_hexdigest(spec)
    header = {"config": config.to_dict(), "quantization": QUANTIZATION, "sections": sections}
    with path.open("wb") as file:
        file.write(preamble_and_header(header))
        file.truncate(end)
        file.seek(sections[TOKENIZER]["offset"])
        file.write(spec)
