"""Sigma / ES: the noise, the step, and whether the update is as long as it should be."""

import streamlit as st

from dashboard import charts, markup, palette
from dashboard.views.area import RunArea, panel
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


def show(area: RunArea) -> None:
    """Sigma and alpha, update norm against its law, fitness, drift."""
    if not area.curves([SIGMA, FITNESS, UPDATE_NORM]):
        is_gradient = area.detail["config"].get("trainer") is not None
        st.html(
            markup.empty(
                "No sigma here." if is_gradient else "No generation finished yet.",
                f"{area.detail['method']} learns by gradients; sigma belongs to evolution "
                "strategies."
                if is_gradient
                else "Sigma, fitness and the update's length appear with the first generation.",
            )
        )
        return
    left, right = st.columns(2, gap="medium")
    with left:
        pairs = [(SIGMA, "sigma", "solid"), (ALPHA, "alpha", "dash")]
        panel("Sigma and alpha", "sigma", _together(area, pairs), "Noise on each weight; step size")
    with right:
        pairs = [(UPDATE_NORM, "measured", "solid"), (UPDATE_NORM_LAW, "law", "dash")]
        note = "The law: alpha × √(parameters / population)"
        panel("Length of the update", "update_norm", _together(area, pairs), note)
    left, right = st.columns(2, gap="medium")
    with left:
        panel("Fitness of the population", "fitness", _fitness(area))
    with right:
        pairs = [(DRIFT_NORM, "distance", "solid")]
        panel("Distance from the start", "drift", _together(area, pairs), "Euclidean, all weights")
    _evaluations(area)


def _together(area: RunArea, pairs: list[tuple[Metric, str, str]]) -> charts.Drawing:
    ruler = area.ruler
    members = [
        charts.line_of(curve, ruler, name, palette.series_color(index), dash=dash)
        for index, (metric, name, dash) in enumerate(pairs)
        if (curve := area.curve(metric))
    ]
    if not members:
        return None
    figure = charts.lines(charts.figure(ruler.title, pairs[0][0].unit, height=260), members)
    figure.update_yaxes(rangemode="tozero")
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
    return charts.lines(charts.figure(ruler.title, FITNESS.unit, height=260), members)


def _evaluations(area: RunArea) -> None:
    curve = area.curve(EVALUATIONS)
    if curve and curve.values:
        last = curve.values[curve.steps[-1]]
        st.caption(f"{last:,.0f} episodes played by the population so far.".replace(",", "\u202f"))
