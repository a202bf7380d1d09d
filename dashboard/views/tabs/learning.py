"""Learning: everything else the run reports, small multiples by panel."""

from html import escape
from itertools import groupby

import streamlit as st

from dashboard import charts, markup
from dashboard.views import critic
from dashboard.views.area import RunArea, show_chart
from dashboard.watch import Curve
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
COLUMNS = 3


def show(area: RunArea) -> None:
    """One small chart per metric, those that the run has reported."""
    wanted = [
        metric
        for metric in CATALOGUE.values()
        if metric.kind == "scalar"
        and metric.panel not in ELSEWHERE
        and metric.name not in OF_THE_CRITIC
    ]
    found = area.curves(wanted)
    by_name: dict[str, list[Curve]] = {
        name: list(curves) for name, curves in groupby(found, key=lambda curve: curve.name)
    }
    shown = [metric for metric in wanted if metric.name in by_name]
    if not shown:
        st.html(markup.empty("No points yet.", "Charts appear with the first step."))
        return
    critic.show(area)
    groups: dict[str, list[Metric]] = {name: [] for name in TITLES}
    for metric in shown:
        groups.setdefault(TOGETHER.get(metric.panel, metric.panel), []).append(metric)
    for name, metrics in groups.items():
        if metrics:
            _panel(area, name, metrics, by_name)


def _panel(
    area: RunArea, name: str, metrics: list[Metric], by_name: dict[str, list[Curve]]
) -> None:
    st.html(markup.heading(TITLES.get(name, name.capitalize())))
    for start in range(0, len(metrics), COLUMNS):
        row = st.columns(COLUMNS, gap="medium")
        for column, metric in zip(row, metrics[start : start + COLUMNS], strict=False):
            with column:
                _small(area, metric, by_name[metric.name])


def _small(area: RunArea, metric: Metric, curves: list[Curve]) -> None:
    title = metric.name.split("/")[1].replace("_", " ")
    with st.container(key=f"panel_small_{metric.name.replace('/', '_')}"):
        st.html(
            f'<div class="lg-small" title="{escape(metric.description)}">'
            f"<b>{escape(title)}</b><span>{escape(metric.unit)}</span></div>"
        )
        show_chart(
            area,
            f"small_{metric.name.replace('/', '_')}",
            lambda: charts.small_multiple(curves, metric, area.ruler),
        )
