"""PACE: which of the groups that wait are given up when too many wait (arXiv:2609.36830).

::

    pool ─┬─▶ excess over target ─▶ smoothed rate ─▶ budget: k groups ─┐
          │                                                            ▼
          └─▶ versions, drift ─▶ effective staleness of each ─▶ reject the k largest, train on the
                                                                oldest of the rest

For trajectory i of the pool, at version v, completed at c, its tokens t sampled at b::

    gen  = mean_t (c - b_t)      wait = v - c
    f    = mean |log pi_s - log mu| over tokens with b_t < s         (drift of what it stands on)
    p    = percentile of f in the pool, in [0, 1]; ties share the lowest; 0 without drift
    E    = wait + p ** gamma * gen

where s is v, or the version that first looked at it, as is chosen.

A rollout that crossed versions which hardly changed what it says is not punished for its length;
waiting counts in full. ``gamma`` = 0 ranks by age alone.

From the paper (its abstract and a digest; the full text was not to be had): the two parts of
staleness, an adaptive budget from the pool's relative excess over a target, smoothed, the
percentile of the prefix drift, gamma = 4, an unchanged loss. Ours, where that leaves a choice: the
smoothing of 0.9 that starts at 0, the excess relative to the pool, the absolute mean as drift over
all older tokens, drift within the noise of the numbers as none, the mean over a group as its score,
ties rejected oldest first, a budget that never takes what the next batch needs (what it could not
spend is forgotten), and training on the oldest of what is left.

A pure state machine: ``decide(settings, state, pool) -> (state, choice)``.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from lagoon.trajectory import Trajectory

RejectionReason = Literal["rejected_waiting", "rejected_drift"]
"""Which part of its effective staleness was the larger one."""
Excess = Literal["of_pool", "of_target"]
NOISE_MARGIN = 3.0
"""A trajectory of few tokens may differ by so many times the mean without any drift."""


@dataclass(frozen=True, slots=True)
class PaceSettings:
    """What the controller is set to. Raises ``ValueError`` for what cannot work."""

    batch_size: int
    """Groups that an update trains on."""
    target: int
    """Groups that should be ready when an update begins; at least a batch."""
    gamma: float
    """How sharply the drift's percentile is weighed."""
    smoothing: float
    """Share of the rejection rate that is carried from one update to the next."""
    excess: Excess
    """What the excess is a share of: of the pool, so that one application in full returns to the
    target, or of the target, at most 1."""

    def __post_init__(self) -> None:
        if self.target < self.batch_size:
            raise ValueError(f"a target of {self.target} is below the batch of {self.batch_size}")
        if self.gamma < 0 or math.isnan(self.gamma):
            raise ValueError(f"gamma is {self.gamma}, below 0")
        if not 0 <= self.smoothing < 1:
            raise ValueError(f"a smoothing of {self.smoothing} is not in [0, 1)")


@dataclass(frozen=True, slots=True)
class PaceState:
    """What is carried from one update to the next."""

    rate: float = 0.0
    """The smoothed share of the pool that is rejected."""
    carry: float = 0.0
    """The fraction of a group that the budget has not spent."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A trajectory of the pool, as far as the choice goes."""

    generation: float
    """Mean of completion version minus behavior version over its tokens."""
    waiting: int
    """Version now minus completion version."""
    drift: float
    """How far the policy moved on its older tokens; 0 for no more than noise."""
    num_tokens: int
    success: bool

    @property
    def staleness(self) -> float:
        """Mean staleness of its tokens if it were trained on now."""
        return self.generation + self.waiting


@dataclass(frozen=True, slots=True)
class Choice:
    """What becomes of the pool's groups, by their positions in it."""

    train: tuple[int, ...]
    """To train on, oldest first; empty while there is no full batch."""
    reject: tuple[int, ...]
    """To drop, the largest effective staleness first."""
    reasons: tuple[RejectionReason, ...]
    """Why, for each of ``reject``."""
    scores: tuple[float, ...]
    """Effective staleness of every group."""
    excess: float
    """The rate that this pool alone asks for."""
    rate: float
    """The smoothed rate that was applied."""


def candidate(
    trajectory: Trajectory,
    logprobs: Sequence[float],
    version: int,
    *,
    scored_at: int | None = None,
    noise: float = 0.0,
) -> Candidate:
    """A finished trajectory, seen from ``version``.

    ``logprobs`` are those of its sampled tokens under the policy of ``scored_at``, the present one
    unless it is given. ``noise`` is the mean absolute difference of generator and trainer at one
    version (``lagoon/drift.py``): no more than a few times that is no drift, so that a policy that
    does not move has none. Tokens whose version is unknown are left out. Raises ``ValueError`` when
    all are.
    """
    rows = zip(
        trajectory.action_mask, trajectory.versions, trajectory.behavior_logprobs, strict=True
    )
    sampled = [(born, behavior) for is_action, born, behavior in rows if is_action]
    known = [born for born, _ in sampled if born is not None]
    if not known:
        raise ValueError(f"no token of {trajectory.trajectory_id} has a known policy version")
    scored = version if scored_at is None else scored_at
    moves = [
        abs(logprob - behavior)
        for (born, behavior), logprob in zip(sampled, logprobs, strict=True)
        if born is not None and born < scored
    ]
    return Candidate(
        generation=trajectory.completed_version - sum(known) / len(known),
        waiting=version - trajectory.completed_version,
        drift=_drift(moves, noise),
        num_tokens=len(sampled),
        success=trajectory.success,
    )


def _drift(moves: Sequence[float], noise: float) -> float:
    """The mean of what is known of ``moves``; infinite, the worst, when nothing is known of any."""
    known = [move for move in moves if not math.isnan(move)]
    if not known:
        return math.inf if moves else 0.0
    mean = sum(known) / len(known)
    return mean if mean > NOISE_MARGIN * noise else 0.0


def percentiles(drifts: Sequence[float]) -> list[float]:
    """The share of the other trajectories that drifted less; 0 without drift, 1 for the worst."""
    in_order = sorted(drifts)
    others = max(1, len(drifts) - 1)
    return [bisect_left(in_order, drift) / others if drift > 0 else 0.0 for drift in drifts]


def decide(
    settings: PaceSettings, state: PaceState, pool: Sequence[Sequence[Candidate]]
) -> tuple[PaceState, Choice]:
    """Choose from ``pool``, its groups in the order in which they were completed.

    Without a full batch nothing is chosen and the state stays.
    """
    occupancy = len(pool)
    waits, generations = _scores(pool, settings.gamma)
    scores = tuple(wait + part for wait, part in zip(waits, generations, strict=True))
    excess = _excess(settings, occupancy)
    if occupancy < settings.batch_size:
        return state, Choice((), (), (), scores, excess, state.rate)
    rate = settings.smoothing * state.rate + (1 - settings.smoothing) * excess
    due = rate * occupancy + state.carry
    budget = min(math.floor(due), occupancy - settings.batch_size)
    # sorted() is stable: of equal scores the oldest is the first to go.
    ranked = sorted(range(occupancy), key=lambda position: -scores[position])
    reject = tuple(ranked[:budget])
    rest = sorted(set(range(occupancy)) - set(reject))
    choice = Choice(
        train=tuple(rest[: settings.batch_size]),
        reject=reject,
        reasons=tuple(
            "rejected_waiting" if waits[p] >= generations[p] else "rejected_drift" for p in reject
        ),
        scores=scores,
        excess=excess,
        rate=rate,
    )
    return PaceState(rate, due - math.floor(due)), choice


def _excess(settings: PaceSettings, occupancy: int) -> float:
    over = max(0, occupancy - settings.target)
    if settings.excess == "of_target":
        return min(1.0, over / settings.target)
    return over / occupancy if occupancy else 0.0


def _scores(pool: Sequence[Sequence[Candidate]], gamma: float) -> tuple[list[float], list[float]]:
    """Of each group: its waiting, and its generation as far as drift makes it count."""
    ranks = iter(percentiles([one.drift for group in pool for one in group]))
    waits, generations = [], []
    for group in pool:
        waits.append(sum(one.waiting for one in group) / len(group))
        weighed = [next(ranks) ** gamma * one.generation for one in group]
        generations.append(sum(weighed) / len(group))
    return waits, generations
