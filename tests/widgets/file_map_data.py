"""What Python makes of places in the shipped file; `python -m tests.widgets.file_map_data` writes it for the JavaScript
tests, which read the file's bytes themselves.
"""

import json
import random
import struct
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

from lab_engine import SHIPPED_MODEL, data_path
from lab_engine.file_map import byte_meaning, pages_per_row
from lab_engine.nanoqwen_file import NanoqwenFile
from widgets.nanoqwen_file import FileMap
from widgets.nanoqwen_file_view import HEADER, LEVELS, FileView, Place, chosen, dump_start, shown_pages, stretch_of
from widgets.nanoqwen_file_words import caption, meaning, sentence

DATA_FILE = Path(__file__).parent / "js" / "file_map.json"
GATE = "model.layers.0.mlp.gate_proj.weight"


@cache
def shipped_view() -> FileView:
    return FileView(NanoqwenFile(data_path(SHIPPED_MODEL)))


def some_places(view: FileView) -> list[Place]:
    """Every preset, every kind of section with its first, last and a random row, random bytes of random matrices."""
    chance = random.Random(2)
    presets = FileMap()._presets.values()
    places = [Place(**{name: preset.values[name] for name in Place.__annotations__}) for preset in presets]
    for name in (
        HEADER,
        GATE,
        "tokenizer",
        "model.norm.weight",
        "model.layers.5.mlp.down_proj.scales",
        *view.names[:8],
    ):
        rows = {0, 1, 2, 3, 5, view.rows(name) - 1, chance.randrange(view.rows(name))}
        places += [Place("file", name, 0, 0, 0), *(Place("section", name, row, 0, 0) for row in sorted(rows))]
    crossing = [(GATE, 21), (GATE, 874), ("model.layers.5.mlp.down_proj.weight", 9)]
    places += [Place(level, name, row, 1, 63) for name, row in crossing for level in LEVELS]
    matrices = [name for name in view.names if view.matrix(name)]
    for level in LEVELS[1:] * 12:
        name = chance.choice(matrices)
        rows, k = view.matrix(name).shape
        places.append(Place(level, name, chance.randrange(rows), chance.randrange(k // 128), chance.randrange(64)))
    return places


def case(view: FileView, place: Place) -> dict[str, object]:
    region, stretch = chosen(view, place), stretch_of(view, place)
    found = meaning(view, place)
    return {
        "state": {**asdict(place), "preset": ""},
        "sentence": sentence(view, place),
        "caption": caption(view, place),
        "title": found.title,
        "lines": list(found.lines),
        "code": found.code,
        "dump": dump_start(view, place),
        "chosen": [region.offset, region.length],
        "stretch": [stretch.offset, stretch.length],
        "pages": [region.pages[0], region.pages[-1]],
        "shown": [[shown.start, shown.stop] for shown in (shown_pages(view, place, lines) for lines in (3, 6))],
    }


def byte_cases(view: FileView) -> list[dict[str, object]]:
    """Bytes as the engine reads them, in the file's layout and as if it were the other."""
    chance, cases = random.Random(3), []
    name = "model.layers.3.mlp.down_proj.weight"
    section = view.file.sections[name]
    for layout in ("value_shuffle", "linear") * 20:
        view.file.sections[name] = replace(section, layout=layout)
        path = chance.randrange(384), chance.randrange(7), chance.randrange(64)
        found = byte_meaning(view.file, name, *path)
        cases.append({"layout": layout, "path": [name, *path], "byte": asdict(found)})
    view.file.sections[name] = section
    return cases


def javascript_data() -> dict[str, object]:
    view, playground = shipped_view(), FileMap()
    halves = [*range(0, 65536, 331), 0x8000, 0x7BFF, 0xFBFF, 0x0001, 0x3C00, 0xA7EC]
    return {
        "trace": {name: value for name, value in playground._trace.items() if name != "bytes"},
        "spec": playground._spec,
        "cases": [case(view, place) for place in some_places(view)],
        "bytes": byte_cases(view),
        "halves": [[bits, value] for bits in halves if abs(value := half(bits)) < 1e5],
        "patterns": {row_bytes: pages_per_row(row_bytes) for row_bytes in (192, 256, 448, 1792, 9472, 6)},
        "groups": [[group.name, group.offset, group.length, group.kind] for group in view.groups()],
        "code": [[one._spec["given"], asdict(one.place) | {"preset": one.preset}, one.code] for one in coded()],
    }


def half(bits: int) -> float:
    return float(struct.unpack("<e", bits.to_bytes(2, "little"))[0])


def coded() -> list[FileMap]:
    """Maps of the shipped file, by itself and as a file that somebody gave."""
    deep = {"section": GATE, "row": 7, "group": 1, "byte": 9, "level": "byte"}
    given = data_path(SHIPPED_MODEL)
    return [FileMap(preset="padding"), FileMap(**deep), FileMap(given, preset="padding"), FileMap(given, **deep)]


if __name__ == "__main__":
    DATA_FILE.write_text(json.dumps(javascript_data(), ensure_ascii=False) + "\n", encoding="utf-8")
