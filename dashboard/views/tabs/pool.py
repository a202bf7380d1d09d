"""Pool: where every prompt is, and the ledger that must balance."""

import math
from html import escape

import streamlit as st

from dashboard import charts, markup, palette
from dashboard.views import pool_losses
from dashboard.views.area import RunArea, panel
from dashboard.watch import Curve
from dashboard.words import duration, number, percent, plural
from lagoon.metrics import (
    BACKPRESSURE_SECONDS,
    GENERATE_SECONDS,
    LEDGER_DROPPED,
    LEDGER_ISSUED,
    LEDGER_TRAINED,
    POOL_GENERATING,
    POOL_READY,
    POOL_RESERVED,
    POOL_TARGET,
    STEP_SECONDS,
)

PARTS = (
    (POOL_GENERATING, "generating", palette.SERIES[0]),
    (POOL_READY, "ready", palette.SERIES[4]),
    (POOL_RESERVED, "reserved", palette.SERIES[1]),
)
WAITS = (STEP_SECONDS, GENERATE_SECONDS, BACKPRESSURE_SECONDS)
WAITING = (POOL_GENERATING, POOL_READY)
"""Not the reserved ones: a step is reported with the batch that it trained on still reserved."""
RECENT_STEPS = 20
"""Over which it is said who waits for whom."""
NO_WAIT = 0.05
"""A smaller share of the time is not worth a word."""
OTHERS = (POOL_TARGET, LEDGER_ISSUED, LEDGER_TRAINED, LEDGER_DROPPED)


def show(area: RunArea) -> None:
    """Occupancy over steps and the ledger at the newest step."""
    if area.detail["config"].get("trainer") is None:
        words = "Evolution strategies have no pool: every member plays all its cases at once."
        st.html(markup.empty("No pool here.", words))
        return
    if not area.curves([*(metric for metric, *_ in PARTS), *OTHERS]):
        words = "It fills when the generators start."
        st.html(markup.empty("Nothing in the pool yet.", words))
        return
    waiting = [value for curve in area.curves(WAITING) for value in curve.values.values()]
    if waiting and not any(waiting):
        st.html(
            markup.notice(
                "No prompt waits at the end of any step.",
                "A synchronous method generates one batch and trains on all of it before it goes "
                "on; prompts wait here only with asynchronous methods.",
            )
        )
    area.curves(WAITS)  # all at once
    waits = who_waits(*map(area.curve, WAITS))
    if waits:
        st.html(markup.notice(*waits))
    left, right = st.columns([3, 2], gap="medium")
    with left:
        note = "Prompts by where they are, at each step"
        panel(area, "Occupancy", "pool", lambda: _occupancy(area), note)
    with right, st.container(key="panel_ledger"):
        st.html(markup.heading("Ledger", "Every prompt issued is somewhere"))
        st.html(_ledger(area))
    pool_losses.show(area)


def who_waits(
    steps: Curve | None, starved: Curve | None, held_back: Curve | None
) -> tuple[str, str] | None:
    """Who waits for whom in the last steps, in words and in seconds; None when nothing is known."""
    if steps is None or starved is None or held_back is None:
        return None
    recent = [step for step in steps.steps if step in starved.values and step in held_back.values]
    recent = recent[-RECENT_STEPS:]
    total, trainer, generators = (
        math.fsum(curve.values[step] for step in recent) for curve in (steps, starved, held_back)
    )
    if not (recent and total > 0):
        return None
    if max(trainer, generators) < NO_WAIT * total:
        words = "Generators and trainer keep up with each other."
    elif trainer >= generators:
        words = "The trainer waits for the generators."
    else:
        words = "The generators wait for the trainer."
    return words, (
        f"In the last {plural(len(recent), 'step')} ({duration(total)}) the trainer waited "
        f"{duration(trainer)} for a batch ({percent(trainer / total)}), and for "
        f"{duration(generators)} ({percent(generators / total)}) the staleness bound held back "
        "prompts that generators had places for."
    )


def _occupancy(area: RunArea) -> charts.Drawing:
    ruler = area.ruler
    members = [
        charts.line_of(curve, ruler, name, color)
        for metric, name, color in PARTS
        if (curve := area.curve(metric))
    ]
    if not members:
        return None
    figure = charts.stacked(members, ruler.title, POOL_READY.unit)
    target = area.curve(POOL_TARGET)
    if target:
        aim = charts.line_of(target, ruler, "target", palette.CORAL, dash="dash")
        charts.lines(figure, [aim], legend=True)
    return figure


def _ledger(area: RunArea) -> str:
    issued = _last(area.curve(LEDGER_ISSUED))
    trained = _last(area.curve(LEDGER_TRAINED))
    places = [(name, _last(area.curve(metric))) for metric, name, _ in PARTS]
    dropped = [
        (f"dropped: {charts.label_text(curve) or 'no reason given'}", _last(curve))
        for curve in area.curves([LEDGER_DROPPED])
    ]
    rows = [("trained", trained), *dropped, *places]
    total = sum(count for _, count in rows)
    verdict = (
        markup.chip("balances", "good")
        if total == issued
        else markup.chip(f"off by {number(total - issued)}", "bad")
    )
    return markup.table(
        ("where", "prompts"),
        [
            *((escape(name), number(count)) for name, count in rows),
            ("<b>sum</b>", f"<b>{number(total)}</b>"),
            (f"<b>issued</b> {verdict}", f"<b>{number(issued)}</b>"),
        ],
        numeric=[1],
    )


def _last(curve: Curve | None) -> float:
    return curve.last(0.0) if curve else 0.0
