"""The file map's data for the browser, and its presets: places with a surprise, numbers taken from the file."""

from typing import Any

from lab_engine.bench.models import QWEN_7B
from lab_engine.config import GROUP
from lab_engine.file_map import (
    GROUP_BYTES,
    PAGE,
    SCALE_BYTES,
    pages_per_row,
    sections_of_a_step,
    step_pages,
)
from lab_engine.nanoqwen_file import LAYOUTS, PREAMBLE, Section, scales_name, section_length, tensor_shapes
from widgets.nanoqwen_file_view import HEADER, FileView
from widgets.nanoqwen_file_words import label
from widgets.playground import Preset
from widgets.words import byte_count, percent

GATE = "model.layers.0.mlp.gate_proj.weight"


def map_data(view: FileView) -> dict[str, Any]:
    """What the browser needs besides the bytes: where each section lies and where its JSON does."""
    return {
        "bytes": view.data,
        "size": view.file.size,
        "page": PAGE,
        "group": GROUP,
        "groupBytes": GROUP_BYTES,
        "scaleBytes": SCALE_BYTES,
        "preamble": PREAMBLE.size,
        "layouts": {name: list(order) for name, order in LAYOUTS.items()},
        "stepPages": view.step_pages,
        "parts": [[label(part.name), part.kind, part.offset, part.length] for part in view.parts],
        "sections": [_section_data(view, name) for name in view.names],
    }


def _section_data(view: FileView, name: str) -> dict[str, Any]:
    whole = view.whole(name)
    data = {"name": name, "label": label(name), "kind": whole.kind, "offset": whole.offset, "length": whole.length}
    if name == HEADER:
        return {**data, "rows": len(view.parts), "shape": [len(view.parts)], "step": False}
    section, entry = view.file.sections[name], view.entries[name]
    matrix = {"layout": section.layout, "scales": view.names.index(scales_name(name))} if section.layout else {}
    return {
        **data,
        **matrix,
        "rows": section.shape[0],
        "shape": list(section.shape),
        "step": name in sections_of_a_step(view.file.config),
        "entry": [entry.offset, entry.length],
    }


def map_presets(view: FileView) -> list[Preset]:
    """Places with a surprise; a file whose rows all lie on one page has none for two."""
    parts = [part.name for part in view.parts]
    found = [
        _preset("preamble", _ask_preamble(view), HEADER, "section", parts.index("header length")),
        _preset("nibbles and scales", _ask_scales(), GATE, "group", min(5, view.rows(GATE) - 1)),
        _preset("a whole step", _ask_step(view), view.names[-1], "file"),
    ]
    crossing = _crossing(view)
    if crossing:
        section, pages = crossing
        row = _more_pages(pages)[0]
        found.insert(1, _preset("row across two pages", _ask_rows(section, pages), section.name, "section", row))
    if "padding" in parts:
        found.insert(1, _preset("padding", _ask_padding(view), HEADER, "section", parts.index("padding")))
    return found


def _preset(name: str, ask: str, section: str, level: str, row: int = 0) -> Preset:
    return Preset(name, ask, {"section": section, "row": row, "group": 0, "byte": 0, "level": level})


def _crossing(view: FileView) -> tuple[Section, tuple[int, ...]] | None:
    """The first layer's gate_proj, else any matrix, with pages of its rows until they repeat, if some are more."""
    matrices = [view.matrix(name) for name in (GATE, *view.names)]
    for section in filter(None, matrices):
        pages = pages_per_row(section.shape[1] // 2)[: section.shape[0]]
        if min(pages) < max(pages):
            return section, pages
    return None


def _more_pages(pages: tuple[int, ...]) -> list[int]:
    return [row for row, count in enumerate(pages) if count > min(pages)]


def _ask_preamble(view: FileView) -> str:
    length = view.data[12:16]
    little, big = (int.from_bytes(length, order) for order in ("little", "big"))
    return (
        f"{length.hex(' ')} is {little:,}: the lowest byte comes first. "
        f"Who reads it the other way round waits for a header of {big:,} bytes."
    )


def _ask_padding(view: FileView) -> str:
    end, start = view.parts[-1].offset, view.parts[-1].stop
    none = PAGE - PREAMBLE.size
    return (
        f"The header ends before byte {end:,}, the first section begins at {start:,}. "
        f"A header of {none:,} bytes would need no padding, one of {none + 1:,} bytes {PAGE - 1:,} bytes."
    )


def _ask_rows(section: Section, pages: tuple[int, ...]) -> str:
    rows = " and ".join(map(str, _more_pages(pages)[:2]))
    gate, down = (pages_per_row(k // 2) for k in (QWEN_7B.hidden_size, QWEN_7B.intermediate_size))
    return (
        f"A row has {section.shape[1] // 2} bytes: rows {rows} of every {len(pages)} lie on two pages. "
        f"Of the 7B's gate_proj it is {len(_more_pages(gate))} rows in {len(gate)}; "
        f"every row of its down_proj lies on {min(down)} or {max(down)}."
    )


def _ask_scales() -> str:
    shapes = tensor_shapes(QWEN_7B)
    nibbles, scales = (section_length(*shapes[name]) for name in (GATE, scales_name(GATE)))
    return (
        "One byte holds two weights that are not neighbours, and their scale lies in another section. "
        f"In one gate_proj of the 7B: {byte_count(nibbles)} and {byte_count(scales)}, {percent(scales / nibbles, 1)}."
    )


def _ask_step(view: FileView) -> str:
    return (
        f"One token touches {view.step_pages:,} of the file's {view.pages:,} pages. Which does it leave alone? "
        f"A token of the 7B touches {step_pages(QWEN_7B).total:,}."
    )
