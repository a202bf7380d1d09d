"""What the pool of a run is doing, and why, in words. Pure: from figures to sentences."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import takewhile

from dashboard.watch import Curve
from dashboard.words import duration, number, percent, plural

RECENT_STEPS = 10
"""Over which it is said who waits for whom."""
NO_WAIT = 0.05
"""A smaller share of the time is not worth a word."""

Sentence = tuple[str, str]
"""What is the case, and the figures that show it."""


@dataclass(frozen=True, slots=True)
class Waits:
    """Seconds of the last steps, by who waited."""

    num_steps: int
    total: float
    """Wall-clock of the steps."""
    starved: float
    """The trainer waited for a batch."""
    held_back: float
    """Generators had places free, and the staleness bound let nothing start."""
    trained: float = 0.0
    published: float = 0.0
    evaluation: float = 0.0
    """New weights waited for the evaluation of the version before."""
    scored: float = 0.0
    """The trainer scored finished groups, before it drew its batch."""
    first_step: int = field(default=0, kw_only=True)
    """Of the last steps; the others follow it without a gap."""

    @property
    def steps(self) -> str:
        """``the last 10 steps``."""
        return "the last step" if self.num_steps == 1 else f"the last {self.num_steps} steps"

    @property
    def in_words(self) -> str:
        """``the last 10 steps (31 s)``."""
        return f"{self.steps} ({duration(self.total)})"


@dataclass(frozen=True, slots=True)
class PoolNow:
    """The pool at the newest step. None: not reported, or the method has no such thing."""

    method: str
    """Its title."""
    batch: int
    """Groups of one update."""
    is_synchronous: bool = False
    has_target: bool = False
    """The method steers the pool to a target of its own."""
    target: float | None = None
    limit: float | None = None
    """Prompts that the staleness bound lets be in flight, ready and drawn together."""
    offered: float | None = None
    """Groups that were ready when the batch was drawn."""
    offered_before: float | None = None
    """The same, at the first of the last steps."""
    waits_for_episodes: bool = False
    """New weights are published when the episodes in flight are over."""
    rejected: float = 0.0
    """Groups that the method gave up for this batch."""
    raw_rate: float | None = None
    smoothed_rate: float | None = None

    @property
    def has_bound(self) -> bool:
        """Admission is bounded, and not only by taking turns."""
        return self.limit is not None and not self.is_synchronous

    @property
    def bound(self) -> int | None:
        """The staleness bound: one batch is the synchronous limit, each more a version of lag."""
        return None if self.limit is None else round(self.limit / self.batch) - 1


def waits_of(
    steps: Curve | None,
    starved: Curve | None,
    held_back: Curve | None,
    *others: Curve | None,
) -> Waits | None:
    """Who waited in the last steps, one after the other without a gap; None when it is not known.

    ``others`` are the seconds that were trained, published, waited for an evaluation, and scored.
    """
    if steps is None or starved is None or held_back is None:
        return None
    known = steps.values.keys() & starved.values.keys() & held_back.values.keys()
    last = max(known, default=0)
    recent = list(takewhile(known.__contains__, range(last, last - RECENT_STEPS, -1)))
    sums = [
        math.fsum(curve.values.get(step, 0.0) for step in recent) if curve else 0.0
        for curve in (steps, starved, held_back, *others)
    ]
    if not recent or sums[0] <= 0:
        return None
    return Waits(len(recent), *sums, first_step=recent[-1])


def what_and_why(now: PoolNow, waits: Waits | None) -> Sentence | None:
    """What the pool is doing and why; None while nobody has waited for anybody yet."""
    if waits is None:
        return None
    if now.is_synchronous:
        return _taking_turns(now, waits)
    surplus = _surplus(now, waits)
    if surplus is not None:
        return surplus
    others = max(waits.starved, waits.trained, NO_WAIT * waits.total)
    if waits.evaluation > max(others, waits.published):
        return _evaluating(now, waits)
    if waits.published > others:
        return _publishing(now, waits)
    if max(waits.starved, waits.held_back) < NO_WAIT * waits.total:
        return "Generation and training keep up with each other.", _waited(now, waits)
    if waits.starved >= waits.held_back:
        share = percent(waits.starved / waits.total)
        ready = (
            f"{number(now.offered)} were ready when the last one was drawn. " if now.offered else ""
        )
        return (
            f"Generation is the bottleneck: the trainer waited {share} of {waits.steps} for a "
            "batch.",
            f"A batch is {plural(now.batch, 'group')}. {ready}{_waited(now, waits)}",
        )
    return (
        f"Training is the bottleneck: {_the_bound(now)} holds back new rollouts.",
        f"What started now would be too old when its turn to be trained on came. "
        f"{_waited(now, waits)}",
    )


def controller_words(now: PoolNow) -> Sentence | None:
    """What a method that steers the pool did for the last batch, and why; None for others."""
    if not now.has_target or now.target is None or now.offered is None:
        return None
    over = now.offered - now.target
    rates = _rates(now)
    ready = f"{number(now.offered)} ready"
    if now.rejected:
        return (
            f"{now.method} gave up {number(now.rejected)} of {number(now.offered)} groups for the "
            "last batch.",
            f"{ready}, target {number(now.target)}{rates}",
        )
    if over > 0:
        return (
            f"{now.method} gave up nothing yet: the pool is {number(over)} above its target.",
            f"{ready}, target {number(now.target)}{rates} Of this pool that is less than a group; "
            "what is left of it is carried to the next batch.",
        )
    return (
        f"{now.method} had nothing to give up: the pool is at or below its target.",
        f"{ready}, target {number(now.target)}{rates}",
    )


def _rates(now: PoolNow) -> str:
    if now.raw_rate is None or now.smoothed_rate is None:
        return "."
    return (
        f"; this pool alone asks to give up {percent(now.raw_rate)}, smoothed over the updates "
        f"{percent(now.smoothed_rate)}."
    )


def _taking_turns(now: PoolNow, waits: Waits) -> Sentence:
    return (
        "Generation and training take turns: no prompt waits at the end of any step.",
        f"{now.method} plays one batch and trains on all of it before it goes on. "
        f"{_waited(now, waits)} Asynchronous methods let the two overlap.",
    )


def _surplus(now: PoolNow, waits: Waits) -> Sentence | None:
    """More was finished than an update takes, and nothing is held back."""
    if now.offered is None or now.offered < 2 * now.batch or now.limit is not None:
        return None
    before = (
        f"; {plural(waits.num_steps - 1, 'step')} before there were {number(now.offered_before)}"
        if now.offered_before is not None and waits.num_steps > 1
        else ""
    )
    fate = (
        f"{now.method} gives up what is above its target."
        if now.has_target
        else "Nothing limits the pool: the fuller it gets, the older is what is trained on."
    )
    return (
        "Training is the bottleneck: more groups are finished than it takes.",
        f"{number(now.offered)} were ready when the last batch of {number(now.batch)} was drawn"
        f"{before}. {fate} {_waited(now, waits)}",
    )


def _evaluating(now: PoolNow, waits: Waits) -> Sentence:
    share = percent(waits.evaluation / waits.total)
    return (
        f"Evaluations hold up training: {share} of {waits.steps}.",
        "New weights waited for the evaluation of the version before, which goes on beside "
        f"training and needs the old ones. {_waited(now, waits)}",
    )


def _publishing(now: PoolNow, waits: Waits) -> Sentence:
    share = percent(waits.published / waits.total)
    why = (
        "New weights are published when the episodes in flight are over, so that generation sets "
        "the pace."
        if now.waits_for_episodes
        else "A publish is over when every generator has proved what it was given."
    )
    return (
        f"Publishing takes longest: {share} of {waits.steps}.",
        f"{why} {_waited(now, waits)}",
    )


def _waited(now: PoolNow, waits: Waits) -> str:
    """Who waited, in seconds; the bound only where there is one to wait for."""
    scored = f" and scored finished groups for {duration(waits.scored)}" if waits.scored else ""
    trainer = f"the trainer waited {duration(waits.starved)} for its batches{scored}"
    generators = (
        f", and the generators waited {duration(waits.held_back)} for the bound"
        if now.has_bound
        else ""
    )
    return f"In {waits.in_words} {trainer}{generators}."


def _the_bound(now: PoolNow) -> str:
    return "the staleness bound" if now.bound is None else f"the bound of {now.bound}"


def episode_words(episode: float, environment: float) -> str:
    """What an episode spends its time with; empty when that is not known."""
    if not (math.isfinite(episode) and episode > 0):
        return ""
    return f"{percent(environment / episode)} of the {duration(episode)} that one takes"
