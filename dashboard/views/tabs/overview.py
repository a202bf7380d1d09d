"""Overview: does it learn, and how fast."""

import streamlit as st

from dashboard import charts, markup, palette
from dashboard.views.area import RunArea, panel
from lagoon.metrics import (
    FITNESS,
    HELDOUT_HIGH,
    HELDOUT_LOW,
    HELDOUT_SUCCESS,
    REWARD_MEAN,
    REWARD_STD,
    STEP_SECONDS,
    TOKENS_PER_SECOND,
    Metric,
)

METRICS = (
    REWARD_MEAN,
    REWARD_STD,
    FITNESS,
    HELDOUT_SUCCESS,
    HELDOUT_LOW,
    HELDOUT_HIGH,
    TOKENS_PER_SECOND,
    STEP_SECONDS,
)


def show(area: RunArea) -> None:
    """Reward, held-out success with its interval, speed."""
    if not area.curves(METRICS):
        st.html(
            markup.empty(
                "No points yet.",
                "The first ones come with the first evaluation, before training starts.",
            )
        )
        return
    left, right = st.columns(2, gap="medium")
    with left:
        panel(
            area,
            "Reward",
            "reward",
            lambda: _reward(area),
            "Mean over the trajectories of each step",
        )
    with right:
        panel(
            area,
            "Held-out success",
            "heldout",
            lambda: _heldout(area),
            "Greedy, on fixed unseen tasks; band: 95 % interval",
        )
    left, right = st.columns(2, gap="medium")
    with left:
        panel(area, "Tokens per second", "speed", lambda: _single(area, TOKENS_PER_SECOND))
    with right:
        panel(area, "Seconds per step", "step_seconds", lambda: _single(area, STEP_SECONDS))


def _reward(area: RunArea) -> charts.Drawing:
    mean, ruler = area.curve(REWARD_MEAN), area.ruler
    if mean is None:
        return None
    figure = charts.chart(ruler.title, REWARD_MEAN.unit, height=300)
    members = [charts.line_of(mean, ruler, "mean", palette.TEAL)]
    spread = area.curve(REWARD_STD)
    if spread:
        members.append(
            charts.line_of(spread, ruler, "standard deviation", palette.SERIES[7], dash="dot")
        )
    return charts.lines(figure, members)


def _heldout(area: RunArea) -> charts.Drawing:
    success, ruler = area.curve(HELDOUT_SUCCESS), area.ruler
    if success is None:
        return None
    figure = charts.chart(ruler.title, HELDOUT_SUCCESS.unit, height=300, percent=True)
    low, high = area.curve(HELDOUT_LOW), area.curve(HELDOUT_HIGH)
    if low and high:
        bounds = [charts.line_of(curve, ruler, "", palette.SERIES[1]) for curve in (low, high)]
        charts.band(figure, *bounds)
    line = charts.line_of(success, ruler, "held-out success", palette.SERIES[1], markers=True)
    return charts.lines(figure, [line], hover=".1%")


def _single(area: RunArea, metric: Metric) -> charts.Drawing:
    curve, ruler = area.curve(metric), area.ruler
    if curve is None:
        return None
    figure = charts.chart(ruler.title, metric.unit, height=220)
    return charts.lines(figure, [charts.line_of(curve, ruler, metric.name, palette.TEAL)])
