"""A critic and the advantages that it gives single trajectories (SAO, arXiv:2607.07508).

::

    tokens            prompt   a a a   observation   a a   observation   a a a  (end: reward)
    values            –        V V V   –             V V   –             V V V
    trace             ·        ◀─◀─◀───────────────◀─◀───────────────◀─◀─◀
                               tokens that were not sampled are skipped, whatever stands in them

The last token of one action bootstraps from the first token of the next, as if the tokens between
them were not there. Everything is per trajectory, in float64.

The critic starts from the policy's weights, has an optimizer of its own, and is trained alone
during its warm-up. Its attention stays as it was (``is_trained``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from torch import Tensor

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a trajectory's rewards and values say, per token; 0 where the policy did not sample."""

    advantages: Floats
    returns: Floats
    """Advantage plus value: what the critic is to predict, when made with a trace of 1."""


def adaptive_trace(num_actions: int, scale: float) -> float:
    """The trace decay of a trajectory of that many sampled tokens: ``1 - 1 / (scale * length)``.

    The reward at the end reaches the first token of long trajectories as it does of short ones.
    Never below 0, and 0 for a trajectory without tokens.
    """
    return max(0.0, 1.0 - 1.0 / (scale * num_actions)) if num_actions else 0.0


def generalized_advantages(
    rewards: ArrayLike,
    values: ArrayLike,
    action_mask: Sequence[int],
    *,
    discount: float = 1.0,
    trace: float = 1.0,
    bootstrap: float = 0.0,
) -> Estimate:
    """Generalized advantage estimation over sampled tokens only (arXiv:1506.02438).

    All sequences have one entry per token of the trajectory; what ``rewards`` and ``values`` hold
    where ``action_mask`` is 0 is not read. ``bootstrap`` is the value after the last sampled token:
    0 at the end of an episode; the critic's where a limit cut it, in implementations that expect
    more to come then. `sao` does not (ours).
    """
    sampled = np.flatnonzero(action_mask)
    reward, value = (np.asarray(part, dtype=np.float64)[sampled] for part in (rewards, values))
    following = np.append(value[1:], bootstrap)
    surprises = reward + discount * following - value
    advantage, decay = 0.0, discount * trace
    advantages, returns = np.zeros(len(action_mask)), np.zeros(len(action_mask))
    for position in range(len(sampled) - 1, -1, -1):
        advantage = float(surprises[position]) + decay * advantage
        advantages[sampled[position]] = advantage
    returns[sampled] = advantages[sampled] + value
    return Estimate(advantages, returns)


def terminal_rewards(reward: float, action_mask: Sequence[int]) -> Floats:
    """The rewards of a trajectory that is rewarded once: at its last sampled token."""
    rewards = np.zeros(len(action_mask))
    sampled = np.flatnonzero(action_mask)
    if sampled.size:
        rewards[sampled[-1]] = reward
    return rewards


def whitened(advantages: Sequence[Floats], action_masks: Sequence[ArrayLike]) -> list[Floats]:
    """Advantages of a batch, less their mean and over their population deviation, both over all
    sampled tokens; 0 elsewhere, and everywhere when they do not differ."""
    masks = [np.asarray(mask, dtype=bool) for mask in action_masks]
    known = np.concatenate([part[mask] for part, mask in zip(advantages, masks, strict=True)])
    deviation = known.std() if known.size and known.max() > known.min() else 0.0
    if deviation == 0.0:
        return [np.zeros(len(part)) for part in advantages]
    mean = known.mean()
    return [
        np.where(mask, (part - mean) / deviation, 0.0)
        for part, mask in zip(advantages, masks, strict=True)
    ]


def value_loss(values: Tensor, returns: Tensor, weights: Tensor) -> Tensor:
    """``sum w (V - return)^2``, all [B, T]: a plain squared error, with no clipping.

    ``weights`` is 0 outside the policy's own tokens and holds the batch divisor elsewhere, so that
    it splits into micro-batches.
    """
    error = values - returns
    return (error * error * weights).sum()


def explained_variance(values: ArrayLike, returns: ArrayLike) -> float:
    """``1 - Var(return - V) / Var(return)``: 1 for a perfect critic, 0 for one that only knows the
    mean; NaN when the returns do not differ."""
    target = np.asarray(returns, dtype=np.float64)
    if not target.size or target.max() == target.min():
        return math.nan
    return float(1.0 - (target - np.asarray(values, dtype=np.float64)).var() / target.var())


@dataclass(frozen=True, slots=True)
class Updates:
    """How many optimizer steps a batch is for."""

    critic: int
    policy: int


def updates_at(step: int, *, warmup_steps: int, critic_updates: int) -> Updates:
    """The updates of a step counted from 0: the critic alone during its warm-up."""
    return Updates(critic_updates, policy=0 if step < warmup_steps else 1)


def is_trained(parameter: str) -> bool:
    """Whether the critic trains a parameter of that name: all but those of attention.

    Attention is a module called so, with all that is inside, as in Hugging Face models
    (``self_attn``, ``attention``). A norm that is only named after it
    (``post_attention_layernorm``) is none. That norms and embeddings are trained is ours: the notes
    on the paper name the layers between and the head.
    """
    modules = parameter.lower().split(".")[:-1]
    return not any(
        {"attn", "attention"} & set(module.split("_")) and "norm" not in module
        for module in modules
    )
