"""What an update takes from the pool, and what is given up: a method's choice, made of versions.

A selection is asked for whenever the pool has changed and the trainer is free. It may find no batch
yet and give up groups all the same: those make room for new ones, so that a run whose pool has
become too old goes on.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lagoon.screening import DropReason, why_dropped
from lagoon.trajectory import Trajectory, TrajectoryGroup

if TYPE_CHECKING:
    from lagoon.points import Point

STALE: DropReason = "stale"
"""Reason of a group with a token that lags more than the method's hard bound allows."""

VERSIONS_MISSING: DropReason = "versions_missing"
"""Reason of a group that cannot be shown to keep a bound, or that cannot be ranked: tokens of it
have no known version."""

LOGPROBS_MISSING: DropReason = "logprobs_missing"
"""Reason of a group without the log-probabilities that the loss divides by."""

REWARD_NOT_FINITE: DropReason = "reward_not_finite"
"""Reason of a prompt without enough trajectories whose reward is a number."""


@dataclass(frozen=True, slots=True)
class PooledGroup:
    """A finished group that waits for its update."""

    group: TrajectoryGroup
    oldest_version: int | None
    """Of any of its sampled tokens; None when no token's version is known."""
    scores: tuple[tuple[float, ...], ...] | None = None
    """Log-probabilities of each trajectory's own tokens under the trainer's present policy, for
    methods that ask for them."""
    lacks: frozenset[DropReason] = frozenset()
    """What is missing in any of its trajectories, by the word for it."""

    @classmethod
    def of(cls, group: TrajectoryGroup) -> PooledGroup:
        """The group, with what every selection asks of it."""
        known = [
            version
            for trajectory in group.trajectories
            for version, _ in trajectory.sampled
            if version is not None
        ]
        lacks = {reason for trajectory in group.trajectories for reason in _lacks(trajectory)}
        return cls(group, min(known, default=None), lacks=frozenset(lacks))

    @property
    def has_versions(self) -> bool:
        """Whether it has tokens, and of each trajectory that has any some version is known."""
        sampled = [each.sampled for each in self.group.trajectories if each.num_actions]
        return bool(sampled) and all(
            any(version is not None for version, _ in tokens) for tokens in sampled
        )

    @property
    def scored(self) -> Iterator[tuple[Trajectory, tuple[float, ...]]]:
        """Its trajectories with their scores. Raises ``ValueError`` when there are none."""
        if self.scores is None:
            raise ValueError("the group was not scored")
        yield from zip(self.group.trajectories, self.scores, strict=True)

    def worst(self, version: int) -> int:
        """Staleness of its oldest token when it is trained on at ``version``.

        0 when no version is known: those tokens are counted as missing by the staleness account.
        """
        return 0 if self.oldest_version is None else version - self.oldest_version

    def why_dropped(
        self, version: int, *, hard_bound: int | None, needs_behavior: bool
    ) -> DropReason | None:
        """Why it may not be trained on at ``version``; None when it may.

        What ``lagoon.screening`` says of any of its trajectories: a group goes as a whole. The part
        that does not depend on the version was looked at once.
        """
        wrong = [REWARD_NOT_FINITE]
        if needs_behavior:
            wrong.append(LOGPROBS_MISSING)
        if hard_bound is not None:
            wrong.append(VERSIONS_MISSING)
        for reason in wrong:
            if reason in self.lacks:
                return reason
        return STALE if hard_bound is not None and self.worst(version) > hard_bound else None


def _lacks(trajectory: Trajectory) -> set[DropReason]:
    """All that is missing, whether a method needs it or not."""
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
    """What is to be reported of it, with the step that the batch makes."""


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
    lack what the loss needs."""
    dropped = unfit(pool, version, hard_bound=hard_bound, needs_behavior=needs_behavior)
    fit = [at for at in range(len(pool)) if at not in dropped]
    drawn = fit[:batch_size] if len(fit) >= batch_size else ()
    return Selection(tuple(drawn), dropped, memory)


def unfit(
    pool: Sequence[PooledGroup], version: int, *, hard_bound: int | None, needs_behavior: bool
) -> dict[int, str]:
    """The reason for each group that may not be trained on at ``version``, by its place."""
    reasons = (
        each.why_dropped(version, hard_bound=hard_bound, needs_behavior=needs_behavior)
        for each in pool
    )
    return {at: reason for at, reason in enumerate(reasons) if reason is not None}
