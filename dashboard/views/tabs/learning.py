"""Learning: everything else the run reports, small multiples by panel."""

import streamlit as st

from dashboard import markup
from dashboard.views import critic, small_charts
from dashboard.views.area import RunArea
from lagoon.metrics import CATALOGUE, Metric

ELSEWHERE = {"staleness", "pool", "ledger", "drift", "es", "heldout", "progress"}
"""Panels that have a tab of their own, or are an axis."""
OF_THE_CRITIC = {metric.name for metric in critic.METRICS[:3]}
"""Shown above the others."""

TITLES = {
    "trainer": "Trainer",
    "reward": "Reward",
    "rollout": "Rollouts",
    "sync": "Published weights",
    "time": "Time and throughput",
}
TOGETHER = {"throughput": "time"}
"""Small panels that are shown under another's title."""


def show(area: RunArea) -> None:
    """One small chart per metric, those that the run has reported."""
    wanted = [
        metric
        for metric in CATALOGUE.values()
        if metric.kind == "scalar"
        and metric.panel not in ELSEWHERE
        and metric.name not in OF_THE_CRITIC
    ]
    reported = {curve.name for curve in area.curves(wanted)}
    shown = [metric for metric in wanted if metric.name in reported]
    if not shown:
        st.html(markup.empty("No points yet.", "Charts appear with the first step."))
        return
    critic.show(area)
    groups: dict[str, list[Metric]] = {name: [] for name in TITLES}
    for metric in shown:
        groups.setdefault(TOGETHER.get(metric.panel, metric.panel), []).append(metric)
    for name, metrics in groups.items():
        if metrics:
            st.html(markup.heading(TITLES.get(name, name.capitalize())))
            small_charts.show(area, metrics)
