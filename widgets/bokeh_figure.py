"""A chart as a Bokeh figure: marks, axes and tools; the browser paints it in the colours of the page's theme.

Bokeh draws on a canvas, which knows no CSS. So every model carries in its tags which of its colours is which token of
nl.css, and `static/bokeh_chart.js` sets them from the page, at first and whenever JupyterLab's theme changes.
"""

import html
from typing import Any

from bokeh.core.properties import value
from bokeh.model import Model
from bokeh.models import (
    BoxZoomTool,
    ColumnDataSource,
    FixedTicker,
    HoverTool,
    PanTool,
    Range1d,
    ResetTool,
    WheelZoomTool,
    ZoomInTool,
    ZoomOutTool,
)
from bokeh.models.annotations import Label, LabelSet, Span
from bokeh.models.renderers import DataRenderer, GlyphRenderer
from bokeh.plotting import figure

from widgets.chart_data import DASHES, HUES, LABEL, MARKERS, Chart, Series, label_place

FONT = "system-ui, sans-serif"
MARK = 10
"""px of a marker."""
NEAR = 40
"""px from the left edge of the figure to the axis at least, so that zooming moves no axis much."""


def bokeh_figure(chart: Chart) -> figure:
    """The figure of a chart, as wide as its place; nothing in it is loaded from elsewhere."""
    (left, right), (bottom, top) = chart.x_range, chart.y_range
    shown = figure(
        height=chart.height,
        sizing_mode="stretch_width",
        x_axis_type="log" if chart.x.log else "linear",
        y_axis_type="log" if chart.y.log else "linear",
        x_range=Range1d(start=left, end=right),
        y_range=Range1d(start=bottom, end=top),
        background_fill_color=None,
        border_fill_color=None,
        min_border_left=NEAR,
        tools=[],
    )
    _style_axes(shown, chart)
    for reference in chart.references:
        line = Span(location=reference.y, dimension="width", line_dash="dashed", level="underlay")
        shown.add_layout(_tokens(line, line_color="--nl-line"))
    for number, y, text, at_right in chart.beyond:
        shown.add_layout(_edge_label(number, right if at_right else left, y, text, at_right))
    _use_tools(shown, [_add_series(shown, chart, number, series) for number, series in enumerate(chart.series)])
    return shown


def _tokens(model: Model, **colours: str) -> Any:
    """The model with the names of its colours in its tags: [property, token] pairs."""
    model.tags = [[name, token] for name, token in colours.items()]
    return model


def _use_tools(shown: figure, hovered: list[DataRenderer]) -> None:
    """Dragging zooms into a box; the wheel scrolls the page until its tool is chosen. All buttons can be focused."""
    hover = HoverTool(renderers=hovered, tooltips="@tip{safe}", line_policy="nearest", show_arrow=False)
    hover.visible = False
    box = BoxZoomTool()
    shown.add_tools(PanTool(), box, WheelZoomTool(), ZoomInTool(), ZoomOutTool(), ResetTool(), hover)
    shown.toolbar.active_drag, shown.toolbar.active_scroll, shown.toolbar.logo = box, None, None


def _style_axes(shown: figure, chart: Chart) -> None:
    shown.outline_line_color = None
    shown.xaxis.axis_label = chart.x.name
    for axis in (shown.xaxis[0], shown.yaxis[0]):
        axis.minor_tick_line_color, axis.major_tick_in = None, 0
        axis.axis_label_text_font = axis.major_label_text_font = FONT
        axis.axis_label_text_font_size = axis.major_label_text_font_size = "11px"
        axis.axis_label_text_font_style = "normal"
        lines = dict.fromkeys(("axis_line_color", "major_tick_line_color"), "--nl-line")
        _tokens(axis, axis_label_text_color="--nl-muted", major_label_text_color="--nl-muted", **lines)
    shown.xgrid.visible = False
    _tokens(shown.ygrid[0], grid_line_color="--nl-rule")
    if chart.x.categories:
        shown.xaxis.ticker = FixedTicker(ticks=list(range(len(chart.x.categories))))
        shown.xaxis.major_label_overrides = dict(enumerate(chart.x.categories))


def _add_series(shown: figure, chart: Chart, number: int, series: Series) -> DataRenderer:
    """Draws a series; returns what of it is hovered: its marks, or its line where it has none."""
    hue, places = f"--nl-{HUES[number]}", chart.places[number]
    columns: dict[str, Any] = {
        "x": places,
        "y": series.y,
        "tip": _tips(chart, series),
        "label": series.labels or [""] * len(places),
    }
    at: dict[str, Any] = {"x": "x", "y": "y", "source": ColumnDataSource(columns)}
    top: GlyphRenderer[Any]
    if series.kind in ("line", "path"):
        top = shown.line(**at, line_width=2, line_dash=DASHES[number].replace("dashdot", "dotdash"))
        _tokens(top.glyph, line_color=hue)
    if series.kind in ("points", "path"):
        top = shown.scatter(**at, size=MARK, marker=MARKERS[number])
        _tokens(top.glyph, fill_color=hue, line_color=hue)
    if series.kind == "bars":
        floor = chart.y_range[0] if chart.y.log else 0
        top = shown.vbar(x="x", top="y", bottom=floor, width=chart.bar_width, source=at["source"])
        _tokens(top.glyph, fill_color=f"{hue}-tint", line_color=hue)
    if series.labels:
        right, down = label_place(series)
        align = "left" if right > 0 else "right"
        labels = LabelSet(**at, text="label", x_offset=right, y_offset=-down, text_align=align, text_baseline="middle")
        labels.update(text_font=value(FONT), text_font_size=value("11px"))
        shown.add_layout(_tokens(labels, text_color=f"{hue}-ink"))
    return top


def _edge_label(number: int, x: float, y: float, text: str, at_right: bool) -> Label:
    """What lies beyond an edge, in the hue of its series; where one zooms out it goes on pointing there."""
    side: dict[str, Any] = {"x_offset": -LABEL, "text_align": "right"} if at_right else {"x_offset": LABEL}
    label = Label(x=x, y=y, text=text, y_offset=LABEL, text_baseline="middle", **side)
    label.update(text_font=FONT, text_font_size="11px")
    labelled: Label = _tokens(label, text_color=f"--nl-{HUES[number]}-ink")
    return labelled


def _tips(chart: Chart, series: Series) -> list[str]:
    """The hover text of every point; static/bokeh_chart.css gives its colours."""
    return [
        f"<b>{html.escape(' · '.join([series.name, *series.labels[at : at + 1]]))}</b>"
        + "".join(f"<br>{html.escape(name)}: {html.escape(one)}" for name, one in chart.lines(series, at))
        for at in range(len(series.y))
    ]
