"""What an update takes from the pool, and what is given up: a method's choice, made of versions.

A selection is asked for whenever the pool has changed and the trainer is free. It may find no batch
yet and give up groups all the same: those make room for new ones, so that a run whose pool has
become too old goes on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lagoon.screening import DropReason
from lagoon.trajectory import Trajectory, TrajectoryGroup

if TYPE_CHECKING:
    from lagoon.points import Point


@dataclass(frozen=True, slots=True)
class PooledGroup:
    """A finished group that waits for its update."""

    group: TrajectoryGroup
    oldest_version: int | None
    """Of any of its sampled tokens; None when no token's version is known."""
    misses_versions: bool = False
    """Whether the version of some sampled token is unknown."""
    scores: tuple[tuple[float, ...], ...] | None = None
    """Log-probabilities of each trajectory's own tokens under the trainer's policy, for methods
    that ask for them; behavior log-probabilities where that policy sampled all of them."""
    scored_at: int | None = None
    """The version of that policy; None for the present one."""

    @classmethod
    def of(cls, group: TrajectoryGroup) -> PooledGroup:
        """The group, with what every selection asks of it."""
        versions = [born for each in group.trajectories for born, _ in each.sampled]
        known = [version for version in versions if version is not None]
        return cls(group, min(known, default=None), len(known) < len(versions))

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

    def why_dropped(self, version: int, hard_bound: int | None) -> DropReason | None:
        """Why it may not be trained on at ``version``; None when it may.

        A token whose version is unknown cannot be shown to keep a bound.
        """
        if hard_bound is None:
            return None
        if self.misses_versions:
            return "versions_missing"
        age = 0 if self.oldest_version is None else version - self.oldest_version
        return "stale" if age > hard_bound else None


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
) -> Selection:
    """The first ``batch_size`` groups of the pool, without those that lag by more than a bound."""
    reasons = {at: each.why_dropped(version, hard_bound) for at, each in enumerate(pool)}
    dropped = {at: reason for at, reason in reasons.items() if reason is not None}
    fresh = [at for at in range(len(pool)) if at not in dropped]
    drawn = fresh[:batch_size] if len(fresh) >= batch_size else ()
    return Selection(tuple(drawn), dropped, memory)
