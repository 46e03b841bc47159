"""Still pictures in the look of the playgrounds, drawn by matplotlib, so that a page without scripts shows the truth.

A Canvas counts in px from the top left like the browser's SVG, and its classes are those of widgets/static/nl.css:
"c1 fill", "c3 solid", "hatch", "sel", "s mu e". Figures belong to no window and no global list: none is left open.
"""

import io
import json
from collections.abc import Sequence
from typing import Any, Literal

from matplotlib.artist import Artist
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, Polygon, Rectangle
from matplotlib.transforms import Affine2D
from PIL import Image, PngImagePlugin

Dash = Literal["solid", "dashed", "dotted", "dashdot"]

DPI = 96
PNG_SCALE = 2  # px of the file for one px of the picture: sharp on a fine screen

SURFACE, TEXT, MUTED, LINE, RULE = "#ffffff", "#212121", "#595959", "#858585", "#e0e0e0"
# mark, ink and tint of each hue, as in nl.css on the light theme
HUES = {
    "ca": ("#0067a3", "#0067a3", "#e0eef7"),
    "cw": ("#b33a00", "#9c3300", "#fbe9dd"),
    "c1": ("#b97e00", "#7d5400", "#fdf3dd"),
    "c2": ("#008a64", "#006a4c", "#dbf1e9"),
    "c3": ("#b5598c", "#933f6d", "#f7e6ef"),
    "c4": ("#474f5c", "#3d4551", "#eaecef"),
}
ACCENT = HUES["ca"][0]
ABOVE_LINES = 2.5  # in matplotlib's order: shapes 1, lines 2, text 3
_LETTER = 0.62  # width of a DejaVu Sans letter over its size, a little more than the mean
LINES = {"rule": (RULE, 1), "axis": (LINE, 1), "strong": (TEXT, 2), "sel": (ACCENT, 2)}


class Canvas:
    """A white picture of width × height px to draw marks on, then `png()`."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self._figure = Figure(figsize=(width / DPI, height / DPI), dpi=DPI * PNG_SCALE, facecolor=SURFACE)
        FigureCanvasAgg(self._figure)
        self._to_pixels = Affine2D().translate(0, -height).scale(PNG_SCALE, -PNG_SCALE)

    def rect(self, x: float, y: float, width: float, height: float, classes: str) -> None:
        """A rectangle with its top left corner at x, y."""
        face, edge, stroke = _paint(classes)
        hatch = "////" if "hatch" in classes else None
        patch = Rectangle((x, y), width, height, facecolor=face, edgecolor=edge, linestyle=_dash(classes), hatch=hatch)
        patch.set_linewidth(_points(stroke))
        patch.set_hatch_linewidth(0.5)
        self._add(patch)

    def line(self, x1: float, y1: float, x2: float, y2: float, classes: str = "rule") -> None:
        """A straight line; classes rule, axis, strong, sel."""
        colour, stroke = LINES[classes.split(maxsplit=1)[0]]
        mark = Line2D([x1, x2], [y1, y2], color=colour, linewidth=_points(stroke), linestyle=_dash(classes))
        mark.set_solid_capstyle("butt")
        self._add(mark)

    def circle(self, x: float, y: float, radius: float, classes: str) -> None:
        """A circle around x, y, above all straight lines."""
        face, edge, stroke = _paint(classes)
        patch = Circle((x, y), radius, facecolor=face, edgecolor=edge, linewidth=_points(stroke))
        patch.set_zorder(ABOVE_LINES)
        self._add(patch)

    def polygon(self, corners: Sequence[tuple[float, float]], classes: str) -> None:
        """A closed shape through the corners, above all straight lines."""
        face, edge, stroke = _paint(classes)
        patch = Polygon(corners, closed=True, facecolor=face, edgecolor=edge, linewidth=_points(stroke))
        patch.set_zorder(ABOVE_LINES)
        self._add(patch)

    def path(self, points: Sequence[tuple[float, float]], classes: str, dash: Dash = "solid") -> None:
        """A line of 2 px in a hue through the points, above all straight lines."""
        xs, ys = zip(*points, strict=True)
        colour = _hue(classes.split())[0]
        mark = Line2D(xs, ys, color=colour, linewidth=_points(2), linestyle=dash)
        mark.set_zorder(ABOVE_LINES)
        self._add(mark)

    def text(self, x: float, y: float, string: str, classes: str = "") -> None:
        """A text centred on the height y; x is its beginning, its end (e) or its middle (c). "$" is no markup."""
        names = classes.split()
        self._figure.text(
            x,
            y,
            string.replace("$", r"\$"),
            color=_ink(names),
            fontsize=_points(font_size(classes)),
            fontweight="bold" if "b" in names else "normal",
            family="DejaVu Sans Mono" if "m" in names else "DejaVu Sans",
            ha="right" if "e" in names else "center" if "c" in names else "left",
            va="center_baseline",
            transform=self._to_pixels,
        )

    def _add(self, mark: Artist) -> None:
        """Without axes, which would look for the limits of their data in every mark: half of the time."""
        mark.set_transform(self._to_pixels)
        self._figure.add_artist(mark)

    def png(self) -> bytes:
        """The picture as a small PNG of 64 colours without a date in it: the same marks give the same bytes."""
        drawn, small = io.BytesIO(), io.BytesIO()
        self._figure.savefig(drawn, format="rgba")
        size = (self.width * PNG_SCALE, self.height * PNG_SCALE)
        Image.frombytes("RGBA", size, drawn.getvalue()).convert("RGB").quantize(64).save(small, format="png")
        return small.getvalue()


def png_size(png: bytes) -> tuple[int, int]:
    """Width and height in px of a PNG, from its header."""
    return int.from_bytes(png[16:20], "big"), int.from_bytes(png[20:24], "big")


def png_with_data(png: bytes, key: str, data: object) -> bytes:
    """The PNG with JSON-ready data in it, as a text chunk named `key`: whoever has the picture has its numbers."""
    note, out = PngImagePlugin.PngInfo(), io.BytesIO()
    note.add_text(key, json.dumps(data))
    Image.open(io.BytesIO(png)).save(out, "png", pnginfo=note)
    return out.getvalue()


def data_in_png(png: bytes, key: str) -> Any:
    """What png_with_data put into a PNG under this key; None for any other PNG."""
    note = Image.open(io.BytesIO(png)).info.get(key)
    return None if note is None else json.loads(note)


def text_width(string: str, classes: str = "") -> float:
    """About the px that a text of these classes takes; seldom less than it does."""
    return len(string) * font_size(classes) * _LETTER


def font_size(classes: str) -> int:
    """The size in px that nl.css gives a text of these classes."""
    return 11 if "s" in classes.split() else 16 if "big" in classes.split() else 12


def _dash(classes: str) -> Literal["dashed", "solid"]:
    return "dashed" if "dash" in classes.split() else "solid"


def _points(px: float) -> float:
    return px * 72 / DPI


def _hue(names: list[str]) -> tuple[str, str, str]:
    return next((HUES[name] for name in names if name in HUES), HUES["c4"])


def _ink(names: list[str]) -> str:
    if "ontag" in names:
        return SURFACE
    if "ink" in names:
        return _hue(names)[1]
    return MUTED if "mu" in names else TEXT


def _paint(classes: str) -> tuple[str, str, float]:
    """Face, edge and width of the edge in px."""
    names = classes.split()
    mark, _, tint = _hue(names)
    if "fill" in names:
        return tint, mark, 1
    for name, face in {"paper": SURFACE, "tint": tint, "solid": mark, "tag": ACCENT}.items():
        if name in names:
            return face, "none", 0
    if "sel" in names:
        return "none", ACCENT, 2
    return "none", LINE, 1
