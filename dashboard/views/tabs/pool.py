"""Pool: what it is doing and why, where every prompt is, and the ledgers that must balance."""

import math

import streamlit as st

from dashboard import charts, markup, palette
from dashboard.pool_words import (
    RECENT_STEPS,
    PoolNow,
    Waits,
    controller_words,
    episode_words,
    waits_of,
    what_and_why,
)
from dashboard.views import pool_ledger, pool_losses, pool_rejections
from dashboard.views.area import RunArea, panel
from dashboard.views.method_of import has_own_target, is_synchronous, method_of
from dashboard.watch import Curve
from dashboard.words import duration, percent
from lagoon.methods import PolicyGradient
from lagoon.metrics import (
    BACKPRESSURE_SECONDS,
    ENVIRONMENT_SECONDS,
    EPISODE_SECONDS,
    EVALUATION_WAIT_SECONDS,
    GENERATE_SECONDS,
    LEDGER_ISSUED,
    POOL_GENERATING,
    POOL_LIMIT,
    POOL_OFFERED,
    POOL_READY,
    POOL_RESERVED,
    POOL_TARGET,
    PUBLISH_SECONDS,
    REJECTED,
    REJECTION_RATE,
    SCORE_SECONDS,
    STEP_SECONDS,
    TRAIN_SECONDS,
    Metric,
)

PARTS = (
    (POOL_RESERVED, "drawn for the update", palette.SERIES[1]),
    (POOL_READY, "ready", palette.SERIES[4]),
    (POOL_GENERATING, "in flight", palette.SERIES[0]),
)
"""From the bottom of the chart to its top."""
WAITS = (
    STEP_SECONDS,
    GENERATE_SECONDS,
    BACKPRESSURE_SECONDS,
    TRAIN_SECONDS,
    PUBLISH_SECONDS,
    EVALUATION_WAIT_SECONDS,
    SCORE_SECONDS,
)
SECONDS = (
    (GENERATE_SECONDS, "trainer waited for a batch", palette.SERIES[0]),
    (SCORE_SECONDS, "scored finished groups", palette.SERIES[5]),
    (TRAIN_SECONDS, "trained", palette.SERIES[1]),
    (EVALUATION_WAIT_SECONDS, "waited for an evaluation", palette.SERIES[4]),
    (PUBLISH_SECONDS, "published", palette.SERIES[3]),
)
"""What a step is made of, one after the other."""
EPISODE = (EPISODE_SECONDS, ENVIRONMENT_SECONDS)
POOL = (POOL_OFFERED, POOL_TARGET, POOL_LIMIT, REJECTED, REJECTION_RATE)


def show(area: RunArea) -> None:
    """What the pool does and why; occupancy, waits and ledgers; what was given up, and rejected."""
    if not area.has_trainer:
        words = "Evolution strategies have no pool: every member plays all its cases at once."
        st.html(markup.empty("No pool here.", words))
        return
    if not area.curves([*(metric for metric, *_ in PARTS), LEDGER_ISSUED]):
        words = "It fills when the generators start."
        st.html(markup.empty("Nothing in the pool yet.", words))
        return
    area.curves([*POOL, *WAITS, *EPISODE])  # all at once
    *seconds, offered = area.tail((*WAITS, POOL_OFFERED), RECENT_STEPS)
    waits = waits_of(*seconds)
    before = offered.values.get(waits.first_step) if offered and waits else None
    now = _now(area, before)
    for sentence in (what_and_why(now, waits), controller_words(now)):
        if sentence:
            st.html(markup.notice(*sentence))
    if waits:
        st.html(markup.cards(_who_waits(area, now, waits)))
    _occupancy(area, now)
    left, right = st.columns(2, gap="medium")
    with left:
        note = "What the trainer did with each step" + (
            "; the line is how long the bound held generators back" if now.has_bound else ""
        )
        panel(area, "Seconds of a step", "step_parts", lambda: _seconds(area, now), note)
    with right:
        pool_ledger.show(area)
    pool_losses.show(area)
    pool_rejections.show(area)


def _now(area: RunArea, offered_before: float | None) -> PoolNow:
    """The newest figures of the pool."""
    method = method_of(area.detail["config"])
    steps = area.curve(STEP_SECONDS)
    newest = max(steps.values, default=0) if steps else 0
    gradient = method if isinstance(method, PolicyGradient) else None
    limit = area.curve(POOL_LIMIT)
    return PoolNow(
        method=method.title if method else str(area.detail["method"]),
        batch=gradient.prompts_per_step if gradient else 1,
        is_synchronous=is_synchronous(method),
        has_target=has_own_target(method),
        target=_newest(area.curve(POOL_TARGET)),
        # A bound may be lifted while the run goes on: it is not reported from then on.
        limit=limit.values.get(newest) if gradient and limit else None,
        offered=_newest(area.curve(POOL_OFFERED)),
        offered_before=offered_before,
        waits_for_episodes=area.detail["config"]["rollout"].get("weight_update_mode") == "wait",
        rejected=sum(curve.values.get(newest, 0.0) for curve in area.curves([REJECTED])),
        raw_rate=_newest(area.curve(REJECTION_RATE, kind="raw")),
        smoothed_rate=_newest(area.curve(REJECTION_RATE, kind="smoothed")),
    )


def _newest(curve: Curve | None) -> float | None:
    value = curve.last() if curve else math.nan
    return value if math.isfinite(value) else None


def _who_waits(area: RunArea, now: PoolNow, waits: Waits) -> list[str]:
    """Cards: who waited for whom in the last steps, in seconds."""
    shown = [(GENERATE_SECONDS, "Trainer waited for a batch", waits.starved)]
    if now.has_bound:
        title = "Generators held back by the bound"
        shown.append((BACKPRESSURE_SECONDS, title, waits.held_back))
    if waits.scored:
        shown.append((SCORE_SECONDS, "Scored finished groups", waits.scored))
    shown.append((TRAIN_SECONDS, "Trained", waits.trained))
    if waits.evaluation:
        shown.append((EVALUATION_WAIT_SECONDS, "Waited for evaluations", waits.evaluation))
    shown.append((PUBLISH_SECONDS, "Published weights", waits.published))
    cards = [
        markup.card(title, duration(seconds), f"{percent(seconds / waits.total)} of {waits.steps}",
                    metric.description)
        for metric, title, seconds in shown
    ]  # fmt: skip
    episode, environment = (_newest(area.curve(metric)) for metric in EPISODE)
    words = episode_words(episode or math.nan, environment or 0.0)
    if words:
        title = "An episode waited for tools"
        text = ENVIRONMENT_SECONDS.description
        cards.append(markup.card(title, duration(environment or 0.0), words, text))
    return cards


def _occupancy(area: RunArea, now: PoolNow) -> None:
    left, right = st.columns(2, gap="medium")
    with left:
        note = "Prompts by where they are at the end of each update" + (
            "; the line is the most that the staleness bound allows" if now.has_bound else ""
        )
        panel(area, "Occupancy", "pool", lambda: _places(area, now), note)
    with right:
        what = "the target" if now.has_target else "the batch"
        note = f"Groups that were ready when the batch was drawn, and {what}"
        panel(area, f"Ready against {what}", "ready", lambda: _ready(area, now), note)


def _places(area: RunArea, now: PoolNow) -> charts.Drawing:
    members = _lines(area, PARTS)
    if not members:
        return None
    figure = charts.stacked(members, area.ruler.title, POOL_READY.unit)
    limit = area.curve(POOL_LIMIT)
    if limit and now.has_bound:
        line = charts.line_of(limit, area.ruler, "most by the bound", palette.CORAL, dash="dash")
        charts.lines(figure, [line], legend=True)
    return figure


def _ready(area: RunArea, now: PoolNow) -> charts.Drawing:
    offered, target = area.curve(POOL_OFFERED), area.curve(POOL_TARGET)
    if offered is None:
        return None
    ruler = area.ruler
    members = [charts.line_of(offered, ruler, "ready at the draw", palette.SERIES[4])]
    if target:
        name = "target" if now.has_target else "batch"
        members.append(charts.line_of(target, ruler, name, palette.CORAL, dash="dash"))
    figure = charts.chart(ruler.title, POOL_OFFERED.unit, height=280)
    figure.layout["yaxis"]["rangemode"] = "tozero"
    given_up = pool_losses.dropped_by_step(area)
    if given_up:
        members.append(charts.line_of(given_up, ruler, "dropped in the step", palette.SERIES[6]))
    return charts.lines(figure, members)


def _seconds(area: RunArea, now: PoolNow) -> charts.Drawing:
    members = _lines(area, SECONDS)
    if not members:
        return None
    figure = charts.stacked(members, area.ruler.title, STEP_SECONDS.unit, hover=".3g")
    held_back = area.curve(BACKPRESSURE_SECONDS)
    if held_back and now.has_bound:
        name = "generators held back"
        line = charts.line_of(held_back, area.ruler, name, palette.CORAL, dash="dash")
        charts.lines(figure, [line], legend=True)
    return figure


def _lines(area: RunArea, parts: tuple[tuple[Metric, str, str], ...]) -> list[charts.Line]:
    return [
        charts.line_of(curve, area.ruler, name, color)
        for metric, name, color in parts
        if (curve := area.curve(metric))
    ]
