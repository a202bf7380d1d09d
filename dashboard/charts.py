"""Curves and counts as charts. Nothing here asks the API for anything.

A value that is not a number breaks its line and is drawn as a marker: it is what the viewer most
needs to see. A chart is kept as plain dictionaries and becomes a Plotly figure once, at the end:
changing a figure piece by piece costs ten times as much, and a live page draws many of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import plotly.graph_objects as go

from dashboard import palette
from dashboard.axes import Ruler
from dashboard.watch import Curve
from dashboard.words import number
from lagoon.metrics import Metric

FONT = '"Source Sans", "Source Sans Pro", "Source Sans 3", system-ui, sans-serif'

CONFIG = {"displaylogo": False, "displayModeBar": False, "responsive": True}
"""Plotly's own buttons stay away; dragging zooms, double-clicking resets."""

AXIS = {
    "gridcolor": "#e9f0f2",
    "linecolor": palette.LINE,
    "zeroline": False,
    "ticks": "",
    "tickfont": {"size": 12, "color": palette.MUTED},
    "automargin": True,
    "exponentformat": "power",
}
LAYOUT = {
    "paper_bgcolor": "rgba(0,0,0,0)",
    "plot_bgcolor": "rgba(0,0,0,0)",
    "font": {"family": FONT, "color": palette.INK, "size": 13},
    "hovermode": "x unified",
    "hoverlabel": {"bgcolor": "#ffffff", "bordercolor": palette.LINE, "font": {"size": 12}},
    "separators": ".\u202f",
    "showlegend": False,
    "uirevision": "kept",
    "bargap": 0.15,
}
LEGEND = {
    "orientation": "h",
    "x": 0,
    "y": 1.02,
    "xanchor": "left",
    "yanchor": "bottom",
    "font": {"size": 12},
}


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened, at its place on a chart's horizontal axis."""

    x: float
    text: str
    """Written along its rule, so that it should be short."""
    details: str = ""
    """Shown over the text; empty for no more than that."""


@dataclass(slots=True)
class Chart:
    """Traces and layout, as Plotly names them."""

    layout: dict[str, Any]
    traces: list[dict[str, Any]] = field(default_factory=list)
    thinned: tuple[int, int] = (0, 0)
    """Points drawn and points there are of the longest series that is not drawn whole."""

    def figure(self, marks: Sequence[Mark] = ()) -> go.Figure:
        """The finished figure; below it stands how much of the data it shows. ``marks`` are rules
        at places of its horizontal axis."""
        for mark in marks:
            _rule(self, mark.x, mark.text, palette.MUTED, is_upright=True)
            self.layout["annotations"][-1]["hovertext"] = mark.details or mark.text
        shown, total = self.thinned
        if total:
            title = self.layout["xaxis"]["title"]
            text = f"{title['text']} · {number(shown)} of {number(total)} points"
            self.layout["xaxis"]["title"] = {**title, "text": text}
        return go.Figure(data=self.traces, layout=self.layout)

    @property
    def x_title(self) -> str:
        """What its horizontal axis counts."""
        return str(self.layout["xaxis"]["title"]["text"])

    def show_legend(self) -> None:
        """Name the traces above the chart."""
        self.layout |= {"showlegend": True, "legend": LEGEND}
        self.layout["margin"] = {**self.layout["margin"], "t": 30}


Drawing = Chart | None
"""A chart, or None while there is nothing to draw."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a chart, already placed on its axis."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float]
    color: str
    dash: str = "solid"
    markers: bool = False
    num_total: int = 0
    """Points there are, when only some of them are drawn; else 0."""


def line_of(
    curve: Curve, ruler: Ruler, name: str, color: str, *, dash: str = "solid", markers: bool = False
) -> Line:
    """A curve as a line."""
    ys = [curve.values[step] for step in curve.steps]
    num_total = curve.num_total if curve.is_thinned else 0
    return Line(name, ruler.place(curve), ys, color, dash, markers, num_total)


def chart(x_title: str, y_title: str, *, height: int = 260, percent: bool = False) -> Chart:
    """An empty chart in Lagoon's look."""
    titled = {"font": {"size": 12, "color": palette.MUTED}, "standoff": 8}
    x_axis = {**AXIS, "showgrid": False, "showline": True, "title": {**titled, "text": x_title}}
    y_axis: dict[str, Any] = {**AXIS, "title": {**titled, "text": y_title}}
    if percent:
        y_axis |= {"tickformat": ".0%", "range": [-0.02, 1.02]}
    margin = {"l": 8, "r": 12, "t": 10, "b": 8}
    return Chart({**LAYOUT, "height": height, "margin": margin, "xaxis": x_axis, "yaxis": y_axis})


def lines(
    drawn: Chart, members: Sequence[Line], *, hover: str = ".4g", legend: bool | None = None
) -> Chart:
    """Add lines, and a marker wherever a value is not a finite number."""
    for line in members:
        finite = finite_or_none(line.ys)
        is_lonely = line.markers or sum(y is not None for y in finite) == 1
        drawn.traces.append(
            {
                "type": "scatter",
                "x": list(line.xs),
                "y": finite,
                "name": line.name,
                "mode": "lines+markers" if is_lonely else "lines",
                "line": {"color": line.color, "width": 2, "dash": line.dash},
                "marker": {"size": 6, "color": line.color},
                "connectgaps": False,
                "hovertemplate": f"%{{y:{hover}}}",
            }
        )
        _mark_non_finite(drawn, line)
    if len(members) > 1 if legend is None else legend:
        drawn.show_legend()
    _settle_constant(drawn, members)
    _settle_x(drawn, members)
    return drawn


def _settle_x(drawn: Chart, members: Sequence[Line]) -> None:
    """Say how much is drawn, and keep a single place off Plotly's default range of -1 to 1."""
    for line in members:
        if line.num_total > max(len(line.ys), drawn.thinned[1]):
            drawn.thinned = (len(line.ys), line.num_total)
    known = {x for line in members for x in line.xs}
    if len(known) == 1 and (x := known.pop()) >= 0:
        drawn.layout["xaxis"].setdefault("range", [-0.04 * x, 2 * x] if x else [-0.04, 1])


def _settle_constant(drawn: Chart, members: Sequence[Line]) -> None:
    """Keep a line that never moves off Plotly's default range of -1 to 1 around it."""
    known = [y for line in members for y in line.ys if math.isfinite(y)]
    if known and min(known) == max(known):
        value = known[0]
        drawn.layout["yaxis"].setdefault("range", sorted((0, 2 * value)) if value else [-0.05, 1])


def _mark_non_finite(drawn: Chart, line: Line) -> None:
    """A cross where each unbroken stretch of non-finite values begins."""
    marks: list[tuple[float, float, str]] = []
    last = next((y for y in line.ys if math.isfinite(y)), 0.0)
    was_finite = True
    for x, y in zip(line.xs, line.ys, strict=True):
        if math.isfinite(y):
            last = y
        elif was_finite:
            marks.append((x, last, "NaN" if math.isnan(y) else ("∞" if y > 0 else "-∞")))
        was_finite = math.isfinite(y)
    if not marks:
        return
    xs, ys, texts = zip(*marks, strict=True)
    drawn.traces.append(
        {
            "type": "scatter",
            "x": xs,
            "y": ys,
            "text": texts,
            "mode": "markers",
            "marker": {"symbol": "x", "size": 10, "color": palette.CORAL},
            "hovertemplate": "%{text}<extra>not a number</extra>",
            "showlegend": False,
        }
    )
    _rule(drawn, xs[0], f"first {texts[0]}", palette.CORAL)


def _rule(drawn: Chart, x: float, text: str, color: str, *, is_upright: bool = False) -> None:
    """A vertical line with its label, which may stand along it."""
    stroke = {"color": color, "width": 1, "dash": "dot"}
    place = {"xref": "x", "yref": "paper"}
    drawn.layout.setdefault("shapes", []).append(
        {**place, "type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1, "line": stroke}
    )
    drawn.layout.setdefault("annotations", []).append(
        {
            **place,
            "x": x,
            "y": 1,
            "text": text,
            "textangle": -90 if is_upright else 0,
            "showarrow": False,
            "xanchor": "left",
            "yanchor": "top",
            "xshift": 1 if is_upright else 4,
            "font": {"size": 11, "color": color},
        }
    )


def band(drawn: Chart, low: Line, high: Line) -> Chart:
    """Shade between two lines: an interval."""
    for line, fill in ((low, "none"), (high, "tonexty")):
        drawn.traces.append(
            {
                "type": "scatter",
                "x": list(line.xs),
                "y": finite_or_none(line.ys),
                "mode": "lines",
                "line": {"width": 0},
                "fill": fill,
                "fillcolor": translucent(line.color, 0.16),
                "hoverinfo": "skip",
                "showlegend": False,
            }
        )
    return drawn


def bars(counts: Mapping[int, int], x_title: str, y_title: str, color: str) -> Chart:
    """Exact counts by integer value."""
    drawn = chart(x_title, y_title, height=220)
    values = sorted(counts)
    low, high = (values[0], values[-1]) if values else (0, 0)
    end = max(high, low + 7)
    drawn.traces.append(
        {
            "type": "bar",
            "x": values,
            "y": [counts[value] for value in values],
            "marker": {"color": color, "cornerradius": 3},
            "width": 0.8,
            "hovertemplate": "%{y:,} at %{x}<extra></extra>",
        }
    )
    drawn.layout["hovermode"] = "closest"
    drawn.layout["xaxis"] |= {"range": [low - 0.7, end + 0.7], "dtick": max(1, (end - low) // 8)}
    drawn.layout["yaxis"] |= {"rangemode": "tozero", "tickformat": "~s"}
    return drawn


def heat_map(
    xs: Sequence[float], counts: Sequence[Mapping[int, int]], x_title: str, y_title: str
) -> Chart:
    """Counts over steps: one column a step, one row a value, deeper where there is more."""
    values = sorted({value for step in counts for value in step}) or [0]
    rows = list(range(min(0, values[0]), max(values[-1], 4) + 1))
    totals = [sum(step.values()) or 1 for step in counts]
    drawn = chart(x_title, y_title, height=280)
    drawn.traces.append(
        {
            "type": "heatmap",
            "x": list(xs),
            "y": rows,
            "z": [
                [step.get(row, 0) / total for step, total in zip(counts, totals, strict=True)]
                for row in rows
            ],
            "customdata": [[step.get(row, 0) for step in counts] for row in rows],
            "colorscale": [[i / (len(palette.WATER) - 1), c] for i, c in enumerate(palette.WATER)],
            "zmin": 0,
            "zmax": 1,
            "ygap": 1,
            "hovertemplate": "%{x}: %{customdata:,} tokens (%{z:.0%}) at %{y}<extra></extra>",
            "colorbar": {
                "tickformat": ".0%",
                "thickness": 10,
                "tickfont": {"size": 11},
                "outlinewidth": 0,
                "len": 0.9,
            },
        }
    )
    drawn.layout["hovermode"] = "closest"
    drawn.layout["yaxis"] |= {"dtick": max(1, len(rows) // 8), "showgrid": False}
    return drawn


def stacked(members: Sequence[Line], x_title: str, y_title: str, *, hover: str = ",") -> Chart:
    """Areas on top of each other: parts of a whole over steps."""
    drawn = chart(x_title, y_title, height=280)
    for line in members:
        drawn.traces.append(
            {
                "type": "scatter",
                "x": list(line.xs),
                "y": finite_or_none(line.ys),
                "name": line.name,
                "mode": "lines",
                "stackgroup": "parts",
                "line": {"width": 1, "color": line.color},
                "fillcolor": translucent(line.color, 0.55),
                "hovertemplate": f"%{{y:{hover}}}",
            }
        )
    drawn.show_legend()
    drawn.layout["yaxis"]["rangemode"] = "tozero"
    _settle_x(drawn, members)
    return drawn


def small_multiple(curves: Sequence[Curve], metric: Metric, ruler: Ruler) -> Chart:
    """One metric; a line for each of its labels."""
    members = [
        line_of(curve, ruler, label_text(curve) or metric.name, palette.series_color(index))
        for index, curve in enumerate(curves)
    ]
    return lines(chart(ruler.title, metric.unit, height=210), members)


def label_text(curve: Curve) -> str:
    """The labels of a series as a legend entry."""
    return ", ".join(str(value) for _, value in sorted(curve.labels.items()))


def finite_or_none(ys: Sequence[float]) -> list[float | None]:
    """Values as a chart takes them: None, a gap, for whatever is not a finite number."""
    return [y if math.isfinite(y) else None for y in ys]


def translucent(color: str, alpha: float) -> str:
    """A hex colour with transparency, in the notation Plotly reads."""
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha})"
