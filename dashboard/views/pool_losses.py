"""The lower half of the tab Pool: sampled tokens by where they are, and what was given up."""

import math
from collections.abc import Sequence
from html import escape

import streamlit as st

from dashboard import charts, markup, palette
from dashboard.views.area import RunArea, panel
from dashboard.watch import Curve
from dashboard.words import number, percent
from lagoon.metrics import (
    DELAY_IF_KEPT,
    EFFECTIVE_STALENESS,
    LEDGER_DROPPED_TRAJECTORIES,
    LEDGER_LENGTH_BIAS,
    LEDGER_TOKENS,
    LEDGER_TOKENS_DROPPED,
    POOL_RESPONSE_TOKENS,
    POOL_SUCCESS,
    REJECTED,
    REJECTION_RATE,
    STALENESS_IF_KEPT,
)

ACCOUNT = (LEDGER_TOKENS, LEDGER_TOKENS_DROPPED, LEDGER_DROPPED_TRAJECTORIES, LEDGER_LENGTH_BIAS)
CHOICE = (
    REJECTION_RATE,
    REJECTED,
    EFFECTIVE_STALENESS,
    POOL_RESPONSE_TOKENS,
    POOL_SUCCESS,
    STALENESS_IF_KEPT,
    DELAY_IF_KEPT,
)
PLACES = ("trained", "generating", "ready", "reserved")
NO_BIAS = 0.01
"""A difference in length below this share is not worth a word."""


def show(area: RunArea) -> None:
    """The ledger of tokens, and a method's rejections where it makes any; nothing before either."""
    if area.curves(ACCOUNT):
        left, right = st.columns([2, 3], gap="medium")
        with left, st.container(key="panel_tokens"):
            st.html(markup.heading("Tokens", "Every sampled token is somewhere"))
            st.html(_tokens(area))
        with right, st.container(key="panel_given_up"):
            st.html(markup.heading("Given up", "Trajectories by reason and outcome"))
            st.html(_given_up(area.curves([LEDGER_DROPPED_TRAJECTORIES])))
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
            st.caption(cost_words(area.curve(STALENESS_IF_KEPT), area.curve(DELAY_IF_KEPT)))


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


def cost_words(staleness: Curve | None, delay: Curve | None) -> str:
    """What it would have cost to reject nothing at the last step."""
    if staleness is None or delay is None or not math.isfinite(staleness.last()):
        return "What it would have cost to reject nothing is not known yet."
    return (
        "Had nothing been rejected, the tokens of the last batch would have lagged by "
        f"{staleness.last():.2f} policy versions, and what stands behind the rejected groups would "
        f"have waited {delay.last():.2g} steps longer."
    )


def _tokens(area: RunArea) -> str:
    by_place = {
        curve.labels.get("place"): curve.last(0.0) for curve in area.curves([LEDGER_TOKENS])
    }
    rows = [(place, by_place.get(place, 0.0)) for place in PLACES]
    for curve in area.curves([LEDGER_TOKENS_DROPPED]):
        rows.append((f"dropped: {charts.label_text(curve)}", curve.last(0.0)))
    total, issued = sum(count for _, count in rows), by_place.get("issued", 0.0)
    verdict = (
        markup.chip("balances", "good")
        if total == issued
        else markup.chip(f"off by {number(total - issued)}", "bad")
    )
    return markup.table(
        ("where", "tokens"),
        [
            *((escape(name), number(count)) for name, count in rows),
            (f"<b>sampled</b> {verdict}", f"<b>{number(issued)}</b>"),
        ],
        numeric=[1],
    )


def _given_up(curves: Sequence[Curve]) -> str:
    if not curves:
        return markup.notice("Nothing was given up.")
    counts: dict[str, dict[str, float]] = {}
    for curve in curves:
        reason = counts.setdefault(curve.labels.get("reason", "no reason given"), {})
        reason[curve.labels.get("outcome", "")] = curve.last(0.0)
    return markup.table(
        ("reason", "successes", "failures"),
        [
            (escape(reason), number(found.get("success", 0.0)), number(found.get("failure", 0.0)))
            for reason, found in sorted(counts.items())
        ],
        numeric=[1, 2],
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


def _kept_and_rejected(area: RunArea) -> str:
    rows = []
    for metric, title in (
        (EFFECTIVE_STALENESS, "effective staleness"),
        (POOL_RESPONSE_TOKENS, "tokens of a trajectory"),
        (POOL_SUCCESS, "success"),
    ):
        newest = max((max(curve.values, default=0) for curve in area.curves([metric])), default=0)
        cells = []
        for fate in ("kept", "rejected"):
            curve = area.curve(metric, fate=fate)
            # Rejected ones have no figure in a step that rejected nothing.
            value = curve.values.get(newest) if curve else None
            cells.append(number(value))
        rows.append((title, *cells))
    return markup.table(("", "kept", "rejected"), rows, numeric=[1, 2])
