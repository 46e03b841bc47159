"""The warp's loads in words and letters; static/gemv_loads_data.js finds the same words for the same state."""

import math
import re
from collections.abc import Mapping

from lab_engine.gemv_loads import LANES, LINE_BYTES, SECTOR_BYTES, LaneLoad, LoadTrace, Request, trace_loads
from widgets.gemv_loads_data import ROWS, loads_data
from widgets.words import byte_count, percent, span

SHOWN = 2
"""Requests of an iteration that are drawn; the others are alike."""
LETTERS = 72
"""Sectors in letters: how many fit into a line."""


class Scene:
    """One state: the engine's trace of it, and the words that the browser also finds for it."""

    def __init__(self, pattern: str, k: int, shift: int, warp: int, lane: int, step: int) -> None:
        self.pattern, self.k, self.shift, self.step = pattern, k, shift, step
        self.data = loads_data()["patterns"][pattern]
        self.lane = 0 if self.data["bulk"] else lane
        self.block, self.warp = divmod(warp, self.data["warps"])
        self.trace: LoadTrace = trace_loads(pattern, ROWS, k, self.block, self.warp, step, shift)
        self.chosen: tuple[LaneLoad, ...] = self.trace.lane(self.lane)

    @property
    def shown(self) -> LaneLoad:
        """The load whose row is drawn: the chosen lane's first, or the first of the warp where that lane idles."""
        return (self.chosen or self.trace.requests[0].loads)[0]

    def in_row(self) -> tuple[int, int]:
        """[start, stop) of what this iteration reads of the drawn row, in its bytes."""
        mine = [one for request in self.trace.requests for one in request.loads if one.row == self.shown.row]
        return min(one.offset for one in mine), min(self.k // 2, max(one.offset + one.size for one in mine))

    @property
    def iteration(self) -> str:
        """`iteration 2`, or `chunk 0` of a bulk copy."""
        return f"{'chunk' if self.data['bulk'] else 'iteration'} {self.step}"

    @property
    def used(self) -> str:
        """The share of the moved bytes that a lane asked for: `12.5 %`."""
        return share(self.trace.efficiency)

    @property
    def note(self) -> str:
        """A sentence about the pattern."""
        note: str = self.data["notes"][str(self.shift)]
        return note

    def pattern_words(self) -> str:
        """How the matrix is read, and how many requests are drawn where that is not all."""
        count = len(self.trace.requests)
        return f"{self.data['words']}{f', {SHOWN} of {count} shown' if count > SHOWN else ''}"

    def title(self) -> str:
        """Which warp and which iteration."""
        who = "first copies" if self.data["bulk"] else f"warp {self.warp}"
        return f"{who} of block {self.block}, {self.iteration}"

    def bar_words(self) -> str:
        """Over the bar: what was used and what moved for nobody."""
        used, moved = self.trace.used, self.trace.moved
        nobody = f", {moved - used} B for nobody" if moved > used else ""
        return f"{used} B used of {moved} B moved{nobody}"

    def producer_words(self) -> str:
        """In place of the lanes, where none of them reads."""
        count, size = len(self.trace.requests), self.shown.size
        copies = f"{count} {'copy' if count == 1 else 'copies'} of {size} B"
        return f"one thread asks for {copies}; no lane of a warp reads this memory"

    def sectors(self) -> str:
        """`16 sectors`, or `2 × 16 sectors` of two requests."""
        counts = [len(request.sectors) for request in self.trace.requests]
        return f"{counts[0]} sectors" if len(counts) == 1 else f"{len(counts)} × {counts[0]} sectors"

    def lane_words(self) -> str:
        """`lane 9: row 5, bytes 10128–10143, group 18`, or that it idles."""
        who = "producer" if self.data["bulk"] else f"lane {self.lane}"
        if not self.chosen:
            return f"{who}: idle, past the end of the row"
        one, more = self.chosen[0], len(self.chosen) - 1
        again = f", and {more} more" if more else ""
        if self.data["bulk"]:
            return f"{who}: {one.size} bytes from byte {one.start}, row {one.row}{again}"
        return f"{who}: row {one.row}, bytes {span(one.start, one.start + one.size - 1)}, group {one.group}{again}"

    def sentence(self) -> str:
        """The state in one line."""
        shift = f", + {self.shift} B" if self.shift else ""
        kind = f"{self.pattern}, K {self.k}{shift}"
        return " · ".join([kind, self.iteration, self.lane_words(), f"{self.sectors()}, {self.used} used"])

    def formulas(self) -> list[tuple[str, str]]:
        """Three rows (name, text): the byte's expression, it with its numbers, the group; or why the lane idles."""
        shown = self.shown
        at = {"row": shown.row, "k": self.k, "i": self.step, "chunk": self.step, "lane": self.lane}
        if not self.chosen:
            text = self.data["active"]["text"]
            return [("reads if", text), ("", f"{numbers_in(text, at)} is false"), ("", "the row has ended")]
        text, group = self.data["byte"]["text"], loads_data()["group"]["text"]
        first, last = shown.weight, shown.weight + 2 * min(shown.size, self.k // 2 - shown.offset) - 1
        groups = numbers_in(group, {"offset": shown.offset})
        return [
            ("byte", text),
            ("", f"{numbers_in(text, at)} = {shown.start}"),
            ("group", f"{group} = {groups} = {shown.group}, weights {first}–{last} of the row"),
        ]

    def request_words(self, request: Request) -> tuple[str, str]:
        """Under the sectors of a request: which rows, how many sectors and lines; and where it begins."""
        rows, count = (request.loads[0].row, request.loads[-1].row), len(request.lines)
        if self.data["bulk"]:
            rows = (rows[0], (request.loads[0].start + request.loads[0].size - 1) // (self.k // 2))
        which = f"row {rows[0]}" if rows[0] == rows[1] else f"rows {rows[0]} to {rows[1]}"
        lines = f"{count} line{'s' if count > 1 else ''} of {LINE_BYTES} B"
        late = f" · the matrix begins {self.shift} B late" if self.shift else ""
        start = f"from byte {request.loads[0].start}{late}"
        return f"{which}: {len(request.sectors)} sectors of {SECTOR_BYTES} B in {lines}", start

    def row_words(self) -> tuple[str, str]:
        """What the strip of a whole row shows: the row, and the part of this iteration."""
        start, stop = self.in_row()
        count = str(self.trace.iterations) if self.data["bulk"] else short(self.k // 2 / self.data["stride"], 3)
        unit = "chunks" if self.data["bulk"] else "iterations"
        if count == "1":
            unit = unit[:-1]
        return (
            f"row {self.shown.row}: {self.k // 2} bytes, {count} {unit}",
            f"{self.iteration}: {span(start, stop - 1)}",
        )

    def total_words(self) -> str:
        """The whole matrix without a cache."""
        used, moved = self.data["totals"][str(self.k)][str(self.shift)]
        return (
            f"{ROWS} × {self.k} without a cache: {byte_count(used)} used, {byte_count(moved)} moved, "
            f"{short(moved / used, 2)} ×"
        )


def share(part: float) -> str:
    """A share in percents, with a digit after the point where it is not whole: `12.5 %`, `100 %`."""
    return percent(part, 1).replace(".0 %", " %")


def short(number: float, digits: int) -> str:
    """A number of at most so many digits after the point, half up, without zeros at its end: `3.5`, `8`."""
    return f"{math.floor(number * 10**digits + 0.5) / 10**digits:g}"


def numbers_in(text: str, at: Mapping[str, int]) -> str:
    """An expression with the numbers put in for its names."""
    return re.sub(r"[a-z]\w*", lambda name: str(at[name[0]]), text)


def loads_text(scene: Scene) -> str:
    """Lanes and sectors in letters, then where the byte comes from, and the whole matrix."""
    return "\n".join([
        f"lanes    {_lanes(scene)}",
        *(row for request in scene.trace.requests[:SHOWN] for row in _sector_rows(request, scene.shift)),
        "         # used, + used in part, . moved for nobody; a letter is 16 B, a group a line of 128 B",
        "",
        *(f"{name:<9}{text}" for name, text in scene.formulas()),
        f"{'whole':<9}{scene.total_words()}",
    ]).translate({0x2013: "-", 0xD7: "x"})  # fmt: skip


def _lanes(scene: Scene) -> str:
    if scene.data["bulk"]:
        return scene.producer_words()
    letters = ["#" if scene.trace.lane(lane) else "-" for lane in range(LANES)]
    letters[scene.lane] = "@" if scene.chosen else "!"
    quarters = " ".join("".join(letters[at : at + 8]) for at in range(0, LANES, 8))
    return f"{quarters}  # reads, - idle, {'@' if scene.chosen else '!'} lane {scene.lane}"


def _sector_rows(request: Request, shift: int) -> list[str]:
    """Half a sector a letter, a group a line."""
    used = {byte + shift for load in request.loads for byte in range(load.start, load.start + load.size)}
    groups = [
        "".join(_halves(sector, used) for sector in request.sectors if sector // 4 == line) for line in request.lines
    ]
    rows = [""]
    for group in groups:
        if len(rows[-1]) + len(group) + 1 > LETTERS:
            rows.append("")
        rows[-1] += ("|" if rows[-1] else "") + group
    return [f"{'sectors' if at == 0 else '':<9}{row}" for at, row in enumerate(rows)]


def _halves(sector: int, used: set[int]) -> str:
    letters = []
    for start in (sector * SECTOR_BYTES, sector * SECTOR_BYTES + SECTOR_BYTES // 2):
        count = sum(byte in used for byte in range(start, start + 16))
        letters.append("#" if count == 16 else "+" if count else ".")
    return "".join(letters)
