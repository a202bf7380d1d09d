"""Small charts side by side: each of one metric, with a line for each of its labels."""

from collections.abc import Sequence
from html import escape

import streamlit as st

from dashboard import charts
from dashboard.views.area import RunArea, show_chart
from dashboard.watch import Curve
from lagoon.metrics import Metric

COLUMNS = 3


def show(area: RunArea, metrics: Sequence[Metric]) -> None:
    """Those of the metrics that the run has reported."""
    reported = [(metric, found) for metric in metrics if (found := area.curves([metric]))]
    for start in range(0, len(reported), COLUMNS):
        row = st.columns(COLUMNS, gap="medium")
        for column, (metric, found) in zip(row, reported[start : start + COLUMNS], strict=False):
            with column:
                _small(area, metric, found)


def _small(area: RunArea, metric: Metric, curves: Sequence[Curve]) -> None:
    key = f"small_{metric.name.replace('/', '_')}"
    title = metric.name.split("/")[1].replace("_", " ")
    with st.container(key=f"panel_{key}"):
        st.html(
            f'<div class="lg-small" title="{escape(metric.description)}">'
            f"<b>{escape(title)}</b><span>{escape(metric.unit)}</span></div>"
        )
        show_chart(area, key, lambda: charts.small_multiple(curves, metric, area.ruler))
