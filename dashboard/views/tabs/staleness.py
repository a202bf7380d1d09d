"""Staleness: how many policy versions lie between sampling a token and training on it."""

from collections.abc import Sequence

import streamlit as st

from dashboard import charts, markup, palette, records
from dashboard.axes import Axis, Ruler
from dashboard.views.area import RunArea, panel
from dashboard.words import number, percent
from lagoon.methods import METHODS
from lagoon.metrics import (
    GENERATION_HISTOGRAM,
    MASKED_HISTOGRAM,
    SPAN_HISTOGRAM,
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

BY_TOKEN = (
    (TOTAL_HISTOGRAM, "In all", "Trained − sampled version", palette.SERIES[0]),
    (GENERATION_HISTOGRAM, "While generating", "Completed − sampled version", palette.SERIES[1]),
    (WAITING_HISTOGRAM, "While waiting", "Trained − completed version", palette.SERIES[3]),
)
BY_TRAJECTORY = (
    (WORST_HISTOGRAM, "Oldest token", "Trajectories by their worst token", palette.SERIES[2]),
    (SPAN_HISTOGRAM, "Span", "Trajectories by the versions that sampled them", palette.SERIES[5]),
)
MASKED = (MASKED_HISTOGRAM, "Masked", "Tokens that a correction gave weight 0", palette.SERIES[4])
LINES = (
    (STALENESS_GENERATION, "generating"),
    (STALENESS_WAITING, "waiting"),
    (STALENESS_TOTAL, "in all"),
    (STALENESS_WORST, "worst token"),
)


def show(area: RunArea) -> None:
    """Exact counts in all, counts over steps, means over steps."""
    area.curves([STALENESS_COVERAGE, *(metric for metric, _ in LINES)])
    parts = (*BY_TOKEN, *BY_TRAJECTORY, MASKED)
    totals = {metric.name: _total(_histogram(area, metric)) for metric, *_ in parts}
    if not any(totals.values()):
        st.html(markup.empty("No tokens trained on yet.", "Counts appear with the first update."))
        return
    st.html(markup.notice(*verdict(totals, *synchrony(area.detail["config"]))))
    rows = [("tokens", BY_TOKEN), ("trajectories", BY_TRAJECTORY)]
    if totals[MASKED_HISTOGRAM.name]:
        rows.append(("tokens", (MASKED,)))
    for unit, row in rows:
        for column, part in zip(st.columns(len(row), gap="medium"), row, strict=True):
            with column:
                _bars(area, totals[part[0].name], unit, *part)
    _over_steps(area)
    _coverage(area)


def _bars(
    area: RunArea,
    counts: dict[int, int],
    unit: str,
    metric: Metric,
    title: str,
    note: str,
    color: str,
) -> None:
    panel(
        area,
        title,
        f"bars_{metric.name.split('/')[1]}",
        lambda: charts.bars(counts, "policy versions", unit, color) if counts else None,
        note,
    )


def synchrony(config: records.Config) -> tuple[str, bool]:
    """The method's title, and whether it is synchronous (so that staleness must be 0)."""
    section = config.get("method") or {}
    known = {cls.model_fields["name"].default: cls for cls in METHODS}
    method = known.get(section.get("name"))
    if method is None:
        return str(section.get("name")), False
    # Evolution strategies know no bound of their own: each generation waits for all its members.
    bound = getattr(method.model_validate(section), "staleness_bound", 0)
    return method.title, bound == 0


def verdict(
    totals: dict[str, dict[int, int]], method: str, is_synchronous: bool
) -> tuple[str, str]:
    """The histogram in a sentence, and for an all-zero one the reason."""
    counts = totals[TOTAL_HISTOGRAM.name] or totals[WORST_HISTOGRAM.name]
    tokens = sum(counts.values())
    stale = sum(count for lag, count in counts.items() if lag)
    if not stale:
        return (
            f"All {number(tokens)} trained tokens have staleness 0.",
            f"{method} waits: generation stops while the weights change, and every update "
            "trains on data of its own policy version only. Asynchronous methods let the two "
            "overlap; their tokens lag by the versions counted here."
            if is_synchronous
            else "Generation kept up with training so far.",
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


def _total(histogram: records.Histogram) -> dict[int, int]:
    counts = histogram["total"].get("counts", {})
    return {int(lag): count for lag, count in counts.items()}


def _over_steps(area: RunArea) -> None:
    items = _histogram(area, TOTAL_HISTOGRAM)["items"]
    left, right = st.columns(2, gap="medium")
    with left:
        panel(
            area,
            "Staleness over the run",
            "heat",
            lambda: _heat(items, area.ruler),
            "Share of each step's tokens",
        )
    with right:
        panel(
            area,
            "Mean and worst",
            "staleness_means",
            lambda: _means(area),
            "Token-weighted, by step",
        )


def _means(area: RunArea) -> charts.Drawing:
    ruler = area.ruler
    members = [
        charts.line_of(curve, ruler, name, palette.series_color(index))
        for index, (metric, name) in enumerate(LINES)
        if (curve := area.curve(metric))
    ]
    if not members:
        return None
    figure = charts.chart(ruler.title, STALENESS_TOTAL.unit, height=280)
    figure.layout["yaxis"]["rangemode"] = "tozero"
    return charts.lines(figure, members)


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
        known = "all" if worst == 1 else f"at least {percent(worst)} of each step's"
        st.caption(
            f"The policy version is known for {known} trained tokens; tokens without one are "
            "counted as missing, never as zero."
        )
