"""The file map's own picture of each level as a PNG has it; the same as static/nanoqwen_levels.js draws."""

import itertools
from collections.abc import Iterator
from functools import lru_cache

from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath

from lab_engine.file_map import GROUP_BYTES, PAGE, Region, byte_meaning, pages_per_row, sections_of_a_step
from lab_engine.nanoqwen_file import LAYOUTS
from widgets.figures import Canvas
from widgets.nanoqwen_file_view import HEADER, LEVELS, FileView, Place, chosen, shown_pages
from widgets.nanoqwen_file_words import label, row_value
from widgets.words import signed, significant

WIDTH, MARGIN = 868, 16
LINE, HIGH, PITCH, LINES = 16, 20, 25, 6
BAR_Y, BAR_HIGH, STRETCH_Y = 40, 12, 64
PICTURE_Y, PICTURE_HIGH, TEXTS_Y = 114, 170, 296
HUES = {"INT4": "c1", "F16": "c2", "F32": "c3", "padding": "hatch"}


class Picture:
    """A canvas inside its margin, and what is drawn on it."""

    def __init__(self, view: FileView, place: Place) -> None:
        self.view, self.place = view, place
        self.canvas = Canvas(WIDTH + 2 * MARGIN, TEXTS_Y + 102 + 2 * MARGIN)
        self.chosen = chosen(view, place)
        self.deep = LEVELS.index(place.level) > 1

    def rect(self, x: float, y: float, width: float, height: float, classes: str) -> None:
        """An area; x, y from the picture's own corner."""
        self.canvas.rect(MARGIN + x, MARGIN + y, width, height, classes)

    def line(self, x1: float, y1: float, x2: float, y2: float, classes: str = "rule") -> None:
        """A straight line."""
        self.canvas.line(MARGIN + x1, MARGIN + y1, MARGIN + x2, MARGIN + y2, classes)

    def text(self, x: float, y: float, string: str, classes: str = "") -> None:
        """A text centred on the height y."""
        self.canvas.text(MARGIN + x, MARGIN + y, string, classes)

    def outline(self, x: float, y: float, width: float, height: float, classes: str) -> None:
        """A rectangle of lines, which lie above everything that is filled."""
        for at in (y, y + height):
            self.line(x, at, x + width, at, classes)
        for at in (x, x + width):
            self.line(at, y, at, y + height, classes)

    def title(self, left: str, right: str = "") -> None:
        """The words above the level's picture."""
        self.text(0, PICTURE_Y + 8, left, "b")
        self.text(WIDTH, PICTURE_Y + 8, right, "e s mu")


def fill(kind: str) -> str:
    """The classes of a section's area by its kind."""
    hue = HUES.get(kind, "c4")
    return hue if hue == "hatch" else f"{hue} fill"


def _file(picture: Picture) -> None:
    view, own = picture.view, picture.chosen.pages
    picture.title(
        f"The file's {view.pages:,} pages of 4 KiB",
        f"{len(own):,} in the selection · {view.step_pages:,} touched by a step · hatched: the rest",
    )
    cell = next(c for c in range(10, 1, -1) if -(-view.pages // (WIDTH // c)) * c <= PICTURE_HIGH - 24 or c == 2)
    step = sections_of_a_step(view.file.config)
    for name in view.names:
        region = view.whole(name)
        for x, y, wide in _runs(region.pages, cell):
            picture.rect(x, y, wide, cell, fill(region.kind) if name in step else "hatch")
    for at in range(1, WIDTH // cell):
        rows = -(-(view.pages - at) // (WIDTH // cell))
        picture.line(at * cell, PICTURE_Y + 24, at * cell, PICTURE_Y + 24 + rows * cell)
    for x, y, wide in _runs(own, cell):
        picture.outline(x, y, wide, cell, "sel")


def _runs(pages: range, cell: int) -> Iterator[tuple[float, float, float]]:
    """x, y and width of a run of pages in each row of cells that it lies on."""
    columns = WIDTH // cell
    for row, run in itertools.groupby(pages, lambda page: page // columns):
        numbers = list(run)
        yield numbers[0] % columns * cell, PICTURE_Y + 24 + row * cell, len(numbers) * cell


def _section(picture: Picture) -> None:
    section = picture.view.file.sections[picture.place.section]
    note = ""
    if section.dtype == "INT4":
        pages = pages_per_row(section.shape[1] // 2)
        rows = [str(row) for row, count in enumerate(pages) if count > min(pages)]
        shown = ", ".join(rows[:6]) + (" …" if len(rows) > 6 else "")
        note = f"of every {len(pages)} rows, {shown} cross a border: thick ends" if rows else "no row crosses a border"
    picture.title("Pages and their rows" if len(section.shape) > 1 else "Pages", note)
    _page_lines(picture, LINES, PICTURE_Y + 24)


def _page_lines(picture: Picture, lines: int, top: float) -> None:
    view, left = picture.view, 76
    scale = (WIDTH - left) / PAGE
    for at, page in enumerate(shown_pages(view, picture.place, lines)):
        start, y = page * PAGE, top + at * PITCH
        picture.text(0, y + HIGH / 2, f"page {page:,}", "s b" if page in picture.chosen.pages else "s mu")
        for region, classes in _on_page(picture, page):
            first, last = max(region.offset, start), min(region.stop, start + PAGE)
            x, wide = left + (first - start) * scale, (last - first) * scale
            picture.rect(x, y, max(wide, 3 if classes == "sel" else 0), HIGH, classes)
            ends = [x] * (region.offset < start) + [x + wide - 4] * (region.stop > start + PAGE)
            if region.kind in ("row", "entry") and classes != "sel":
                for end in ends:
                    picture.rect(end, y, 4, HIGH, classes.replace("fill", "solid"))
            if region.kind == "row" and classes != "sel":
                number, middle = region.name.split()[-1], x + wide / 2 + 2 * (region.offset < start) - 2 * len(ends)
                if len(number) * 7 + 4 + 4 * len(ends) <= wide:
                    picture.text(middle, y + HIGH / 2, number, "c s b" if ends else "c s")
            elif classes == "empty dash" and len(label(region.name)) * 7 + 16 < wide:
                picture.text(x + 8, y + HIGH / 2, label(region.name), "s mu")


def _on_page(picture: Picture, page: int) -> Iterator[tuple[Region, str]]:
    """What lies on a page, in the order of drawing, with its classes; it may reach beyond the page."""
    view, place, start = picture.view, picture.place, page * PAGE
    name = [one for one in view.names if view.whole(one).offset <= start][-1]
    whole, after = view.whole(name), view.after(name)
    if whole.stop < min(after, start + PAGE):
        yield Region(max(whole.stop, start), after - max(whole.stop, start), "padding", "padding"), "hatch"
    if whole.stop > start and name != place.section:
        yield whole, "empty dash"
    elif whole.stop > start:
        yield from _rows_on_page(view, name, start)
    if page in picture.chosen.pages:
        yield picture.chosen, "sel"


def _rows_on_page(view: FileView, name: str, start: int) -> Iterator[tuple[Region, str]]:
    whole, classes = view.whole(name), fill(view.whole(name).kind)
    size = whole.length // view.rows(name)
    if name == HEADER:
        for part, after in itertools.pairwise((*view.parts, Region(whole.stop, 0, "padding", ""))):
            stop = after.offset if part.kind == "entry" else part.stop  # the comma too
            if part.kind != "padding" and part.offset < start + PAGE and stop > start:
                yield Region(part.offset, stop - part.offset, part.kind, part.name), classes
    elif size * (WIDTH - 76) / PAGE < 5:
        yield whole, classes
    else:
        first, last = max(0, (start - whole.offset) // size), (start + PAGE - 1 - whole.offset) // size
        yield from ((view.row(name, row), classes) for row in range(first, min(last, view.rows(name) - 1) + 1))


def _header(picture: Picture) -> None:
    picture.title("The preamble: 24 bytes, numbers with their lowest byte first")
    for row, part in enumerate(picture.view.parts[:4]):
        x, wide, here = part.offset * 34, part.length * 34, row == picture.place.row
        for at, byte in enumerate(picture.view.hex(part).split()):
            picture.rect(x + at * 34, PICTURE_Y + 22, 34, 24, "c4 fill")
            picture.text(x + at * 34 + 17, PICTURE_Y + 34, byte, "c m")
        picture.line(x + 3, PICTURE_Y + 53, x + wide - 3, PICTURE_Y + 53, "axis")
        words = f"{part.name} {row_value(picture.view, Place('section', HEADER, row, 0, 0))}"
        picture.text(x + wide / 2, PICTURE_Y + 63, words, "c s b" if here else "c s mu")
        if here:
            picture.rect(x, PICTURE_Y + 22, wide, 24, "sel")
    picture.text(0, PICTURE_Y + 84, "Header and padding on their pages", "b")
    _page_lines(picture, 3, PICTURE_Y + 97)


def _codes(picture: Picture) -> list[int]:
    """The group's 128 codes in the order of the weights."""
    place, codes = picture.place, [0] * 2 * GROUP_BYTES
    for byte in range(GROUP_BYTES):
        found = byte_meaning(picture.view.file, place.section, place.row, place.group, byte)
        for nibble in (found.low, found.high):
            codes[nibble.weight % (2 * GROUP_BYTES)] = nibble.q
    return codes


def _row(picture: Picture) -> None:
    place, scale = picture.place, picture.view.byte(picture.place).scale
    picture.title(f"Codes of group {place.group}, in the order of the weights")
    picture.text(WIDTH, PICTURE_Y + 8, f"weight = code × {significant(scale, 4)}", "e s ink c2")
    left, right, top, low = 28, WIDTH - 64, PICTURE_Y + 28, PICTURE_Y + PICTURE_HIGH - 26
    ys = {q: top + (7 - q) / 15 * (low - top) for q in range(-8, 8)}
    for q in (7, 0, -8):
        picture.line(left, ys[q], right, ys[q], "rule" if q else "axis")
        picture.text(left - 6, ys[q], signed(q), "e s mu")
        picture.text(WIDTH, ys[q], significant(q * scale, 4), "e s ink c2")
    step = (right - left) / (2 * GROUP_BYTES)
    for at, q in enumerate(_codes(picture)):
        high = max(1, abs(ys[q] - ys[0]))
        picture.rect(left + at * step + 1, min(ys[0], ys[q]), step - 1.5, high, "c1 solid")
    for at in (0, 32, 64, 96, 127):
        weight = str(place.group * 2 * GROUP_BYTES + at)
        picture.text(left + (at + 0.5) * step, PICTURE_Y + PICTURE_HIGH - 8, weight, "c s mu")


def _group(picture: Picture) -> None:
    place, found, word = picture.place, picture.view.byte(picture.place), picture.place.byte // 4
    note = f"byte {place.byte}: weights {found.low.weight} and {found.high.weight} · thick: word {word}"
    picture.title("The 128 codes, 16 bytes a line", note)
    cell, high = WIDTH // 32, 32

    def place_of(weight: int) -> tuple[float, float]:
        return weight % 32 * cell, PICTURE_Y + 24 + weight // 32 * (high + 6)

    for at, q in enumerate(_codes(picture)):
        x, y = place_of(at)
        picture.rect(x, y, cell, high, "c1 fill")
        picture.text(x + cell / 2, y + high / 2, signed(q), "c s")
    picture.outline(*place_of(8 * word), 8 * cell, high, "strong")
    for nibble in (found.low, found.high):
        picture.outline(*place_of(nibble.weight % (2 * GROUP_BYTES)), cell, high, "sel")


def _byte(picture: Picture) -> None:
    place, found = picture.place, picture.view.byte(picture.place)
    left, y, at = 108, PICTURE_Y, place.byte % 4
    cell = (WIDTH - left) // 8
    picture.title(f"Word {place.byte // 4}: the first byte of four holds its lowest bits")
    names = ("bytes in the file", "nibble n", "bits", "code n − 8", "code × scale")
    for name, middle in zip(names, (34, 90, 118, 139, 157), strict=True):
        picture.text(0, y + middle, name, "s mu")
    order = LAYOUTS[str(picture.view.file.sections[place.section].layout)]
    for nibble, weight in enumerate(order):
        x, n, muted = left + (7 - nibble) * cell, found.word >> 4 * nibble & 15, "" if nibble // 2 == at else " mu"
        index = found.low.weight - found.low.weight % 8 + weight
        picture.rect(x, y + 72, cell, 36, f"c{weight // 2 + 1} fill")
        picture.text(x + 5, y + 80, f"w{index}", "s mu")
        picture.text(x + cell / 2, y + 97, str(n), "c b big")
        for bit, digit in enumerate(f"{n:04b}"):
            picture.text(x + (bit + 0.5) * cell / 4, y + 118, digit, f"c m s{muted}")
        picture.text(x + cell / 2, y + 139, signed(n - 8), f"c b{muted}")
        picture.text(x + cell / 2, y + 157, significant((n - 8) * found.scale, 4), f"c s{muted}")
    for byte in range(4):
        x, to = left + 2 * byte * cell, left + (6 - 2 * byte) * cell
        picture.rect(x, y + 22, 2 * cell, 24, "c4 fill")
        value = f"{found.word >> 8 * byte & 255:02x}"
        picture.text(x + cell, y + 34, value, "c m b" if byte == at else "c m")
        picture.line(x + cell, y + 46, to + cell, y + 72, "sel" if byte == at else "axis")
    picture.rect(left + 2 * at * cell, y + 22, 2 * cell, 24, "sel")
    picture.rect(left + (6 - 2 * at) * cell, y + 72, 2 * cell, 96, "sel")


def draw_level(picture: Picture) -> None:
    """The picture of the place's level."""
    pictures = {"file": _file, "section": _section, "row": _row, "group": _group, "byte": _byte}
    (
        _header
        if picture.place.level == "section" and picture.place.section == HEADER
        else pictures[picture.place.level]
    )(picture)


@lru_cache(1024)
def text_width(string: str, classes: str = "") -> float:
    """Px of a text of 12 px."""
    font = FontProperties(family="DejaVu Sans", weight="bold" if "b" in classes.split() else "normal")
    return float(TextPath((0, 0), string, size=12, prop=font).get_extents().width)
