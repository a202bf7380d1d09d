"""Sigma / ES: the noise, the step, and whether the update is as long as it should be."""

from functools import partial

import streamlit as st

from dashboard import charts, markup, palette
from dashboard.views.area import RunArea, panel
from dashboard.words import number
from lagoon.metrics import (
    ALPHA,
    DRIFT_NORM,
    EVALUATIONS,
    FITNESS,
    SIGMA,
    UPDATE_NORM,
    UPDATE_NORM_LAW,
    Metric,
)

METRICS = (SIGMA, ALPHA, UPDATE_NORM, UPDATE_NORM_LAW, FITNESS, DRIFT_NORM, EVALUATIONS)
TOGETHER = {
    "sigma": [(SIGMA, "sigma", "solid"), (ALPHA, "alpha", "dash")],
    "update_norm": [(UPDATE_NORM, "measured", "solid"), (UPDATE_NORM_LAW, "law", "dash")],
    "drift": [(DRIFT_NORM, "distance", "solid")],
}
"""Chart by key: its lines, their names and dashes."""


def show(area: RunArea) -> None:
    """Sigma and alpha, update norm against its law, fitness, drift."""
    if not area.curves(METRICS):
        st.html(
            markup.empty(
                "No sigma here." if area.has_trainer else "No generation finished yet.",
                f"{area.detail['method']} learns by gradients; sigma belongs to evolution "
                "strategies."
                if area.has_trainer
                else "Sigma, fitness and the update's length appear with the first generation.",
            )
        )
        return
    charts_shown = (
        ("Sigma and alpha", "sigma", "Noise on each weight; step size"),
        ("Length of the update", "update_norm", "The law: alpha × √(parameters / population)"),
        ("Fitness of the population", "fitness", "Of each generation's members"),
        ("Distance from the start", "drift", "Euclidean, over all weights"),
    )
    for pair in (charts_shown[:2], charts_shown[2:]):
        for column, (title, key, note) in zip(st.columns(2, gap="medium"), pair, strict=True):
            with column:
                panel(area, title, key, partial(_draw, area, key), note)
    _evaluations(area)


def _draw(area: RunArea, key: str) -> charts.Drawing:
    return _fitness(area) if key == "fitness" else _together(area, TOGETHER[key])


def _together(area: RunArea, pairs: list[tuple[Metric, str, str]]) -> charts.Drawing:
    ruler = area.ruler
    members = [
        charts.line_of(curve, ruler, name, palette.series_color(index), dash=dash)
        for index, (metric, name, dash) in enumerate(pairs)
        if (curve := area.curve(metric))
    ]
    if not members:
        return None
    figure = charts.lines(charts.chart(ruler.title, pairs[0][0].unit, height=260), members)
    figure.layout["yaxis"]["rangemode"] = "tozero"
    return figure


def _fitness(area: RunArea) -> charts.Drawing:
    ruler = area.ruler
    members = [
        charts.line_of(
            curve, ruler, charts.label_text(curve) or "mean", palette.series_color(index)
        )
        for index, curve in enumerate(area.curves([FITNESS]))
    ]
    if not members:
        return None
    return charts.lines(charts.chart(ruler.title, FITNESS.unit, height=260), members)


def _evaluations(area: RunArea) -> None:
    curve = area.curve(EVALUATIONS)
    if curve and curve.values:
        st.caption(f"{number(curve.last())} episodes played by the population so far.")
