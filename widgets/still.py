"""A picture that Python draws once: an SVG in the page's own theme, and a PNG and a text for readers without widgets.

One function draws both, on a surface that is either the SVG or widgets/figures.py's Canvas. nbval compares the text
alone, so the text holds what must be right on every machine.
"""

import base64
import html
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import ipywidgets

from widgets.bundle import style
from widgets.evidence import badge_html, badge_text
from widgets.figures import Canvas
from widgets.playground import Badge

WIDTH = 560
"""px of a picture: it fits a narrow output without being scaled."""


class Surface(Protocol):
    """What a picture is drawn on, in px from the top left; classes are those of widgets/static/nl.css."""

    def rect(self, x: float, y: float, width: float, height: float, classes: str) -> None:
        """A rectangle with its top left corner at x, y."""

    def line(self, x1: float, y1: float, x2: float, y2: float, classes: str = "rule") -> None:
        """A straight line."""

    def text(self, x: float, y: float, string: str, classes: str = "") -> None:
        """A text centred on the height y."""


Draw = Callable[[Surface], None]


class Svg:
    """The surface of a page: collects SVG elements."""

    def __init__(self) -> None:
        self.elements: list[str] = []

    def rect(self, x: float, y: float, width: float, height: float, classes: str) -> None:
        """See Surface."""
        size = f'width="{width:.1f}" height="{height:.1f}"'
        self.elements.append(f'<rect x="{x:.1f}" y="{y:.1f}" {size} class="{classes}"/>')

    def line(self, x1: float, y1: float, x2: float, y2: float, classes: str = "rule") -> None:
        """See Surface."""
        ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
        self.elements.append(f'<line {ends} class="{classes}"/>')

    def text(self, x: float, y: float, string: str, classes: str = "") -> None:
        """See Surface."""
        place = f'x="{x:.1f}" y="{y:.1f}" dy=".35em"'
        self.elements.append(f'<text {place} class="{classes}">{html.escape(string)}</text>')


@dataclass(frozen=True)
class Words:
    """The words around a picture: title, what to look at, what it shows in one sentence, its badge."""

    title: str
    ask: str
    state: str
    badge: Badge


class Still(ipywidgets.HTML):  # type: ignore[misc]
    """A still picture in the shell of the playgrounds. `text` is its text/plain; Words add title, state and badge."""

    def __init__(self, words: Words, height: int, draw: Draw, text: str) -> None:
        self._words, self._height, self._draw, self._text = words, height, draw, text
        super().__init__(value=self._html())

    def __repr__(self) -> str:
        words = self._words
        return "\n".join([words.title, "", self._text, "", words.state, badge_text(words.badge)])

    def png(self) -> bytes:
        """The picture alone, on white."""
        canvas = Canvas(WIDTH, self._height)
        self._draw(canvas)
        return canvas.png()

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        return mimebundle(self, repr(self), self.png())

    def _html(self) -> str:
        words, svg = self._words, Svg()
        self._draw(svg)
        size = f'width="{WIDTH}" height="{self._height}" viewBox="0 0 {WIDTH} {self._height}"'
        picture = f'<svg {size} role="img" aria-label="{html.escape(words.state)}">{"".join(svg.elements)}</svg>'
        return (
            f'<style>{style()}</style><div class="nl"><section class="nl-shell"><div class="nl-head">'
            f'<h3 class="nl-title">{html.escape(words.title)}</h3></div>'
            f'<p class="nl-ask"><span class="on">{html.escape(words.ask)}</span></p>'
            f'<figure class="nl-pic" style="overflow-x:auto">{picture}</figure><div class="nl-foot">'
            f'<span class="nl-state">{html.escape(words.state)}</span><span>{badge_html(words.badge)}</span>'
            "</div></section></div>"
        )


def mimebundle(widget: ipywidgets.Widget, text: str, png: bytes) -> dict[str, Any]:
    """Text and PNG for readers without a live widget, and the view for those who have one."""
    bundle = {"text/plain": text, "image/png": base64.b64encode(png).decode("ascii")}
    if widget.comm is None:
        return bundle
    view = {"version_major": 2, "version_minor": 0, "model_id": widget.model_id}
    return {**bundle, "application/vnd.jupyter.widget-view+json": view}
