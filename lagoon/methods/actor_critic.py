"""What methods share that have a critic: advantages come token by token, made by the trainer."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from lagoon.critic import Estimate, Floats, Updates
from lagoon.methods.base import PolicyGradient


class ActorCritic(PolicyGradient):
    """A method whose trainer keeps a critic beside the policy, with an optimizer of its own.

    Trajectories are not compared with each other, so that one for each prompt is enough.
    """

    def advantages(self, rewards: Sequence[float]) -> list[float]:
        """The rewards themselves: what each trajectory earned, of which ``credit`` makes advantages
        where the values are known."""
        return list(rewards)

    @abstractmethod
    def credit(
        self,
        rewards: Sequence[float],
        values: Sequence[Floats],
        action_masks: Sequence[Sequence[int]],
    ) -> list[Estimate]:
        """The advantage of each token for the policy, and its return for the critic, of a batch.

        ``rewards`` has one for each trajectory; the others one for each token of each.
        """

    @abstractmethod
    def updates_at(self, step: int) -> Updates:
        """Updates of critic and policy at a step, counted from 0."""

    @abstractmethod
    def critic_learning_rate(self, learning_rate: float) -> float:
        """The critic's learning rate where the policy's is ``learning_rate``."""
