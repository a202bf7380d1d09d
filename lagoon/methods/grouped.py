"""What methods of the GRPO kind share: groups of one prompt, and rewards standardized in them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import Field

from lagoon.advantages import Deviation, group_standardized
from lagoon.clashes import Clash
from lagoon.corrections import CORRECTIONS, CorrectionName, corrected_surrogate
from lagoon.losses import (
    Aggregation,
    Loss,
    TokenBatch,
    clipped_surrogate,
    reference_divergence,
    token_weights,
)
from lagoon.methods.base import PolicyGradient

if TYPE_CHECKING:
    from lagoon.config import RunConfig


class GroupRelative(PolicyGradient):
    """A method that compares the trajectories of a prompt with each other (arXiv:2402.03300).

    How much generation and training overlap is left to the method.
    """

    num_prompts: int = Field(16, ge=1, le=4096)
    """Prompts per update."""
    group_size: int = Field(8, ge=1, le=1024)
    """Trajectories sampled for each prompt. At least 2: a group of one has no spread."""
    deviation: Deviation = "population"
    """Which standard deviation divides the centered rewards; "none" only centers them."""
    epsilon: float = Field(1e-6, gt=0)
    """Added to the standard deviation."""
    aggregation: Aggregation = "token_mean"
    """How token losses become one number: over all tokens, over each trajectory first, or summed
    per trajectory over a constant length."""
    length_constant: int | None = Field(None, ge=1)
    """Constant length that "sequence_sum" divides by; only with that aggregation."""
    kl_coefficient: float = Field(0.0, ge=0)
    """Weight of the divergence from the initial policy. Above 0 the trainer keeps a copy of it."""

    def clashes(self, config: RunConfig) -> list[Clash]:
        """A group without spread, and divisors that are missing or would have no effect."""
        found = []
        if self.group_size == 1:
            message = "a group of 1 has no spread to standardize: it takes 2 or more"
            found.append(Clash(("method.group_size", "method.name"), message))
        if (self.aggregation == "sequence_sum") != (self.length_constant is not None):
            message = (
                "sequence_sum divides by method.length_constant, which is not set"
                if self.length_constant is None
                else f"{self.aggregation} has its own divisor: length_constant has no effect"
            )
            found.append(Clash(("method.length_constant", "method.aggregation"), message))
        if self.deviation == "none" and self.epsilon != type(self).model_fields["epsilon"].default:
            message = "without a deviation nothing is divided: epsilon has no effect"
            found.append(Clash(("method.epsilon", "method.deviation"), message))
        return found

    @property
    def prompts_per_step(self) -> int:
        """Groups that one update trains on."""
        return self.num_prompts

    @property
    def trajectories_per_prompt(self) -> int:
        """Trajectories sampled for each prompt."""
        return self.group_size

    @property
    def needs_reference(self) -> bool:
        """True when the divergence from the initial policy has a weight."""
        return self.kl_coefficient > 0

    def advantages(self, rewards: Sequence[float]) -> list[float]:
        """``(r - mean) / (std + epsilon)`` within the group."""
        return group_standardized(rewards, deviation=self.deviation, epsilon=self.epsilon)

    def token_weights(self, lengths: Sequence[int]) -> list[float]:
        """The divisor of the chosen aggregation."""
        return token_weights(lengths, self.aggregation, self.length_constant)

    @abstractmethod
    def surrogate(self, batch: TokenBatch) -> Loss:
        """The part of the loss that the advantages are in."""

    def loss(self, batch: TokenBatch) -> Loss:
        """The surrogate, plus the weighted divergence from the initial policy when asked for."""
        surrogate = self.surrogate(batch)
        if not self.needs_reference:
            return surrogate
        divergence = reference_divergence(batch)
        return Loss(
            surrogate.value + self.kl_coefficient * divergence.value,
            surrogate.metrics | divergence.metrics,
            surrogate.importance,
        )


class Clipped(GroupRelative):
    """One whose ratio to the behavior policy is clipped (arXiv:1707.06347)."""

    clip_low: float = Field(0.2, gt=0, lt=1)
    """The importance ratio earns nothing below 1 - clip_low."""
    clip_high: float = Field(0.2, gt=0)
    """The importance ratio earns nothing above 1 + clip_high."""

    def surrogate(self, batch: TokenBatch) -> Loss:
        """The clipped surrogate."""
        return clipped_surrogate(batch, clip_low=self.clip_low, clip_high=self.clip_high)


class Corrected(GroupRelative):
    """One that corrects for tokens that another policy sampled, in a way that can be chosen."""

    correction: CorrectionName = "clip"
    """What multiplies the gradient of a token that another version sampled: "clip" is GRPO's own
    clipped ratio, "none" takes such tokens as they are."""
    ratio_low: float | None = Field(None, ge=0, lt=1)
    """Lower bound of the correction's ratio (current over behavior policy); empty takes its own."""
    ratio_high: float | None = Field(None, gt=1)
    """Upper bound of the correction's ratio; empty takes its own."""
    ratio_cap: float | None = Field(None, ge=1)
    """Largest weight of the policy before the update over the behavior policy; only "decoupled" has
    one."""

    def clashes(self, config: RunConfig) -> list[Clash]:
        """A bound that the correction does not have."""
        found = super().clashes(config)
        bounds = self._bounds()
        for name in CORRECTIONS[self.correction].without_effect(**bounds):
            message = f"{CORRECTIONS[self.correction].title} has no such bound: it has no effect"
            found.append(Clash((f"method.ratio_{name}", "method.correction"), message))
        return found

    @property
    def needs_behavior(self) -> bool:
        """As the correction does."""
        return CORRECTIONS[self.correction].needs_behavior

    def surrogate(self, batch: TokenBatch) -> Loss:
        """The corrected surrogate."""
        correction = CORRECTIONS[self.correction]
        return corrected_surrogate(batch, correction, correction.band(**self._bounds()))

    def _bounds(self) -> dict[str, float | None]:
        return {"low": self.ratio_low, "high": self.ratio_high, "cap": self.ratio_cap}
