"""What a choice from the pool rejected, by reason, length and outcome, and what it would have
cost to reject nothing.

The cost is ours, in the units of the staleness account: the staleness of the batch that would have
been trained on instead (the oldest groups of the whole pool), and the updates by which everything
behind the rejected groups would have waited longer.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from lagoon.metrics import (
    DELAY_IF_KEPT,
    EFFECTIVE_STALENESS,
    POOL_RESPONSE_TOKENS,
    POOL_SUCCESS,
    REJECTED,
    REJECTION_RATE,
    STALENESS_IF_KEPT,
)
from lagoon.pace import Candidate, Choice, RejectionReason
from lagoon.points import Point, point


@dataclass(frozen=True, slots=True)
class PoolShare:
    """Some of the pool's groups, in figures; NaN where there is nothing to take a mean of."""

    groups: int
    trajectories: int
    tokens: int
    successes: int
    staleness: float
    """Mean staleness of the tokens if they were trained on now."""
    score: float
    """Mean effective staleness of the groups."""

    @property
    def tokens_each(self) -> float:
        """Mean length."""
        return self.tokens / self.trajectories if self.trajectories else math.nan

    @property
    def success(self) -> float:
        """Share of the trajectories that succeeded."""
        return self.successes / self.trajectories if self.trajectories else math.nan


@dataclass(frozen=True, slots=True)
class Rejection:
    """What a choice did, and what it would have cost to reject nothing."""

    kept: PoolShare
    """All groups that were not rejected."""
    rejected: PoolShare
    trained: PoolShare
    without: PoolShare
    """What would have been trained on: the oldest groups of the whole pool."""
    delay_steps: float
    """Updates by which everything behind the rejected groups would have waited longer."""


def rejection(pool: Sequence[Sequence[Candidate]], choice: Choice, batch_size: int) -> Rejection:
    """The figures of a choice from ``pool``."""
    rejected = set(choice.reject)
    kept = [position for position in range(len(pool)) if position not in rejected]
    return Rejection(
        kept=_share_of(pool, kept, choice),
        rejected=_share_of(pool, choice.reject, choice),
        trained=_share_of(pool, choice.train, choice),
        without=_share_of(pool, range(len(choice.train)), choice),
        delay_steps=len(rejected) / batch_size,
    )


def _share_of(
    pool: Sequence[Sequence[Candidate]], positions: Sequence[int], choice: Choice
) -> PoolShare:
    members = [one for position in positions for one in pool[position]]
    tokens = sum(one.num_tokens for one in members)
    stale = sum(one.staleness * one.num_tokens for one in members)
    scores = [choice.scores[position] for position in positions]
    return PoolShare(
        groups=len(positions),
        trajectories=len(members),
        tokens=tokens,
        successes=sum(one.success for one in members),
        staleness=stale / tokens if tokens else math.nan,
        score=sum(scores) / len(scores) if scores else math.nan,
    )


def rejection_points(choice: Choice, found: Rejection) -> list[Point]:
    """The figures as metrics; those of shares without a group are left out."""
    counts = Counter(choice.reasons)
    points = [
        point(REJECTION_RATE, choice.excess, kind="raw"),
        point(REJECTION_RATE, choice.rate, kind="smoothed"),
        *(point(REJECTED, counts[reason], reason=reason) for reason in get_args(RejectionReason)),
        point(STALENESS_IF_KEPT, found.without.staleness),
        point(DELAY_IF_KEPT, found.delay_steps),
    ]
    for fate, share in (("kept", found.kept), ("rejected", found.rejected)):
        if share.groups:
            points += [
                point(EFFECTIVE_STALENESS, share.score, fate=fate),
                point(POOL_RESPONSE_TOKENS, share.tokens_each, fate=fate),
                point(POOL_SUCCESS, share.success, fate=fate),
            ]
    return points
