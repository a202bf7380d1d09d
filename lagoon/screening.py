"""Whether a trajectory may be trained on at all, and the ledger's reasons for dropping one.

What is missing is a reason, never a zero. How old a group may be is asked when a batch is drawn
(``lagoon/selection.py``).
"""

import math
from typing import Literal

from lagoon.trajectory import Trajectory

GROUP_LOST: Literal["group_lost"] = "group_lost"
"""Why a finished trajectory is dropped whose prompt is played again: others of its group were lost
with their generator, or the attempt ended before they did."""
DropReason = Literal[
    "reward_not_finite",
    "no_tokens",
    "logprobs_missing",
    "versions_missing",
    "stale",
    "rejected_waiting",
    "rejected_drift",
    "group_lost",
]
"""Every reason that the ledger knows; the two rejections are ``lagoon/pace.py``'s."""

UNTRAINABLE: dict[str, str] = {
    "reward_not_finite": "its rewards are not numbers",
    "no_tokens": "its prompt leaves no room for a token in model.max_length_tokens",
    "logprobs_missing": "the engine did not say the log-probabilities of its tokens",
    "versions_missing": "the engine did not say which policy versions sampled its tokens",
}
"""What is wrong with a prompt of which nothing may be trained on, by what ``why_dropped`` says."""


def why_dropped(
    trajectory: Trajectory, *, needs_behavior: bool = True, needs_versions: bool = False
) -> DropReason | None:
    """Why ``trajectory`` may not be trained on at any version; None when it may.

    ``needs_behavior``: whether the loss reads the behavior log-probabilities; ``needs_versions``:
    whether it reads which policy version sampled each token.
    """
    if not math.isfinite(trajectory.reward):
        return "reward_not_finite"
    if not trajectory.num_actions:
        return "no_tokens"
    sampled = [position for position, is_action in enumerate(trajectory.action_mask) if is_action]
    logprobs = [trajectory.behavior_logprobs[position] for position in sampled]
    if needs_behavior and not all(map(math.isfinite, logprobs)):
        return "logprobs_missing"
    if needs_versions and any(version is None for version, _ in trajectory.sampled):
        return "versions_missing"
    return None
