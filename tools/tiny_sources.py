"""Where the training text of tiny-coder comes from: distributions with a clearly permissive licence.

A source is one distribution (installed, or downloaded as a wheel or sdist) or the standard library of this interpreter.
Its licence is read from its own metadata; anything that is not plainly permissive is refused.
`tiny_corpus.txt` beside this file pins every source as `name==version  # licence`.
"""

from __future__ import annotations

import email.parser
import importlib.metadata
import platform
import re
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import cast

MANIFEST = Path(__file__).with_name("tiny_corpus.txt")
STDLIB = "cpython"
PERMISSIVE_SPDX = frozenset(
    "0BSD Apache-2.0 BSD-2-Clause BSD-3-Clause BSL-1.0 CC0-1.0 CNRI-Python HPND ISC LLVM-exception MIT MIT-0 MIT-CMU "
    "PSF-2.0 Python-2.0 Zlib".split()
)
PERMISSIVE_NAMES = frozenset(
    name.lower()
    for name in (
        *PERMISSIVE_SPDX,
        "MIT License", "MIT No Attribution License (MIT-0)", "The MIT License (MIT)",
        "BSD", "BSD License", "BSD-3", "BSD 3-Clause License", "New BSD", "3-Clause BSD License",
        "Apache Software License", "Apache License, Version 2.0", "Apache License 2.0", "Apache 2.0",
        "Apache 2.0 License", "Apache",
        "Python Software Foundation License", "PSF", "ISC License (ISCL)", "ISC License",
    )
)  # fmt: skip
APPROVAL_ONLY = ("OSI Approved", "DFSG approved")


class LicenceRefused(ValueError):
    """A distribution whose metadata do not show a permissive licence."""


@dataclass(frozen=True)
class Source:
    """One distribution; `location` is its wheel or sdist, None for an installed one and the standard library."""

    name: str
    version: str
    licence: str
    location: Path | None

    @property
    def pin(self) -> str:
        """`name==version`, without a local version such as "+cpu"."""
        return f"{self.name}=={self.version.partition('+')[0]}"


def permissive_licence(metadata: Message) -> str:
    """The licence of a distribution, from License-Expression, else the classifiers, else the License field.

    Every part of an expression must be permissive, also behind OR. Raises LicenceRefused otherwise.
    """
    expression = metadata.get("License-Expression")
    if expression:
        parts = [part for part in re.split(r"[\s()]+", expression) if part and part not in {"AND", "OR", "WITH"}]
        refused = [part for part in parts if part not in PERMISSIVE_SPDX]
        label = expression
    else:
        classifiers = [c for c in metadata.get_all("Classifier") or [] if c.startswith("License")]
        names = [c.split("::")[-1].strip() for c in classifiers]
        parts = [name for name in names if name not in APPROVAL_ONLY] or [(metadata.get("License") or "").strip()]
        refused = [part for part in parts if part.lower() not in PERMISSIVE_NAMES]
        label = "; ".join(parts)
    if refused:
        found = f"{metadata.get('Name')}: licence {refused[0][:60]!r}"
        raise LicenceRefused(f"{found} is not on the list of permissive licences")
    return " ".join(label.split())


def archive_metadata(path: Path) -> Message:
    """METADATA of a wheel or PKG-INFO of an sdist. Raises KeyError when the archive has none."""
    for name, data in archive_members(path, ("METADATA", "PKG-INFO")):
        depth = name.count("/")
        if depth == 1:
            return email.parser.Parser().parsestr(data.decode("utf-8", "replace"))
    raise KeyError(f"{path.name}: no METADATA or PKG-INFO")


def archive_members(path: Path, endings: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    """(member name, bytes) of the files of a wheel or sdist whose names end in one of `endings`."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            for name in wheel.namelist():
                if name.endswith(endings):
                    yield name, wheel.read(name)
        return
    with tarfile.open(path) as sdist:
        for member in sdist:
            if member.isfile() and member.name.endswith(endings):
                stream = sdist.extractfile(member)
                if stream is not None:
                    yield member.name, stream.read()


def python_files(source: Source) -> Iterator[tuple[str, bytes]]:
    """(path inside the distribution, bytes) of every .py file of a source, in sorted order of paths."""
    if source.location is not None:
        yield from sorted(archive_members(source.location, (".py",)))
    elif source.name == STDLIB:
        root = Path(sysconfig.get_paths()["stdlib"])
        paths = sorted(p for p in root.rglob("*.py") if "site-packages" not in p.parts)
        yield from ((p.relative_to(root).as_posix(), p.read_bytes()) for p in paths)
    else:
        files = importlib.metadata.distribution(source.name).files or []
        for file in sorted(files):
            located = Path(str(file.locate()))
            if file.suffix == ".py" and located.is_file():
                yield file.as_posix(), located.read_bytes()


def installed_sources() -> list[Source]:
    """The permissively licensed distributions installed beside this interpreter, by name."""
    found = {}
    for distribution in importlib.metadata.distributions():
        try:
            licence = permissive_licence(cast(Message, distribution.metadata))
        except LicenceRefused as refusal:
            print(f"refused: {refusal}", file=sys.stderr)
            continue
        found[distribution.name.lower()] = Source(distribution.name, distribution.version, licence, None)
    return [found[name] for name in sorted(found)]


def downloaded_sources(folder: Path) -> list[Source]:
    """The permissively licensed wheels and sdists of a folder, by file name."""
    sources = []
    for path in sorted(p for p in folder.glob("*") if p.name.endswith((".whl", ".tar.gz", ".zip"))):
        try:
            metadata = archive_metadata(path)
            sources.append(Source(str(metadata["Name"]), str(metadata["Version"]), permissive_licence(metadata), path))
        except (LicenceRefused, KeyError) as refusal:
            print(f"refused: {refusal}", file=sys.stderr)
    return sources


def standard_library() -> Source:
    """The library of this interpreter."""
    return Source(STDLIB, platform.python_version(), "PSF-2.0", None)


def read_manifest(path: Path = MANIFEST) -> list[str]:
    """The pins (`name==version`) of a manifest, in its order."""
    lines = (line.split("#")[0].strip() for line in path.read_text("utf-8").splitlines())
    return [line for line in lines if line]


def fetch(pins: list[str], folder: Path, workers: int = 4) -> list[str]:
    """Downloads what is pinned, neither installed at that version nor in `folder`; returns the pins that failed."""
    folder.mkdir(parents=True, exist_ok=True)
    have = {source.pin for source in (*installed_sources(), *downloaded_sources(folder), standard_library())}
    wanted = [pin for pin in pins if pin not in have and not pin.startswith(f"{STDLIB}==")]
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--retries", "3", "-d", str(folder)]

    def download(pin: str) -> bool:
        return subprocess.run([*command, pin], check=False, timeout=600).returncode == 0

    with ThreadPoolExecutor(workers) as pool:
        return [pin for pin, done in zip(wanted, pool.map(download, wanted), strict=True) if not done]


def pinned_sources(pins: list[str], folder: Path) -> list[Source]:
    """The pinned sources that are here, in the manifest's order; what is missing is named on stderr and skipped."""
    have = {source.pin: source for source in (*downloaded_sources(folder), *installed_sources(), standard_library())}
    for pin in pins:
        if pin not in have:
            print(f"missing: {pin} (run `tiny_corpus.py fetch`)", file=sys.stderr)
    return [have[pin] for pin in pins if pin in have]
