"""Curves and counts as Plotly figures. Nothing here asks the API for anything.

A value that is not a number breaks its line and is drawn as a marker: it is what the viewer most
needs to see.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from dashboard import palette
from dashboard.axes import Ruler
from dashboard.watch import Curve
from lagoon.metrics import CATALOGUE, Metric

FONT = '"Source Sans", "Source Sans Pro", "Source Sans 3", system-ui, sans-serif'

Drawing = go.Figure | None
"""A chart, or None while there is nothing to draw."""

CONFIG = {"displaylogo": False, "displayModeBar": False, "responsive": True}
"""Plotly's own buttons stay away; dragging zooms, double-clicking resets."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a chart, already placed on its axis."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float]
    color: str
    dash: str = "solid"
    markers: bool = False
    fill: bool = False


def line_of(
    curve: Curve, ruler: Ruler, name: str, color: str, *, dash: str = "solid", markers: bool = False
) -> Line:
    """A curve as a line."""
    ys = [curve.values[step] for step in curve.steps]
    return Line(name, ruler.place(curve), ys, color, dash, markers)


def figure(x_title: str, y_title: str, *, height: int = 260, percent: bool = False) -> go.Figure:
    """An empty chart in Lagoon's look."""
    drawn = go.Figure()
    axis = {
        "gridcolor": "#e9f0f2",
        "linecolor": palette.LINE,
        "zeroline": False,
        "ticks": "",
        "tickfont": {"size": 12, "color": palette.MUTED},
        "title": {"font": {"size": 12, "color": palette.MUTED}, "standoff": 8},
        "automargin": True,
    }
    drawn.update_layout(
        height=height,
        margin={"l": 8, "r": 12, "t": 30, "b": 8},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": FONT, "color": palette.INK, "size": 13},
        hovermode="x unified",
        hoverlabel={"bgcolor": "#ffffff", "bordercolor": palette.LINE, "font": {"size": 12}},
        legend={
            "orientation": "h", "x": 0, "y": 1.02, "xanchor": "left", "yanchor": "bottom",
            "font": {"size": 12},
        },
        uirevision="kept",
        bargap=0.15,
    )  # fmt: skip
    drawn.update_xaxes(**{**axis, "showgrid": False, "showline": True}, title_text=x_title)
    drawn.update_yaxes(**axis, title_text=y_title, exponentformat="power")
    if percent:
        drawn.update_yaxes(tickformat=".0%", range=[-0.02, 1.02])
    return drawn


def lines(
    drawn: go.Figure, members: Sequence[Line], *, hover: str = ".4g", legend: bool | None = None
) -> go.Figure:
    """Add lines, and a marker wherever a value is not a finite number."""
    for line in members:
        finite = [y if math.isfinite(y) else None for y in line.ys]
        lonely = line.markers or sum(y is not None for y in finite) == 1
        drawn.add_trace(
            go.Scatter(
                x=list(line.xs),
                y=finite,
                name=line.name,
                mode="lines+markers" if lonely else "lines",
                line={"color": line.color, "width": 2, "dash": line.dash},
                marker={"size": 6, "color": line.color},
                connectgaps=False,
                fill="tozeroy" if line.fill else None,
                fillcolor=translucent(line.color, 0.08) if line.fill else None,
                hovertemplate=f"%{{y:{hover}}}",
            )
        )
        _mark_non_finite(drawn, line)
    has_legend = len(members) > 1 if legend is None else legend
    drawn.update_layout(showlegend=has_legend, margin={"t": 30 if has_legend else 10})
    _settle_constant(drawn, members)
    return drawn


def _settle_constant(drawn: go.Figure, members: Sequence[Line]) -> None:
    """Keep a line that never moves off Plotly's default range of -1 to 1 around it."""
    known = [y for line in members for y in line.ys if math.isfinite(y)]
    if known and min(known) == max(known) and drawn.layout.yaxis.range is None:
        value = known[0]
        drawn.update_yaxes(range=sorted((0, 2 * value)) if value else (-0.05, 1))


def _mark_non_finite(drawn: go.Figure, line: Line) -> None:
    """A cross where each unbroken stretch of non-finite values begins."""
    xs, ys, texts = [], [], []
    last = next((y for y in line.ys if math.isfinite(y)), 0.0)
    was_finite = True
    for x, y in zip(line.xs, line.ys, strict=True):
        if math.isfinite(y):
            last = y
        elif was_finite:
            xs.append(x)
            ys.append(last)
            texts.append("NaN" if math.isnan(y) else ("∞" if y > 0 else "-∞"))
        was_finite = math.isfinite(y)
    if not xs:
        return
    drawn.add_trace(
        go.Scatter(
            x=xs,
            y=ys,
            name="not a number",
            mode="markers",
            marker={"symbol": "x", "size": 10, "color": palette.CORAL, "line": {"width": 0}},
            text=texts,
            hovertemplate="%{text}<extra>" + line.name + "</extra>",
            showlegend=False,
        )
    )
    drawn.add_vline(x=xs[0], line={"color": palette.CORAL, "width": 1, "dash": "dot"})
    drawn.add_annotation(
        x=xs[0], y=1, yref="paper", text=f"first {texts[0]}", showarrow=False, xanchor="left",
        yanchor="top", xshift=4, font={"size": 11, "color": palette.CORAL},
    )  # fmt: skip


def band(drawn: go.Figure, low: Line, high: Line) -> go.Figure:
    """Shade between two lines: an interval."""
    for line, fill in ((low, None), (high, "tonexty")):
        drawn.add_trace(
            go.Scatter(
                x=list(line.xs),
                y=[y if math.isfinite(y) else None for y in line.ys],
                mode="lines",
                line={"width": 0},
                fill=fill,
                fillcolor=translucent(line.color, 0.16),
                hoverinfo="skip",
                showlegend=False,
            )
        )
    return drawn


def bars(counts: Mapping[int, int], x_title: str, y_title: str, color: str) -> go.Figure:
    """Exact counts by integer value."""
    drawn = figure(x_title, y_title, height=220)
    values = sorted(counts)
    drawn.add_trace(
        go.Bar(
            x=values,
            y=[counts[value] for value in values],
            marker={"color": color, "cornerradius": 3},
            width=0.8 if len(values) > 1 else 0.5,
            hovertemplate="%{y:,} at %{x}<extra></extra>",
        )
    )
    drawn.update_layout(showlegend=False, hovermode="closest", separators=".\u202f")
    low, high = (values[0], values[-1]) if values else (0, 0)
    span = max(high, low + 4)
    drawn.update_xaxes(range=[low - 0.7, span + 0.7], dtick=max(1, (span - low) // 8))
    drawn.update_yaxes(rangemode="tozero", tickformat="~s")
    return drawn


def heat_map(
    xs: Sequence[float], counts: Sequence[Mapping[int, int]], x_title: str, y_title: str
) -> go.Figure:
    """Counts over steps: one column a step, one row a value, deeper where there is more."""
    values = sorted({value for step in counts for value in step}) or [0]
    rows = list(range(min(0, values[0]), max(values[-1], 4) + 1))
    shares = []
    for row in rows:
        totals = (sum(step.values()) or 1 for step in counts)
        shares.append(
            [step.get(row, 0) / total for step, total in zip(counts, totals, strict=True)]
        )
    drawn = figure(x_title, y_title, height=280)
    stops = [[i / (len(palette.WATER) - 1), color] for i, color in enumerate(palette.WATER)]
    drawn.add_trace(
        go.Heatmap(
            x=list(xs),
            y=rows,
            z=shares,
            customdata=[[step.get(row, 0) for step in counts] for row in rows],
            colorscale=stops,
            zmin=0,
            zmax=1,
            ygap=1,
            hovertemplate="%{x}: %{customdata:,} tokens (%{z:.0%}) at %{y}<extra></extra>",
            colorbar={"tickformat": ".0%", "thickness": 10, "tickfont": {"size": 11},
                      "outlinewidth": 0, "len": 0.9},
        )
    )  # fmt: skip
    drawn.update_layout(hovermode="closest", margin={"t": 10})
    drawn.update_yaxes(dtick=max(1, len(rows) // 8), showgrid=False)
    return drawn


def stacked(members: Sequence[Line], x_title: str, y_title: str) -> go.Figure:
    """Areas on top of each other: parts of a whole over steps."""
    drawn = figure(x_title, y_title, height=280)
    for line in members:
        drawn.add_trace(
            go.Scatter(
                x=list(line.xs),
                y=[y if math.isfinite(y) else None for y in line.ys],
                name=line.name,
                mode="lines",
                stackgroup="parts",
                line={"width": 1, "color": line.color},
                fillcolor=translucent(line.color, 0.55),
                hovertemplate="%{y:,}",
            )
        )
    drawn.update_layout(separators=".\u202f")
    drawn.update_yaxes(rangemode="tozero")
    return drawn


def small_multiple(curves: Sequence[Curve], metric: Metric, ruler: Ruler) -> go.Figure:
    """One metric; a line for each of its labels."""
    drawn = figure(ruler.title, metric.unit, height=210)
    members = [
        line_of(curve, ruler, label_text(curve) or metric.name, palette.series_color(index))
        for index, curve in enumerate(curves)
    ]
    return lines(drawn, members)


def label_text(curve: Curve) -> str:
    """The labels of a series as a legend entry."""
    return ", ".join(str(value) for _, value in sorted(curve.labels.items()))


def known_metric(name: str) -> Metric | None:
    """The metric's declaration, if this version has one."""
    return CATALOGUE.get(name)


def translucent(color: str, alpha: float) -> str:
    """A hex colour with transparency, in the notation Plotly reads."""
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha})"
