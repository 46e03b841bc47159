"""Lab 02: a .nanoqwen file as a map to zoom into, from the whole file to the two weights in one byte.

The engine says what the bytes are and which pages they lie on (`lab_engine/file_map.py`). The browser gets the bytes
themselves once, so that scrubbing asks nobody.
"""

from functools import cache
from pathlib import Path
from typing import Any

import traitlets

from lab_engine import SHIPPED_MODEL, data_path
from lab_engine.config import GROUP
from lab_engine.errors import NanoqwenError
from lab_engine.file_map import GROUP_BYTES
from lab_engine.nanoqwen_file import NanoqwenFile
from widgets.nanoqwen_file_data import map_data, map_presets
from widgets.nanoqwen_file_png import file_png
from widgets.nanoqwen_file_text import file_text
from widgets.nanoqwen_file_view import HEADER, LEVELS, FileView, Place
from widgets.nanoqwen_file_words import NOUNS, sentence
from widgets.playground import Badge, Playground, Value

PART = {"file": "section", "section": "row", "row": "group", "group": "byte", "byte": "byte"}
"""What one chooses at each level."""
LARGEST = 16 << 20
"""Bytes of the largest file that is sent to the browser."""


@cache
def _shipped_view() -> FileView:
    return FileView(NanoqwenFile(data_path(SHIPPED_MODEL)))


class FileMap(Playground):
    """The shipped file, or the file at `path` (up to 16 MB), as a map of five levels.

    `level` is file, section, row, group or byte; a level shows that thing and which of its parts is chosen. `section`
    is a section's name, or "header" for preamble and header, whose rows are their parts; `row`, `group` and `byte` say
    where one is in it. `step` counts the parts of the level, so `step = 21` at the level section is `row = 21`.
    """

    title = "The file as a map"
    lab = "lab 02"
    ask = "Choose a part, then zoom in with Enter or a second click. Backspace zooms out."
    badge = Badge("computed", "the file's own bytes; pages are counted, not measured: the kernel may fetch more")
    script = "nanoqwen_file.js"
    keeps_preset = False
    fields = ("preset", "section", "row", "group", "byte", "level")

    section = traitlets.Unicode(HEADER).tag(sync=True)
    row = traitlets.Int(0).tag(sync=True)
    group = traitlets.Int(0).tag(sync=True)
    byte = traitlets.Int(0).tag(sync=True)
    level = traitlets.Enum(LEVELS, "file").tag(sync=True)

    def __init__(self, path: str | Path | None = None, **state: Value | None) -> None:
        self._view = _shipped_view() if path is None else FileView(_small_file(Path(path)))
        if path is not None:
            self.given = "path"
        in_order = {name: state.pop(name) for name in self.fields if name in state}  # a row is checked in its section
        super().__init__(map_data(self._view), map_presets(self._view), **in_order, **state)

    # State ----------------------------------------------------------------------------------------------------------

    _settling = False

    @property
    def place(self) -> Place:
        """Level and path as one value."""
        return Place(self.level, self.section, self.row, self.group, self.byte)

    def step_count(self) -> int:
        """How many parts the level has to choose from."""
        return self._count(PART[self.level])

    def _count(self, part: str) -> int:
        if part == "group":
            matrix = self._view.matrix(self.section)
            return matrix.shape[1] // GROUP if matrix else 1
        return {"section": len(self._view.names), "row": self._view.rows(self.section), "byte": GROUP_BYTES}[part]

    @traitlets.validate("section")
    def _check_section(self, proposal: Any) -> str:
        name = proposal["value"]
        if name not in self._view.names:
            count = len(self._view.names) - 1
            raise traitlets.TraitError(f'section is "{name}", expected "{HEADER}" or one of {count} sections')
        return str(name)

    @traitlets.validate("row", "group", "byte")
    def _check_index(self, proposal: Any) -> int:
        name, value = proposal["trait"].name, proposal["value"]
        count = self._count(name)
        if not 0 <= value < count:
            raise traitlets.TraitError(f"{name} is {value}, expected 0 to {count - 1} in {self.section}")
        return int(value)

    @traitlets.validate("level")
    def _check_level(self, proposal: Any) -> str:
        if LEVELS.index(proposal["value"]) > 1 and self._view.matrix(self.section) is None:
            found = f'level is "{proposal["value"]}", but {self.section} holds no INT4 weights'
            raise traitlets.TraitError(f"{found}; expected file or section")
        return str(proposal["value"])

    @traitlets.observe("section", "row", "group", "byte", "level")
    def _follow(self, change: Any) -> None:
        """Keep what is deeper inside what was chosen, `step` at the level's part, and a preset only where it holds."""
        if self._settling:
            return
        if change["name"] == "section":
            self._settling = True  # row, group and level belong together again only when all three are set
            try:
                self._stay_inside()
            finally:
                self._settling = False
        chosen = getattr(self, PART[self.level])
        self.step = self._view.names.index(chosen) if self.level == "file" else chosen
        preset = self._presets.get(self.preset)
        if preset and not self._applying and preset.values.get(change["name"]) != change["new"]:
            self.preset = ""

    def _stay_inside(self) -> None:
        self.row, self.group = (min(getattr(self, name), self._count(name) - 1) for name in ("row", "group"))
        if self._view.matrix(self.section) is None and self.level not in LEVELS[:2]:
            self.level = "section"

    @traitlets.observe("step")
    def _lead(self, change: Any) -> None:
        part, step = PART[self.level], change["new"]
        if part == "section":
            self._enter(self._view.names[step])
        else:
            setattr(self, part, step)

    def _enter(self, name: str) -> None:
        """Another section; a part of the header is no row of a matrix, so its number is not taken along."""
        nouns = {NOUNS[self._view.whole(one).kind] for one in (self.section, name)}
        self.section = name
        if len(nouns) > 1:
            self.row = 0

    # What the base asks for -----------------------------------------------------------------------------------------

    @property
    def sentence(self) -> str:
        """`layer 0 mlp.gate_proj.weight · row 21 · bytes 1,167,296–1,167,487 · 2 pages 284–285`."""
        return sentence(self._view, self.place)

    def text_picture(self) -> str:
        """The file as a strip of letters, the path, 64 bytes in hex and their meaning."""
        return file_text(self._view, self.place)

    def png(self) -> bytes:
        """The level as the browser shows it."""
        return file_png(self._view, self.place)


def _small_file(path: Path) -> NanoqwenFile:
    file = NanoqwenFile(path)
    if file.size > LARGEST:
        raise NanoqwenError(f"{path}: {file.size} bytes, a map takes at most {LARGEST}; use nanoqwen inspect {path}")
    return file
