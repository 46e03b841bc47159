"""The shell for measured data that one hovers and zooms: a Bokeh figure between the words of every playground.

Its text/plain is the data as a table, its PNG is drawn by matplotlib from the same data. Bokeh's own script is not in
the lab extension of jupyter_bokeh: it comes from the installed package, once a kernel, and nothing comes from the net.
"""

import html
from functools import cache
from typing import Any

import anywidget
import ipywidgets
import traitlets
from bokeh.resources import Resources
from jupyter_bokeh import BokehModel

from widgets.bokeh_figure import bokeh_figure
from widgets.bundle import STATIC, bundle, style
from widgets.chart_data import DASHES, HUES, Chart, Series
from widgets.chart_png import chart_png, corners
from widgets.evidence import badge_html
from widgets.figures import PNG_SCALE, png_size
from widgets.still import mimebundle

KEYS = "left and right go from point to point, up and down from series to series"


class Library(ipywidgets.Widget):  # type: ignore[misc]
    """BokehJS as text, sent to the page once and shared by all charts."""

    script = traitlets.Unicode().tag(sync=True)


@cache
def _library() -> Library:
    return Library(script="\n".join(Resources(mode="inline", components=["bokeh"]).js_raw))


class BokehChart(anywidget.AnyWidget):
    """A Chart to hover, zoom and step through with the arrow keys; it goes on working when the kernel is gone.

    `chart` is the data, `figure` the Bokeh figure that shows it.
    """

    _esm = bundle("bokeh_chart.js")
    _css = style() + (STATIC / "bokeh_chart.css").read_text(encoding="utf-8")
    _spec = traitlets.Dict().tag(sync=True)
    _figure = traitlets.Instance(BokehModel).tag(sync=True, **ipywidgets.widget_serialization)
    _library = traitlets.Instance(Library).tag(sync=True, **ipywidgets.widget_serialization)

    def __init__(self, chart: Chart) -> None:
        self.chart, self.figure = chart, bokeh_figure(chart)
        super().__init__(_spec=_spec(chart), _figure=BokehModel(self.figure), _library=_library())

    def __repr__(self) -> str:
        return self.chart.text()

    def png(self) -> bytes:
        """The same chart as a picture, on white."""
        return chart_png(self.chart)

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        picture = self.png()
        width, height = png_size(picture)
        size = {"width": width // PNG_SCALE, "height": height // PNG_SCALE}
        return mimebundle(self, repr(self), picture), {"image/png": size}


def _spec(chart: Chart) -> dict[str, Any]:
    """The shell as HTML, and every point with its sentence."""
    points = [
        {"series": number, "x": chart.places[number][at], "y": series.y[at], "said": chart.said(series, at)}
        for number, series in enumerate(chart.series)
        for at in range(len(series.y))
    ]
    return {"shell": _shell(chart), "points": points}


def _shell(chart: Chart) -> str:
    words = chart.words
    title, state = html.escape(words.title), html.escape(words.state)
    label = html.escape(f"chart of {chart.y.name} against {chart.x.name}; {KEYS}")
    return (
        f'<section class="nl-shell" aria-label="{title}"><div class="nl-head"><h3 class="nl-title">{title}</h3></div>'
        f'<p class="nl-ask"><span class="on">{html.escape(words.ask)}</span></p>{_key(chart)}'
        f'<figure class="nl-pic nl-chart" tabindex="0" aria-label="{label}" style="height:{chart.height}px"></figure>'
        f'<span class="nl-away" role="status" aria-live="polite"></span><div class="nl-foot">'
        f'<span class="nl-state">{state}</span><span>{badge_html(words.badge)}</span></div></section>'
    )


def _key(chart: Chart) -> str:
    """The name of y, then every series and reference with its mark."""
    parts = [f'<span class="nl-key-y">{html.escape(chart.y.name)}</span>']
    if len(chart.series) + len(chart.references) > 1:
        parts += [_key_part(_mark(number, series), series.name) for number, series in enumerate(chart.series)]
        parts += [_key_part('<path d="M0 6H20" class="axis dash"/>', name) for name in chart.reference_names]
    return f'<p class="nl-key">{"".join(parts)}</p>'


def _key_part(mark: str, name: str) -> str:
    svg = f'<svg width="20" height="12" viewBox="0 0 20 12" aria-hidden="true">{mark}</svg>'
    return f'<span class="nl-key-part">{svg}{html.escape(name)}</span>'


def _mark(number: int, series: Series) -> str:
    hue, dash = HUES[number], DASHES[number]
    if series.kind == "bars":
        return f'<rect x="4" y="0.5" width="11" height="11" class="{hue} fill"/>'
    line = f'<path d="M0 6H20" class="stroke {dash}"/>' if series.kind != "points" else ""
    shape = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in corners(number, 10, 6)) + "Z"
    marker = f'<path d="{shape}" class="solid"/>' if series.kind != "line" else ""
    return f'<g class="{hue}">{line}{marker}</g>'
