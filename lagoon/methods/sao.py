"""SAO: one rollout for each prompt, a critic in the place of the group, and a strict mask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from lagoon.clashes import Clash
from lagoon.corrections import CorrectionName
from lagoon.critic import (
    Estimate,
    Floats,
    Updates,
    adaptive_trace,
    generalized_advantages,
    terminal_rewards,
    updates_at,
    whitened,
)
from lagoon.losses import token_weights
from lagoon.methods.actor_critic import ActorCritic
from lagoon.methods.bounded import Bounded

if TYPE_CHECKING:
    from lagoon.config import RunConfig
    from lagoon.losses import Loss, TokenBatch


class SAO(Bounded, ActorCritic):
    """Single-rollout asynchronous optimization (arXiv:2607.07508).

    A trajectory may be trained on as soon as it ends: no group waits for its slowest one. A critic
    as large as the policy says what its tokens were worth, in generalized advantages that skip what
    the policy did not sample. Tokens whose ratio leaves the band count for nothing, whatever their
    advantage. The critic takes as much memory again as the policy and its optimizer.

    The band is the paper's for mathematics; for code it has 0.2 and 4. The critic begins as the
    policy and its attention is never trained, as in the paper; that embeddings and norms are, and
    that it has no training of its own before the run, is ours.

    An episode that a limit has cut has earned what it was given, like any other: nothing is
    expected after its end (ours).

    The mask judges tokens whatever their age, so no bound is the method's; but where generators are
    faster than the trainer, the pool and the age of what is in it grow without end. A bound on
    staleness then keeps new rollouts waiting (ours).
    """

    title = "SAO (single rollout, asynchronous)"
    paper = "2607.07508"

    name: Literal["sao"] = "sao"

    num_prompts: int = Field(128, ge=1, le=65536)
    """Prompts per update, with one trajectory each."""
    max_staleness: int | None = Field(None, ge=0, le=1_000_000)
    """Policy versions by which a trajectory may lag, as far as its start decides that. Empty: no
    bound, as in the paper; any bound is ours. 0 is synchronous training."""
    drop_stale: bool = False
    """Drop trajectories with a token that lags by more than max_staleness when a batch is drawn
    (ours). What is slow is dropped more often: the ledger counts it."""
    correction: CorrectionName = "dis"
    """What multiplies the gradient of each token: "dis", the strict double-sided mask, is the
    method's; the others are there to compare with."""
    discount: float = Field(1.0, gt=0, le=1)
    """Discount of rewards, for each token. Ours: the notes on the paper give no value."""
    trace_scale: float = Field(1.5, gt=0)
    """Advantages decay with 1 - 1 / (trace_scale * length of the response) for each token, so that
    what long responses earn reaches their beginning as well."""
    whiten: bool = False
    """Bring the advantages of a batch to mean 0 and deviation 1 over its sampled tokens. Optional
    in the paper; that it is off is ours."""
    critic_updates: int = Field(2, ge=1, le=64)
    """Updates of the critic for each one of the policy."""
    critic_warmup_steps: int = Field(10, ge=0)
    """Steps at the start that train the critic alone. They count as steps of the run: the policy is
    published unchanged."""
    critic_rate_factor: float = Field(5.0, gt=0)
    """The critic's learning rate over the policy's: 5e-6 over 1e-6 in the paper. It follows the
    same schedule (ours)."""

    def clashes(self, config: RunConfig) -> list[Clash]:
        """A run that ends before the policy's first update."""
        found, max_steps = super().clashes(config), config.budget.max_steps
        if self.critic_warmup_steps >= max_steps:
            message = (
                f"the critic is trained alone for {self.critic_warmup_steps} steps: in "
                f"{max_steps} steps the policy never is"
            )
            found.append(Clash(("method.critic_warmup_steps", "budget.max_steps"), message))
        return found

    @property
    def prompts_per_step(self) -> int:
        """Prompts that one update trains on."""
        return self.num_prompts

    @property
    def trajectories_per_prompt(self) -> int:
        """1: that is the method."""
        return 1

    def token_weights(self, lengths: Sequence[int]) -> list[float]:
        """1 over all sampled tokens, masked ones included."""
        return token_weights(lengths, "token_mean")

    def loss(self, batch: TokenBatch) -> Loss:
        """The corrected surrogate."""
        return self.surrogate(batch)

    def credit(
        self,
        rewards: Sequence[float],
        values: Sequence[Floats],
        action_masks: Sequence[Sequence[int]],
    ) -> list[Estimate]:
        """Generalized advantages with a trace as long as the response; returns with a full one."""
        found = [
            self._credit(reward, value, mask)
            for reward, value, mask in zip(rewards, values, action_masks, strict=True)
        ]
        if not self.whiten:
            return found
        even = whitened([estimate.advantages for estimate in found], action_masks)
        return [
            Estimate(advantages, estimate.returns)
            for advantages, estimate in zip(even, found, strict=True)
        ]

    def _credit(self, reward: float, values: Floats, action_mask: Sequence[int]) -> Estimate:
        rewards = terminal_rewards(reward, action_mask)
        trace = adaptive_trace(sum(action_mask), self.trace_scale)
        own, full = (
            generalized_advantages(
                rewards, values, action_mask, discount=self.discount, trace=length
            )
            for length in (trace, 1.0)
        )
        return Estimate(own.advantages, full.returns)

    def updates_at(self, step: int) -> Updates:
        """The critic alone during its warm-up."""
        return updates_at(
            step, warmup_steps=self.critic_warmup_steps, critic_updates=self.critic_updates
        )

    def critic_learning_rate(self, learning_rate: float) -> float:
        """A multiple of the policy's."""
        return self.critic_rate_factor * learning_rate
