"""The critic of a method that has one, in the tab Learning: what it predicts, and its warm-up."""

import math

import streamlit as st

from dashboard import charts, markup, palette
from dashboard.axes import Axis
from dashboard.views.area import RunArea, panel
from dashboard.views.method_of import method_of
from dashboard.words import number, plural
from lagoon.methods.actor_critic import ActorCritic
from lagoon.metrics import (
    CRITIC_GRAD_NORM,
    CRITIC_LEARNING_RATE,
    EXPLAINED_VARIANCE,
    LEARNING_RATE,
    VALUE_LOSS,
    Metric,
)

METRICS = (VALUE_LOSS, EXPLAINED_VARIANCE, CRITIC_GRAD_NORM, CRITIC_LEARNING_RATE)


def show(area: RunArea) -> None:
    """Nothing for a run without a critic."""
    if not area.curves([*METRICS, LEARNING_RATE]) or area.curve(VALUE_LOSS) is None:
        return
    st.html(markup.heading("Critic", "What it expects of each token's future, against what came"))
    newest = area.curve(VALUE_LOSS)
    explained = area.curve(EXPLAINED_VARIANCE)
    warmup = _warmup_steps(area)
    words = critic_words(
        max(newest.values, default=0) if newest else 0,
        warmup,
        explained.last() if explained else math.nan,
    )
    st.html(markup.notice(*words))
    shown = (
        (VALUE_LOSS, "Value loss", "Squared error of the returns; shaded: its warm-up"),
        (EXPLAINED_VARIANCE, "Explained variance", "Of the returns: 1 is all, 0 their mean"),
        (CRITIC_GRAD_NORM, "Gradient norm", "Before clipping, mean over its updates of a step"),
    )
    for column, (metric, title, note) in zip(st.columns(3, gap="medium"), shown, strict=True):
        with column:
            key = metric.name.replace("/", "_")
            panel(area, title, key, lambda metric=metric: _curve(area, metric, warmup), note)  # type: ignore[misc]


def critic_words(step: int, warmup_steps: int, explained: float) -> tuple[str, str]:
    """Whether the critic is still trained alone, and what it can predict."""
    known = (
        f"Its values explain {number(explained, 2)} of the variance of the returns"
        if math.isfinite(explained)
        else "What its values explain is not known yet"
    )
    worth = (
        ": less than their mean would, so that its advantages still add noise."
        if explained < 0
        else "."
    )
    if step < warmup_steps:
        return (
            f"Warm-up: the critic is trained alone for {plural(warmup_steps - step, 'more step')}.",
            f"Until step {warmup_steps} the policy is published unchanged. {known}{worth}",
        )
    began = f"since step {warmup_steps + 1}" if warmup_steps else "since the first step"
    return f"Critic and policy are both trained, {began}.", f"{known}{worth}"


def _warmup_steps(area: RunArea) -> int:
    """Steps that train the critic alone, asked of the method step by step."""
    method = method_of(area.detail["config"])
    if not isinstance(method, ActorCritic):
        return 0
    steps = range(area.detail["max_steps"])
    return next((step for step in steps if method.updates_at(step).policy), len(steps))


def _curve(area: RunArea, metric: Metric, warmup_steps: int) -> charts.Drawing:
    curve, ruler = area.curve(metric), area.ruler
    if curve is None:
        return None
    figure = charts.chart(ruler.title, metric.unit, height=220)
    charts.lines(figure, [charts.line_of(curve, ruler, metric.name, palette.TEAL)])
    if warmup_steps and ruler.axis is not Axis.TIME:
        start, end = ruler.place_steps([0, warmup_steps])
        figure.layout.setdefault("shapes", []).append(
            {
                "type": "rect", "xref": "x", "yref": "paper", "x0": start, "x1": end,
                "y0": 0, "y1": 1, "line": {"width": 0}, "layer": "below",
                "fillcolor": charts.translucent(palette.SERIES[4], 0.18),
            }
        )  # fmt: skip
    return figure
