"""What a run has sampled and not trained on, by reason and outcome, and how long it was."""

import math
from collections.abc import Mapping
from html import escape

import streamlit as st

from dashboard import markup
from dashboard.balance import by_step
from dashboard.reasons import reason_words
from dashboard.views import small_charts
from dashboard.views.area import RunArea
from dashboard.watch import Curve
from dashboard.words import number, percent
from lagoon.metrics import (
    LEDGER_DROPPED,
    LEDGER_DROPPED_TRAJECTORIES,
    LEDGER_LENGTH_BIAS,
    LEDGER_TOKENS,
    LEDGER_TOKENS_DROPPED,
    LEDGER_TRAINED_TRAJECTORIES,
)

METRICS = (
    LEDGER_DROPPED,
    LEDGER_DROPPED_TRAJECTORIES,
    LEDGER_LENGTH_BIAS,
    LEDGER_TOKENS,
    LEDGER_TOKENS_DROPPED,
    LEDGER_TRAINED_TRAJECTORIES,
)
NO_BIAS = 0.01
"""A difference in length below this share is not worth a word."""


def show(area: RunArea) -> None:
    """Nothing while nothing was given up."""
    area.curves(METRICS)  # all at once
    if not area.curves([LEDGER_DROPPED_TRAJECTORIES]):
        return
    with st.container(key="panel_given_up"):
        note = "Trajectories that were sampled and not trained on, by reason and outcome"
        st.html(markup.heading("Given up", note))
        st.html(_given_up(area))
        bias = area.curve(LEDGER_LENGTH_BIAS)
        if bias and bias.values:
            st.caption(bias_words(bias.last()))
        small_charts.show(area, [LEDGER_LENGTH_BIAS, LEDGER_DROPPED_TRAJECTORIES])


def dropped_by_step(area: RunArea) -> Curve | None:
    """Prompts dropped in each step, whatever the reason; None while there were none."""
    curves = area.curves([LEDGER_DROPPED])
    return by_step(curves) if any(any(curve.values.values()) for curve in curves) else None


def bias_words(bias: float) -> str:
    """Whether training sees shorter or longer work than there was."""
    if not math.isfinite(bias):
        return "Nothing was trained on yet."
    if abs(bias) < NO_BIAS:
        return (
            "What was given up hardly changes the length of what is trained on: its mean moves by "
            f"less than {percent(NO_BIAS)}."
        )
    word = "shorter" if bias < 0 else "longer"
    return (
        f"Trajectories that were trained on are {percent(abs(bias))} {word} than all that were "
        "trained on or given up."
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
        _fate(escape(reason_words(reason)), found, tokens.get(reason, 0.0))
        for reason, found in sorted(counts.items())
    ]
    return markup.table(
        ("reason", "trajectories", "successes", "failures", "share that succeeded",
         "tokens sampled", "tokens each"),
        [*rows, _trained(area)],
        numeric=range(1, 7),
    )  # fmt: skip


def _trained(area: RunArea) -> tuple[str, ...]:
    """What was trained on before the newest step, to compare with."""
    curves = area.curves([LEDGER_TRAINED_TRAJECTORIES])
    if not curves:  # a run from before that was reported
        return ("<i>trained on</i>", *["–"] * 6)
    outcomes = {curve.labels.get("outcome", ""): curve.last(0.0) for curve in curves}
    tokens = area.curve(LEDGER_TOKENS, place="trained")
    return _fate("<i>trained on</i>", outcomes, tokens.last(0.0) if tokens else 0.0)


def _fate(title: str, outcomes: Mapping[str, float], tokens: float) -> tuple[str, ...]:
    """A row; ``title`` is markup."""
    successes, failures = (outcomes.get(outcome, 0.0) for outcome in ("success", "failure"))
    count = successes + failures
    return (
        title,
        number(count),
        number(successes),
        number(failures),
        percent(successes / count) if count else "–",
        number(tokens),
        number(tokens / count) if count else "–",
    )
