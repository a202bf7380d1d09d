"""Whether a trajectory may be trained on: the hard check when a batch is drawn.

Admission bounds staleness only as long as groups are consumed in the order in which they started;
this check holds whatever the order. What is missing is a reason, never a zero.
"""

import math
from typing import Literal

from lagoon.trajectory import Trajectory

DropReason = Literal["reward_not_finite", "logprobs_missing", "versions_missing", "stale"]


def why_dropped(
    trajectory: Trajectory,
    *,
    trained_version: int,
    max_staleness: int | None = None,
    needs_behavior: bool = True,
) -> DropReason | None:
    """Why ``trajectory`` may not be trained on at ``trained_version``; None when it may.

    ``max_staleness`` bounds the age of its oldest sampled token, None for no bound; a token whose
    version is unknown cannot be shown to keep one. ``needs_behavior``: whether the loss reads the
    behavior log-probabilities.
    """
    if not math.isfinite(trajectory.reward):
        return "reward_not_finite"
    sampled = [position for position, is_action in enumerate(trajectory.action_mask) if is_action]
    logprobs = [trajectory.behavior_logprobs[position] for position in sampled]
    if needs_behavior and not all(map(math.isfinite, logprobs)):
        return "logprobs_missing"
    if max_staleness is None or not sampled:
        return None
    versions = [trajectory.versions[position] for position in sampled]
    known = [version for version in versions if version is not None]
    if len(known) < len(versions):
        return "versions_missing"
    return "stale" if trained_version - min(known) > max_staleness else None
