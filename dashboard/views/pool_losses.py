"""The lower half of the tab Pool: what was given up, and what keeping it would have cost."""

import math
from collections.abc import Mapping
from html import escape

import streamlit as st

from dashboard import charts, markup, palette
from dashboard.balance import by_step
from dashboard.reasons import reason_words
from dashboard.views.area import RunArea, panel
from dashboard.watch import Curve
from dashboard.words import number, percent
from lagoon.metrics import (
    DELAY_IF_KEPT,
    EFFECTIVE_STALENESS,
    LEDGER_DROPPED,
    LEDGER_DROPPED_TRAJECTORIES,
    LEDGER_LENGTH_BIAS,
    LEDGER_TOKENS,
    LEDGER_TOKENS_DROPPED,
    POOL_RESPONSE_TOKENS,
    POOL_SUCCESS,
    REJECTED,
    REJECTION_RATE,
    STALENESS_IF_KEPT,
    STALENESS_TOTAL,
    TOTAL_SAMPLES,
)

ACCOUNT = (
    LEDGER_DROPPED,
    LEDGER_DROPPED_TRAJECTORIES,
    LEDGER_LENGTH_BIAS,
    LEDGER_TOKENS,
    LEDGER_TOKENS_DROPPED,
    STALENESS_TOTAL,
    TOTAL_SAMPLES,
)
CHOICE = (
    REJECTION_RATE,
    REJECTED,
    EFFECTIVE_STALENESS,
    POOL_RESPONSE_TOKENS,
    POOL_SUCCESS,
    STALENESS_IF_KEPT,
    DELAY_IF_KEPT,
)
NO_BIAS = 0.01
"""A difference in length below this share is not worth a word."""


def show(area: RunArea) -> None:
    """What was given up, and a method's rejections where it makes any; nothing before either."""
    area.curves(ACCOUNT)  # all at once
    if area.curves([LEDGER_DROPPED_TRAJECTORIES]):
        with st.container(key="panel_given_up"):
            note = "Trajectories that were sampled and not trained on, by reason and outcome"
            st.html(markup.heading("Given up", note))
            st.html(_given_up(area))
            bias = area.curve(LEDGER_LENGTH_BIAS)
            if bias and bias.values:
                st.caption(bias_words(bias.last()))
    if area.curves(CHOICE):
        left, right = st.columns([3, 2], gap="medium")
        with left:
            note = "Share of the ready groups to be rejected"
            panel(area, "Rejection rate", "rejection_rate", lambda: _rates(area), note)
        with right, st.container(key="panel_rejected"):
            st.html(markup.heading("Kept and rejected", "Means over the pool at the last step"))
            st.html(_kept_and_rejected(area))
            costs = (area.curve(STALENESS_IF_KEPT), area.curve(DELAY_IF_KEPT))
            st.caption(cost_words(*costs, area.curve(STALENESS_TOTAL)))


def dropped_by_step(area: RunArea) -> Curve | None:
    """Prompts dropped in each step, whatever the reason; None while there were none."""
    curves = area.curves([LEDGER_DROPPED])
    return by_step(curves) if any(any(curve.values.values()) for curve in curves) else None


def bias_words(bias: float) -> str:
    """Whether training sees shorter or longer work than there was."""
    if not math.isfinite(bias):
        return "Nothing was trained on yet."
    if abs(bias) < NO_BIAS:
        return "What was trained on is as long as what was given up."
    word = "shorter" if bias < 0 else "longer"
    return (
        f"Trajectories that were trained on are {percent(abs(bias))} {word} than all that were "
        "trained on or given up."
    )


def cost_words(staleness: Curve | None, delay: Curve | None, trained: Curve | None) -> str:
    """What it would have cost to reject nothing at the last step."""
    if staleness is None or delay is None or not math.isfinite(staleness.last()):
        return "What it would have cost to reject nothing is not known yet."
    if not delay.last():
        return "Nothing was rejected at the last step, so that keeping everything cost nothing."
    now = trained.values.get(max(staleness.values), math.nan) if trained else math.nan
    instead = f" instead of {now:.2f}" if math.isfinite(now) else ""
    return (
        "Had nothing been rejected, the tokens of the last batch would have lagged by "
        f"{staleness.last():.2f} policy versions{instead}, and what stands behind the rejected "
        f"groups would have waited {delay.last():.2g} steps longer."
    )


def _given_up(area: RunArea) -> str:
    counts: dict[str, dict[str, float]] = {}
    for curve in area.curves([LEDGER_DROPPED_TRAJECTORIES]):
        found = counts.setdefault(curve.labels.get("reason", ""), {})
        found[curve.labels.get("outcome", "")] = curve.last(0.0)
    tokens = {
        curve.labels.get("reason", ""): curve.last(0.0)
        for curve in area.curves([LEDGER_TOKENS_DROPPED])
    }
    rows = [
        _fate(reason_words(reason), found, tokens.get(reason, 0.0))
        for reason, found in sorted(counts.items())
    ]
    return markup.table(
        ("reason", "trajectories", "successes", "failures", "share that succeeded",
         "tokens sampled", "tokens each"),
        [*rows, _trained(area)],
        numeric=range(1, 7),
    )  # fmt: skip


def _fate(name: str, outcomes: Mapping[str, float], tokens: float) -> tuple[str, ...]:
    successes, failures = (outcomes.get(outcome, 0.0) for outcome in ("success", "failure"))
    count = successes + failures
    return (
        escape(name),
        number(count),
        number(successes),
        number(failures),
        percent(successes / count) if count else "–",
        number(tokens),
        number(tokens / count) if count else "–",
    )


def _trained(area: RunArea) -> tuple[str, ...]:
    """What was trained on, to compare with. A step is reported with its batch still reserved."""
    samples = area.curve(TOTAL_SAMPLES)
    count = samples.last(0.0) if samples else 0.0
    curves = [area.curve(LEDGER_TOKENS, place=place) for place in ("trained", "reserved")]
    tokens = sum(curve.last(0.0) for curve in curves if curve)
    each = number(tokens / count) if count else "–"
    return ("<i>trained on</i>", number(count), "", "", "", number(tokens), each)


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


def _kept_and_rejected(area: RunArea) -> str:
    rows = []
    for metric, title, show_as in (
        (EFFECTIVE_STALENESS, "effective staleness", number),
        (POOL_RESPONSE_TOKENS, "tokens of a trajectory", number),
        (POOL_SUCCESS, "share that succeeded", percent),
    ):
        newest = max((max(curve.values, default=0) for curve in area.curves([metric])), default=0)
        cells = []
        for fate in ("kept", "rejected"):
            curve = area.curve(metric, fate=fate)
            # Rejected ones have no figure in a step that rejected nothing.
            value = curve.values.get(newest) if curve else None
            cells.append(show_as(value))
        rows.append((title, *cells))
    return markup.table(("", "kept", "rejected"), rows, numeric=[1, 2])
