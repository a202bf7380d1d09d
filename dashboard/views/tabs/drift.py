"""Drift: how far the trained policy is from the one that sampled, its two causes side by side."""

import math
from collections.abc import Callable
from functools import partial

import streamlit as st

from dashboard import charts, markup, palette
from dashboard.drift_words import (
    LAG,
    MISMATCH,
    RULES,
    Drifted,
    lag_verdict,
    mismatch_verdict,
    unknown_words,
)
from dashboard.views.area import RunArea, panel
from dashboard.watch import Curve
from lagoon.drift import Cause
from lagoon.metrics import (
    DRIFT_CLIPPED,
    DRIFT_EFFECTIVE_SAMPLES,
    DRIFT_KL,
    DRIFT_MASKED,
    DRIFT_RATIO,
    DRIFT_TOKENS,
    Metric,
)

METRICS = (
    DRIFT_TOKENS,
    DRIFT_KL,
    DRIFT_RATIO,
    DRIFT_EFFECTIVE_SAMPLES,
    DRIFT_CLIPPED,
    DRIFT_MASKED,
)
CAUSES: tuple[tuple[Cause, str, str], ...] = (
    ("mismatch", "Mismatch: the same version, two programs", MISMATCH),
    ("lag", "Lag: older versions", LAG),
)
TOKENS = (("mismatch", "same version"), ("lag", "older versions"), ("unknown", "unknown"))
SIDES = (
    (DRIFT_CLIPPED, "low", "cut, ratio too low", palette.SERIES[1], "solid"),
    (DRIFT_CLIPPED, "high", "cut, ratio too high", palette.SERIES[2], "solid"),
    (DRIFT_MASKED, "low", "masked, too low", palette.SERIES[1], "dot"),
    (DRIFT_MASKED, "high", "masked, too high", palette.SERIES[2], "dot"),
)


def show(area: RunArea) -> None:
    """Both causes: in words, then figure by figure over the steps."""
    if not area.has_trainer:
        words = "Evolution strategies have no trainer: the engines hold the only weights there are."
        st.html(markup.empty("No drift here.", words))
        return
    if not area.curves(METRICS):
        words = "It is measured with each update: trainer against generators, token by token."
        st.html(markup.empty("No drift measured yet.", words))
        return
    unknown = area.curve(DRIFT_TOKENS, cause="unknown")
    num_unknown = unknown.last(0.0) if unknown else 0.0
    verdicts = {
        "mismatch": mismatch_verdict(_newest(area, "mismatch")),
        "lag": lag_verdict(_newest(area, "lag"), num_unknown),
    }
    for (cause, title, note), column in zip(CAUSES, st.columns(2, gap="medium"), strict=True):
        with column, st.container(key=f"panel_drift_{cause}"):
            st.html(markup.heading(title, note))
            st.html(markup.notice(*verdicts[cause]))
    for key, title, note, draw in FIGURES:
        for (cause, *_), column in zip(CAUSES, st.columns(2, gap="medium"), strict=True):
            with column:
                panel(area, title, f"{key}_{cause}", partial(draw, area, cause), note)
    note = "Trained tokens by what set the policies apart"
    panel(area, "Tokens", "drift_tokens", lambda: _tokens(area), note)
    st.caption(f"{unknown_words(num_unknown)} {RULES}")


def _newest(area: RunArea, cause: Cause) -> Drifted | None:
    """The figures of the last step with tokens of that cause; None when there was none."""
    tokens = area.curve(DRIFT_TOKENS, cause=cause)
    step = (
        max((step for step, count in tokens.values.items() if count), default=None)
        if tokens
        else None
    )
    if tokens is None or step is None:
        return None

    def at(curve: Curve | None) -> float:
        return curve.values.get(step, math.nan) if curve else math.nan

    def both(metric: Metric) -> float:
        return sum(at(area.curve(metric, cause=cause, side=side)) for side in ("low", "high"))

    return Drifted(
        step=step,
        is_newest=step == max(tokens.values),
        num_tokens=tokens.values[step],
        kl=at(area.curve(DRIFT_KL, cause=cause)),
        effective_samples=at(area.curve(DRIFT_EFFECTIVE_SAMPLES, cause=cause)),
        clipped=both(DRIFT_CLIPPED),
        masked=both(DRIFT_MASKED),
    )


def _divergence(area: RunArea, cause: Cause) -> charts.Drawing:
    curve, ruler = area.curve(DRIFT_KL, cause=cause), area.ruler
    if curve is None:
        return None
    figure = charts.chart(ruler.title, DRIFT_KL.unit, height=200)
    figure.layout["yaxis"]["rangemode"] = "tozero"
    return charts.lines(figure, [charts.line_of(curve, ruler, cause, palette.TEAL)], hover=".3g")


def _samples(area: RunArea, cause: Cause) -> charts.Drawing:
    curve, ruler = area.curve(DRIFT_EFFECTIVE_SAMPLES, cause=cause), area.ruler
    if curve is None:
        return None
    figure = charts.chart(ruler.title, DRIFT_EFFECTIVE_SAMPLES.unit, height=200, percent=True)
    return charts.lines(figure, [charts.line_of(curve, ruler, cause, palette.TEAL)], hover=".1%")


def _ratio(area: RunArea, cause: Cause) -> charts.Drawing:
    """Quantiles, the median solid; a logarithmic axis, on which r and 1/r are as far from 1."""
    curves = [curve for curve in area.curves([DRIFT_RATIO]) if curve.labels.get("cause") == cause]
    if not curves:
        return None
    ruler = area.ruler
    members = [
        charts.line_of(
            curve,
            ruler,
            f"{100 * share:g} %",
            palette.series_color(index),
            dash="solid" if share == 0.5 else "dot",
        )
        for index, (share, curve) in enumerate(
            sorted((float(curve.labels["quantile"]), curve) for curve in curves)
        )
    ]
    figure = charts.chart(ruler.title, DRIFT_RATIO.unit, height=220)
    figure.layout["yaxis"] |= {"type": "log", "tickformat": ".4~g"}
    known = [y for line in members for y in line.ys if 0 < y < math.inf]
    if known and max(known) > 2 * min(known):
        figure.layout["yaxis"]["dtick"] = "D2"  # 1, 2, 5, 10: every digit would not fit
    return charts.lines(figure, members, hover=".4g")


def _sides(area: RunArea, cause: Cause) -> charts.Drawing:
    ruler = area.ruler
    members = [
        charts.line_of(curve, ruler, name, color, dash=dash)
        for metric, side, name, color, dash in SIDES
        if (curve := area.curve(metric, cause=cause, side=side))
    ]
    if not members:
        return None
    figure = charts.chart(ruler.title, DRIFT_CLIPPED.unit, height=220)
    figure.layout["yaxis"] |= {"tickformat": ".0%", "rangemode": "tozero"}
    return charts.lines(figure, members, hover=".1%")


def _tokens(area: RunArea) -> charts.Drawing:
    colors = (palette.SERIES[0], palette.SERIES[2], palette.SERIES[7])
    members = [
        charts.line_of(curve, area.ruler, name, color)
        for (cause, name), color in zip(TOKENS, colors, strict=True)
        if (curve := area.curve(DRIFT_TOKENS, cause=cause))
    ]
    return charts.stacked(members, area.ruler.title, DRIFT_TOKENS.unit) if members else None


FIGURES: tuple[tuple[str, str, str, Callable[[RunArea, Cause], charts.Drawing]], ...] = (
    ("kl", "KL", "Estimate r − log r − 1, r: trainer over generator", _divergence),
    ("ratio", "Ratio", "Quantiles of r over the tokens; 1: no difference", _ratio),
    ("samples", "Effective samples", "Share of the tokens that the ratios leave", _samples),
    ("cut", "Cut and masked", "Share of the tokens, by the side that r was out on", _sides),
)
"""From the top of the page to its end."""
