"""Learning: everything else the run reports, small multiples by panel."""

from html import escape
from itertools import groupby

import streamlit as st

from dashboard import charts, markup
from dashboard.views.area import RunArea
from dashboard.watch import Curve
from lagoon.metrics import CATALOGUE, Metric

ELSEWHERE = {"staleness", "pool", "ledger", "es", "heldout", "progress"}
"""Panels that have a tab of their own, or are an axis."""

TITLES = {
    "trainer": "Trainer",
    "mismatch": "Generator against trainer",
    "reward": "Reward",
    "rollout": "Rollouts",
    "time": "Time",
    "throughput": "Throughput",
    "sync": "Published weights",
}


def show(area: RunArea) -> None:
    """One small chart per metric, those that the run has reported."""
    wanted = [
        metric
        for metric in CATALOGUE.values()
        if metric.kind == "scalar" and metric.panel not in ELSEWHERE
    ]
    found = area.curves(wanted)
    by_name: dict[str, list[Curve]] = {
        name: list(curves) for name, curves in groupby(found, key=lambda curve: curve.name)
    }
    shown = [metric for metric in wanted if metric.name in by_name]
    if not shown:
        st.html(markup.empty("No points yet.", "Charts appear with the first step."))
        return
    order = list(dict.fromkeys(metric.panel for metric in shown))
    order.sort(key=lambda panel: list(TITLES).index(panel) if panel in TITLES else len(TITLES))
    for name in order:
        _panel(area, name, [metric for metric in shown if metric.panel == name], by_name)


def _panel(
    area: RunArea, name: str, metrics: list[Metric], by_name: dict[str, list[Curve]]
) -> None:
    st.html(markup.heading(TITLES.get(name, name.capitalize())))
    ruler = area.ruler
    for start in range(0, len(metrics), 3):
        for column, metric in zip(st.columns(3), metrics[start : start + 3], strict=False):
            with column, st.container(key=f"panel_small_{metric.name.replace('/', '_')}"):
                title = metric.name.split("/")[1].replace("_", " ")
                st.html(
                    f'<div class="lg-small" title="{escape(metric.description)}">'
                    f"<b>{escape(title)}</b><span>{escape(metric.unit)}</span></div>"
                )
                st.plotly_chart(
                    charts.small_multiple(by_name[metric.name], metric, ruler),
                    key=f"small_{metric.name}",
                    theme=None,
                    config=charts.CONFIG,
                )
