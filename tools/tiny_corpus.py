"""Builds the packed corpus of tiny-coder: fetch, clean, split, de-duplicate, tokenize, pack.

    python -m tools.tiny_corpus pin      writes tiny_corpus.txt from what is installed and in .corpus/packages
    python -m tools.tiny_corpus fetch    downloads what tiny_corpus.txt pins and is not here
    python -m tools.tiny_corpus build    writes .corpus/packed and data/README.md; finished stages are not repeated

.corpus/packed holds the tokenizer's files, train.files.N.xz and train.definitions.N.xz (uint16 ids, little-endian),
held_out.jsonl.xz and corpus.json.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import lzma
import multiprocessing
import random
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer
from tqdm import tqdm

from tools import tiny_filter, tiny_forms, tiny_readme, tiny_sources
from tools.tiny_filter import SourceFile
from tools.tiny_sources import Source
from tools.tiny_tokenizer import train_tokenizer, write_json, write_tokenizer

ROOT = Path(__file__).resolve().parent.parent
CORPUS = ROOT / ".corpus"
SEED = 20240607
HELD_OUT_PACKAGES = 14
HELD_OUT_BYTES = (150_000, 4_000_000)
TEST_SHARE = 0.2
FIM_SHARE = 0.14
CHAT_SHARE = 0.04
DEFINITION_CHARS = 64_000_000
DEFINITION_REPEATS = 2
TOKENIZER_BYTES = 60_000_000
PARTS = 4


def clean_source(source: Source) -> Path:
    """Writes the kept files of one source to .corpus/clean as JSON lines; a finished source is not cleaned again."""
    target = CORPUS / "clean" / f"{source.name}-{source.version}.jsonl"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_suffix(".partial")
        with partial.open("w", encoding="utf-8") as out:
            for path, data in tiny_sources.python_files(source):
                text = tiny_filter.clean_text(path, data)
                if text is not None:
                    out.write(json.dumps([path, text]) + "\n")
        partial.rename(target)
    return target


def clean_files(source: Source) -> list[SourceFile]:
    """The kept files of one source, in order of paths."""
    lines = clean_source(source).read_text("utf-8").splitlines()
    return [SourceFile(source.name, path, text) for path, text in map(json.loads, lines)]


def seeded(name: str, seed: int = SEED) -> str:
    """A hash that puts names into a fixed, arbitrary order."""
    return hashlib.sha256(f"{seed}:{name.lower()}".encode()).hexdigest()


def held_out_names(sizes: dict[str, int], count: int = HELD_OUT_PACKAGES) -> list[str]:
    """The packages to hold out: the first `count` in hash order among those of middle size. Results play no part."""
    low, high = HELD_OUT_BYTES
    return sorted((name for name, size in sizes.items() if low <= size <= high), key=seeded)[:count]


def capped_tests(files: list[SourceFile]) -> list[SourceFile]:
    """The files with tests thinned, in hash order, to TEST_SHARE of the bytes."""
    rest = sum(len(f.text) for f in files if not tiny_filter.is_test(f.path))
    budget = rest * TEST_SHARE / (1 - TEST_SHARE)
    kept = set()
    for file in sorted((f for f in files if tiny_filter.is_test(f.path)), key=lambda f: seeded(f.source + f.path)):
        budget -= len(file.text)
        if budget < 0:
            break
        kept.add((file.source, file.path))
    return [f for f in files if not tiny_filter.is_test(f.path) or (f.source, f.path) in kept]


def split_corpus(by_source: dict[str, list[SourceFile]]) -> tuple[list[SourceFile], list[SourceFile]]:
    """(training files, held-out files), both without near-duplicates, the former without any of the latter."""
    held_names = held_out_names({name: sum(len(f.text) for f in files) for name, files in by_source.items()})
    held_out = list(tiny_filter.deduplicate(f for name in sorted(held_names) for f in by_source[name]))
    pool = [f for name, files in by_source.items() if name not in held_names for f in files]
    train = tiny_filter.deduplicate(tiny_filter.remove_near(tqdm(pool, "de-duplicate", mininterval=5), held_out))
    return capped_tests(list(train)), held_out


def training_texts(files: list[SourceFile], seed: int = SEED) -> Iterator[tuple[str, str]]:
    """(form, text) of all training text: each file plain or as FIM sections, then the chats."""
    chat_budget = CHAT_SHARE * sum(len(f.text) for f in files)
    for file in files:
        rng = random.Random(seeded(f"{file.source}/{file.path}", seed))
        if rng.random() < FIM_SHARE:
            for section in tiny_forms.sections(file.text):
                yield "fim", tiny_forms.fim_form(tiny_forms.split_middle(section, rng))
        else:
            yield "plain", tiny_forms.plain_form(file.text)
    for file in sorted(files, key=lambda f: seeded(f"chat/{f.source}/{f.path}", seed)):
        for request, answer in tiny_forms.chat_pairs(file.text, random.Random(seeded(file.path, seed))):
            text = tiny_forms.chat_form(request, answer)
            chat_budget -= len(text)
            if chat_budget < 0:
                return
            yield "chat", text


def definition_texts(files: list[SourceFile], limit: int = DEFINITION_CHARS) -> Iterator[tuple[str, str]]:
    """("definition", text) of different short functions and classes, none of tests, up to `limit` characters."""
    seen: set[str] = set()
    for file in sorted(files, key=lambda f: seeded(f"definitions/{f.source}/{f.path}")):
        if tiny_filter.is_test(file.path):
            continue
        rng = random.Random(seeded(f"definitions/{file.path}"))
        for code in tiny_forms.definitions(file.text):
            if code in seen:
                continue
            seen.add(code)
            limit -= len(code)
            if limit < 0:
                return
            yield "definition", tiny_forms.definition_form(code, rng)


def tokenizer_sample(files: list[SourceFile], limit: int = TOKENIZER_BYTES) -> Iterator[str]:
    """Whole files in a fixed arbitrary order, up to `limit` characters."""
    for file in sorted(files, key=lambda f: seeded(f"bpe/{f.source}/{f.path}")):
        limit -= len(file.text)
        if limit < 0:
            return
        yield file.text


def encode_texts(
    tokenizer: Tokenizer, texts: Iterable[tuple[str, str]]
) -> tuple[npt.NDArray[np.uint16], dict[str, int]]:
    """(all ids in order, tokens of each form)."""
    chunks: list[npt.NDArray[np.uint16]] = []
    shares: dict[str, int] = {}
    batch: list[tuple[str, str]] = []

    def flush() -> None:
        encodings = tokenizer.encode_batch([text for _, text in batch], add_special_tokens=False)
        for (form, _), encoding in zip(batch, encodings, strict=True):
            chunks.append(np.array(encoding.ids, np.uint16))
            shares[form] = shares.get(form, 0) + len(encoding.ids)
        batch.clear()

    for item in tqdm(texts, "tokenize", mininterval=5):
        batch.append(item)
        if len(batch) == 512:
            flush()
    flush()
    return np.concatenate(chunks), shares


def pack_ids(ids: npt.NDArray[np.uint16], folder: Path, kind: str, parts: int) -> None:
    """Writes train.KIND.0.xz … in equal parts, two at a time."""
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 7, "dict_size": 1 << 26, "lc": 3, "lp": 1, "pb": 1}]

    def write(item: tuple[int, npt.NDArray[np.uint16]]) -> None:
        data = lzma.compress(item[1].astype("<u2").tobytes(), lzma.FORMAT_XZ, filters=filters)
        (folder / f"train.{kind}.{item[0]}.xz").write_bytes(data)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, enumerate(np.array_split(ids, parts))))


def load_ids(folder: Path) -> npt.NDArray[np.uint16]:
    """The training ids of a packed corpus, definitions twice. Raises FileNotFoundError when it has none."""
    paths = [
        *sorted(folder.glob("train.files.*.xz")),
        *sorted(folder.glob("train.definitions.*.xz")) * DEFINITION_REPEATS,
    ]
    if not paths:
        raise FileNotFoundError(f"{folder}: no train.*.xz; build the corpus first")
    with ThreadPoolExecutor(8) as pool:
        parts = list(pool.map(lambda p: np.frombuffer(lzma.decompress(p.read_bytes()), "<u2"), paths))
    return np.concatenate(parts)


def load_held_out(folder: Path) -> list[SourceFile]:
    """The held-out files of a packed corpus, in their fixed order."""
    lines = lzma.decompress((folder / "held_out.jsonl.xz").read_bytes()).decode().splitlines()
    return [SourceFile(*json.loads(line)) for line in lines]


def describe(sources: list[Source], train: list[SourceFile], held_out: list[SourceFile]) -> dict[str, Any]:
    """What corpus.json and data/README.md tell: bytes and files of each source, and which are held out."""
    rows = []
    for source in sources:
        mine = [f for f in (*train, *held_out) if f.source == source.name]
        size = sum(len(f.text.encode()) for f in mine)
        held = any(f.source == source.name for f in held_out)
        rows.append({"pin": source.pin, "licence": source.licence, "files": len(mine), "bytes": size, "held_out": held})
    digest = hashlib.sha256(
        "".join(f"{f.source}\0{f.path}\0{f.text}\0" for f in (*train, *held_out)).encode()
    ).hexdigest()
    return {"seed": SEED, "sources": rows, "sha256": digest}


def build(sources: list[Source], packed: Path) -> dict[str, Any]:
    """Runs every stage and returns what corpus.json holds."""
    packed.mkdir(parents=True, exist_ok=True)
    with multiprocessing.Pool(2) as pool:
        list(tqdm(pool.imap_unordered(clean_source, sources), "clean", len(sources), mininterval=5))
    train, held_out = split_corpus({source.name: clean_files(source) for source in sources})
    tokenizer = train_tokenizer(tokenizer_sample(train))
    write_tokenizer(tokenizer, packed)
    ids, shares = encode_texts(tokenizer, training_texts(train))
    pack_ids(ids, packed, "files", PARTS)
    definition_ids, definition_shares = encode_texts(tokenizer, definition_texts(train))
    pack_ids(definition_ids, packed, "definitions", 1)
    lines = "\n".join(json.dumps([f.source, f.path, f.text]) for f in held_out)
    (packed / "held_out.jsonl.xz").write_bytes(lzma.compress(lines.encode(), preset=9))
    record = describe(sources, train, held_out)
    sample = [f.text for f in held_out]
    tokens = sum(len(e.ids) for e in tokenizer.encode_batch(sample))
    record |= {
        "train_bytes": sum(len(f.text.encode()) for f in train),
        "train_tokens": int(ids.size + definition_ids.size),
        "tokens_by_form": shares | definition_shares,
        "held_out_bytes": sum(len(text.encode()) for text in sample),
        "held_out_bytes_per_token": sum(len(text.encode()) for text in sample) / tokens,
    }
    write_json(packed / "corpus.json", record)
    return record


def write_manifest(sources: list[Source]) -> None:
    """Writes tiny_corpus.txt."""
    head = "# Sources of the training text: name==version  # licence. Written by `python -m tools.tiny_corpus pin`.\n"
    tiny_sources.MANIFEST.write_text(head + "".join(f"{s.pin}  # {s.licence}\n" for s in sources), encoding="utf-8")


def main() -> None:
    """Runs one stage."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=["pin", "fetch", "build"])
    stage = parser.parse_args().stage
    packages = CORPUS / "packages"
    if stage == "pin":
        found = {
            s.name.lower(): s for s in (*tiny_sources.installed_sources(), *tiny_sources.downloaded_sources(packages))
        }
        write_manifest([tiny_sources.standard_library(), *(found[name] for name in sorted(found))])
    elif stage == "fetch":
        failed = tiny_sources.fetch(tiny_sources.read_manifest(), packages)
        print(f"could not download: {', '.join(failed)}" if failed else "every pinned source is here")
    else:
        record = build(tiny_sources.pinned_sources(tiny_sources.read_manifest(), packages), CORPUS / "packed")
        (ROOT / "data" / "README.md").write_text(tiny_readme.data_readme(record), encoding="utf-8")
        print(json.dumps({key: value for key, value in record.items() if key != "sources"}, indent=2))


if __name__ == "__main__":
    main()
