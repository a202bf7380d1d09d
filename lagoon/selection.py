"""What an update takes from the pool, and what is given up: a method's choice, made of versions.

A selection is asked for whenever the pool has changed and the trainer is free. It may find no batch
yet and give up groups all the same: those make room for new ones, so that a run whose pool has
become too old goes on.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lagoon.points import Point
from lagoon.screening import DropReason, why_dropped
from lagoon.trajectory import Trajectory, TrajectoryGroup

STALE: DropReason = "stale"
"""Reason of a group with a token that lags more than the method's hard bound allows."""

NON_FINITE_REWARD: DropReason = "non_finite_reward"
"""Reason of a prompt without enough trajectories whose reward is a number."""


@dataclass(frozen=True, slots=True)
class PooledGroup:
    """A finished group that waits for its update."""

    group: TrajectoryGroup
    oldest_version: int | None
    """Of any of its sampled tokens; None when no token's version is known."""
    lacks: frozenset[DropReason] = frozenset()
    """What is missing in any of its trajectories, by the word for it."""
    logprobs: tuple[tuple[float, ...], ...] = ()
    """Of each trajectory's sampled tokens, under the present policy; empty where nobody asked, or
    where no token is older than the policy."""

    @classmethod
    def of(cls, group: TrajectoryGroup) -> PooledGroup:
        """The group, with what every selection asks of it."""
        known = [
            version
            for trajectory in group.trajectories
            for version, sampled in zip(trajectory.versions, trajectory.action_mask, strict=True)
            if sampled and version is not None
        ]
        lacks = {reason for each in group.trajectories for reason in _lacks(each)}
        return cls(group, min(known, default=None), frozenset(lacks))

    def worst(self, version: int) -> int:
        """Staleness of its oldest token when it is trained on at ``version``.

        0 when no version is known: those tokens are counted as missing by the staleness account.
        """
        return 0 if self.oldest_version is None else version - self.oldest_version

    def why_dropped(
        self, version: int, *, hard_bound: float | None, needs_behavior: bool
    ) -> DropReason | None:
        """Why it may not be trained on at ``version``; None when it may.

        As ``lagoon.screening`` says of each trajectory: a group goes as a whole. A ``hard_bound``
        of infinity only asks for known versions.
        """
        if "non_finite_reward" in self.lacks:
            return "non_finite_reward"
        if needs_behavior and "logprobs_missing" in self.lacks:
            return "logprobs_missing"
        if hard_bound is None:
            return None
        if "versions_missing" in self.lacks:
            return "versions_missing"
        return STALE if self.worst(version) > hard_bound else None


def _lacks(trajectory: Trajectory) -> set[DropReason]:
    """All that is missing, whatever the method needs."""
    found = {
        why_dropped(
            trajectory, trained_version=0, max_staleness=sys.maxsize, needs_behavior=needs_behavior
        )
        for needs_behavior in (True, False)
    }
    return {reason for reason in found if reason is not None}


@dataclass(frozen=True, slots=True)
class Selection:
    """What becomes of the groups of a pool. Those that it does not name stay where they are."""

    drawn: tuple[int, ...] = ()
    """Places in the pool of the groups to train on, in this order; none: there is no batch yet."""
    dropped: Mapping[int, str] = field(default_factory=dict)
    """The reason for each group that is given up, by its place in the pool."""
    memory: Mapping[str, float] = field(default_factory=dict)
    """What the method wants to be told at the next selection: the state of a controller."""
    points: tuple[Point, ...] = ()
    """What the method says of its choice, to be reported with the update."""


def oldest_first(
    pool: Sequence[PooledGroup],
    version: int,
    memory: Mapping[str, float],
    *,
    batch_size: int,
    hard_bound: int | None = None,
    needs_behavior: bool = True,
) -> Selection:
    """The first ``batch_size`` groups of the pool, without those that lag by more than a bound or
    lack what the method needs."""
    dropped = {
        at: reason
        for at, pooled in enumerate(pool)
        if (
            reason := pooled.why_dropped(
                version, hard_bound=hard_bound, needs_behavior=needs_behavior
            )
        )
    }
    fresh = [at for at in range(len(pool)) if at not in dropped]
    drawn = fresh[:batch_size] if len(fresh) >= batch_size else ()
    return Selection(tuple(drawn), dropped, memory)
