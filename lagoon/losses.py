"""Policy-gradient losses with tensor methods only, so that torch is just a type here.

Shapes: B rows x T tokens. A row holds one trajectory, or several of a group one behind the other:
a sum over T is not one over a trajectory. ``weights_BT`` is 0 outside the policy's own tokens and
holds the batch divisor elsewhere: every loss is a plain sum and splits into micro-batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from lagoon.metrics import CLIPPED, KL_REFERENCE, Metric

if TYPE_CHECKING:
    from torch import Tensor

Aggregation = Literal["token_mean", "sequence_mean", "sequence_sum"]


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """What a loss sees. All tensors are [B, T]; only ``logprobs`` carries a gradient."""

    logprobs: Tensor
    behavior_logprobs: Tensor
    advantages: Tensor
    weights: Tensor
    reference_logprobs: Tensor | None = None
    proximal_logprobs: Tensor | None = None
    """Log-probabilities under the proximal policy of corrections that have one."""
    trajectories: Tensor | None = None
    """Which trajectory of the step's batch each token is of, counted from 0, so that a micro-batch
    lacks some numbers; for corrections that judge whole trajectories. Any number where ``weights``
    is 0."""


@dataclass(frozen=True, slots=True)
class ImportanceWeights:
    """What multiplies ``A grad log pi`` of each token, [B, T], without a gradient of its own."""

    values: Tensor
    below: Tensor
    """True where the ratio was cut because it was too low."""
    above: Tensor
    """True where the ratio was cut because it was too high."""

    @property
    def is_cut(self) -> Tensor:
        """True where the weight is not the importance ratio itself."""
        return self.below | self.above

    @property
    def is_masked(self) -> Tensor:
        """True where the cut left nothing: the token is trained on with weight 0."""
        return self.is_cut & (self.values == 0)


@dataclass(frozen=True, slots=True)
class Loss:
    """A scalar to minimise, and sums for the metrics: (sum over tokens, number of tokens)."""

    value: Tensor
    metrics: dict[Metric, tuple[float, float]]
    importance: ImportanceWeights | None = None
    """What became of each token's ratio; None where the loss has none."""


def token_weights(
    lengths: Sequence[int], aggregation: Aggregation, length_constant: int | None = None
) -> list[float]:
    """The weight of each token of each trajectory, given the trajectories' action counts.

    ``token_mean``: 1 / all tokens. ``sequence_mean``: 1 / (trajectories x own length).
    ``sequence_sum``: 1 / (trajectories x ``length_constant``). A trajectory without tokens
    counts as a trajectory.
    """
    if aggregation == "token_mean":
        return [1.0 / max(1, sum(lengths))] * len(lengths)
    if aggregation == "sequence_mean":
        return [1.0 / (len(lengths) * max(1, length)) for length in lengths]
    if length_constant is None:
        raise ValueError("sequence_sum needs a length_constant")
    return [1.0 / (len(lengths) * length_constant)] * len(lengths)


def clipped_surrogate(batch: TokenBatch, *, clip_low: float, clip_high: float) -> Loss:
    """``-sum w * min(rho * A, clip(rho, 1 - clip_low, 1 + clip_high) * A)`` (arXiv:1707.06347).

    ``rho`` is the current policy over the behavior policy.
    """
    ratio = (batch.logprobs - batch.behavior_logprobs).exp()
    clipped = ratio.clamp(1.0 - clip_low, 1.0 + clip_high)
    unclipped_gain, clipped_gain = ratio * batch.advantages, clipped * batch.advantages
    value = -(unclipped_gain.minimum(clipped_gain) * batch.weights).sum()
    active = batch.weights != 0
    was_clipped = (clipped_gain < unclipped_gain).detach()
    shown = {CLIPPED: (float((was_clipped & active).sum()), float(active.sum()))}
    weight, too_low = (ratio * ~was_clipped).detach(), (ratio < 1.0).detach()
    cut = ImportanceWeights(weight, was_clipped & too_low, was_clipped & ~too_low)
    return Loss(value, shown, cut)


def reference_divergence(batch: TokenBatch) -> Loss:
    """``sum w * (exp(d) - d - 1)``, d = log reference - log policy: the k3 estimate of the KL."""
    if batch.reference_logprobs is None:
        raise ValueError("the batch has no reference log-probabilities")
    difference = batch.reference_logprobs - batch.logprobs
    divergence = difference.exp() - difference - 1.0
    active = batch.weights != 0
    shown = divergence.detach() * active
    return Loss(
        (divergence * batch.weights).sum(),
        {KL_REFERENCE: (float(shown.sum()), float(active.sum()))},
    )
