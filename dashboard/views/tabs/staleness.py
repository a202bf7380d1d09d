"""Staleness: how many policy versions lie between sampling a token and training on it."""

from collections.abc import Sequence

import streamlit as st

from dashboard import charts, markup, palette, records
from dashboard.axes import Axis, Ruler
from dashboard.views.area import RunArea, panel
from dashboard.words import number, percent
from lagoon.metrics import (
    GENERATION_HISTOGRAM,
    STALENESS_COVERAGE,
    STALENESS_GENERATION,
    STALENESS_TOTAL,
    STALENESS_WAITING,
    STALENESS_WORST,
    TOTAL_HISTOGRAM,
    WAITING_HISTOGRAM,
    WORST_HISTOGRAM,
    Metric,
)

PARTS = (
    (GENERATION_HISTOGRAM, "While generating", "completed − sampled", palette.SERIES[0]),
    (WAITING_HISTOGRAM, "While waiting", "trained − completed", palette.SERIES[1]),
    (TOTAL_HISTOGRAM, "In all", "trained − sampled", palette.SERIES[3]),
    (WORST_HISTOGRAM, "Oldest token", "by trajectory", palette.SERIES[2]),
)
LINES = (
    (STALENESS_GENERATION, "generating"),
    (STALENESS_WAITING, "waiting"),
    (STALENESS_TOTAL, "in all"),
    (STALENESS_WORST, "worst token"),
)


def show(area: RunArea) -> None:
    """Exact counts in all, counts over steps, means over steps."""
    totals = {metric.name: _total(_histogram(area, metric), metric) for metric, *_ in PARTS}
    if not any(totals.values()):
        st.html(markup.empty("No tokens trained on yet.", "Counts appear with the first update."))
        return
    st.html(markup.notice(*verdict(totals, area.detail["method"])))
    columns = st.columns(4, gap="small")
    for column, (metric, title, note, color) in zip(columns, PARTS, strict=True):
        unit = "trajectories" if metric is WORST_HISTOGRAM else "tokens"
        counts = totals[metric.name]
        figure = charts.bars(counts, "policy versions", unit, color) if counts else None
        with column:
            panel(title, f"bars_{unit}_{title}", figure, note)
    _over_steps(area)
    _coverage(area)


def verdict(totals: dict[str, dict[int, int]], method: str) -> tuple[str, str]:
    """The histogram in a sentence, and for an all-zero one the reason."""
    counts = totals[TOTAL_HISTOGRAM.name] or totals[WORST_HISTOGRAM.name]
    tokens = sum(counts.values())
    stale = sum(count for lag, count in counts.items() if lag)
    if not stale:
        return (
            f"All {number(tokens)} trained tokens have staleness 0.",
            f"{method} is synchronous: generation stops while the weights change, and every "
            "update waits for the data of its own policy version. Asynchronous methods let the "
            "two overlap; their tokens lag by the versions counted here.",
        )
    mean = sum(lag * count for lag, count in counts.items()) / tokens
    return (
        f"Trained tokens lag by {mean:.2f} policy versions on average, {max(counts)} at most.",
        f"{percent(1 - stale / tokens)} of {number(tokens)} tokens were trained on by the very "
        "version that sampled them.",
    )


def _histogram(area: RunArea, metric: Metric) -> records.Histogram:
    return area.watch.kept(
        f"histogram {metric.name}",
        lambda: area.site.api.histogram(area.watch.run_id, metric.name),
    )


def _total(histogram: records.Histogram, metric: Metric) -> dict[int, int]:
    counts = histogram["total"].get("counts", {})
    return {int(lag): count for lag, count in counts.items()}


def _over_steps(area: RunArea) -> None:
    ruler = area.ruler
    items = _histogram(area, TOTAL_HISTOGRAM)["items"]
    left, right = st.columns(2, gap="medium")
    with left:
        panel("Staleness over the run", "heat", _heat(items, ruler), "Share of each step's tokens")
    members = [
        charts.line_of(curve, ruler, name, palette.series_color(index))
        for index, (metric, name) in enumerate(LINES)
        if (curve := area.curve(metric))
    ]
    figure = None
    if members:
        figure = charts.lines(charts.figure(ruler.title, STALENESS_TOTAL.unit, height=280), members)
        figure.update_yaxes(rangemode="tozero")
    with right:
        panel("Mean and worst", "staleness_means", figure, "Token-weighted, by step")


def _heat(items: Sequence[records.HistogramStep], ruler: Ruler) -> charts.Drawing:
    if not items:
        return None
    counts = [{int(lag): n for lag, n in item["counts"].items()} for item in items]
    xs = ruler.place_steps([item["step"] for item in items])
    title = Axis.STEP.caption if ruler.axis is Axis.TIME else ruler.title
    return charts.heat_map(xs, counts, title, STALENESS_TOTAL.unit)


def _coverage(area: RunArea) -> None:
    coverage = area.curve(STALENESS_COVERAGE)
    if coverage and coverage.values:
        worst = min(coverage.values.values())
        st.caption(
            f"The policy version is known for at least {percent(worst)} of the trained tokens of "
            "every step shown; tokens without one are counted as missing, never as zero."
        )
