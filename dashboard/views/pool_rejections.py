"""What a method rejects from its pool: how much, what it was like, what keeping it would cost."""

import math
from collections.abc import Sequence

import streamlit as st

from dashboard import charts, markup, palette
from dashboard.views import small_charts
from dashboard.views.area import RunArea, panel
from dashboard.watch import Curve
from dashboard.words import number, percent
from lagoon.metrics import (
    DELAY_IF_KEPT,
    EFFECTIVE_STALENESS,
    POOL_RESPONSE_TOKENS,
    POOL_SUCCESS,
    REJECTED,
    REJECTION_RATE,
    STALENESS_IF_KEPT,
    STALENESS_TOTAL,
)

OVER_THE_RUN = (
    REJECTED,
    EFFECTIVE_STALENESS,
    POOL_RESPONSE_TOKENS,
    POOL_SUCCESS,
    STALENESS_IF_KEPT,
    DELAY_IF_KEPT,
)
AT_ONE_STEP = (*OVER_THE_RUN[1:], STALENESS_TOTAL)
"""What is told of the last step that rejected anything."""
METRICS = (REJECTION_RATE, STALENESS_TOTAL, *OVER_THE_RUN)


def show(area: RunArea) -> None:
    """Nothing for a method that never rejects."""
    area.curves(METRICS)  # all at once
    if not area.curves([REJECTION_RATE]):
        return
    left, right = st.columns([3, 2], gap="medium")
    with left:
        note = "Share of the ready groups to be rejected"
        panel(area, "Rejection rate", "rejection_rate", lambda: _rates(area), note)
    with right, st.container(key="panel_rejected"):
        step = last_rejection(area.curves([REJECTED]), area.curves(AT_ONE_STEP))
        where = "none was rejected yet" if step is None else f"step {step}, the last that rejected"
        st.html(markup.heading("Kept and rejected", f"Means over the pool: {where}"))
        st.html(_kept_and_rejected(area, step))
        costs = (area.curve(STALENESS_IF_KEPT), area.curve(DELAY_IF_KEPT))
        st.caption(cost_words(step, *costs, area.curve(STALENESS_TOTAL)))
    note = "By reason; scores, lengths and outcomes of both; what keeping all would have cost"
    st.html(markup.heading("Rejections over the run", note))
    small_charts.show(area, OVER_THE_RUN)


def last_rejection(rejected: Sequence[Curve], told: Sequence[Curve]) -> int | None:
    """The newest step that rejected a group, whatever the reason; None before the first.

    ``told`` are curves that are to be read there: of those that are thinned, each on its own, only
    steps that all of them have left are looked at.
    """
    steps = {step for curve in rejected for step, count in curve.values.items() if count}
    for curve in told:
        if curve.is_thinned:
            steps &= curve.values.keys()
    return max(steps, default=None)


def cost_words(
    step: int | None, staleness: Curve | None, delay: Curve | None, trained: Curve | None
) -> str:
    """What it would have cost to reject nothing at that step, the last that rejected any."""
    if step is None:
        return "Nothing was rejected so far, so that keeping everything cost nothing."
    stale, later, now = (
        curve.values.get(step, math.nan) if curve else math.nan
        for curve in (staleness, delay, trained)
    )
    if not (math.isfinite(stale) and math.isfinite(later)):
        return "What it would have cost to reject nothing is not known."
    instead = f" instead of {now:.2f}" if math.isfinite(now) else ""
    return (
        f"Had nothing been rejected, the tokens of the batch of step {step} would have lagged by "
        f"{stale:.2f} policy versions{instead}, and what stands behind the rejected "
        f"groups would have waited {later:.2g} steps longer."
    )


def _rates(area: RunArea) -> charts.Drawing:
    ruler = area.ruler
    names = {"raw": "what this pool asks for", "smoothed": "applied"}
    members = [
        charts.line_of(
            curve,
            ruler,
            names.get(curve.labels.get("kind", ""), charts.label_text(curve)),
            palette.series_color(index),
        )
        for index, curve in enumerate(area.curves([REJECTION_RATE]))
    ]
    if not members:
        return None
    figure = charts.lines(charts.chart(ruler.title, REJECTION_RATE.unit, height=260), members)
    figure.layout["yaxis"]["rangemode"] = "tozero"
    return figure


def _kept_and_rejected(area: RunArea, step: int | None) -> str:
    rows = []
    for metric, title, show_as in (
        (EFFECTIVE_STALENESS, "effective staleness", number),
        (POOL_RESPONSE_TOKENS, "tokens of a trajectory", number),
        (POOL_SUCCESS, "share that succeeded", percent),
    ):
        kept, rejected = (area.curve(metric, fate=fate) for fate in ("kept", "rejected"))
        newest = step if step is not None else max(kept.values, default=0) if kept else 0
        cells = [show_as(c.values.get(newest) if c else None) for c in (kept, rejected)]
        rows.append((title, *cells))
    return markup.table(("", "kept", "rejected"), rows, numeric=[1, 2])
