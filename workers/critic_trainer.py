"""From what trajectories earned to what each of their tokens did: the critic's part of a step.

::

    samples ─▶ values ─▶ method.credit ─┬─▶ advantages ─▶ the policy's update
      (rewards)  (critic)               └─▶ returns ────▶ the critic's updates
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lagoon.critic import Floats, Updates
from lagoon.methods.actor_critic import ActorCritic
from lagoon.trajectory import TrainingSample
from workers.critic import Critic, explained
from workers.step_report import Sums


@dataclass(frozen=True, slots=True)
class Valued:
    """A batch and what the critic makes of it, before any update."""

    samples: tuple[TrainingSample, ...]
    """With an advantage for each token."""
    values: tuple[Floats, ...]
    returns: tuple[Floats, ...]
    updates: Updates


class CriticTrainer:
    """A critic, as its method uses it."""

    def __init__(self, method: ActorCritic, critic: Critic) -> None:
        self._method, self.critic = method, critic

    def valued(self, samples: Sequence[TrainingSample], step: int) -> Valued:
        """What the tokens of ``samples`` were worth; ``step`` is counted from 0.

        Raises ``TypeError`` for samples whose advantage is not one number: what they earned.
        """
        values = self.critic.values(samples)
        estimates = self._method.credit(
            [_earned(sample) for sample in samples],
            values,
            [sample.trajectory.action_mask for sample in samples],
        )
        return Valued(
            samples=tuple(
                replace(sample, advantage=tuple(estimate.advantages.tolist()))
                for sample, estimate in zip(samples, estimates, strict=True)
            ),
            values=tuple(values),
            returns=tuple(estimate.returns for estimate in estimates),
            updates=self._method.updates_at(step),
        )

    def learn(self, batch: Valued, learning_rate: float) -> Sums:
        """Update the critic; ``learning_rate`` is the policy's.

        Raises ``NonFiniteCritic``.
        """
        found = self.critic.learn(
            batch.samples,
            batch.returns,
            self._method.critic_learning_rate(learning_rate),
            batch.updates.critic,
        )
        return found | explained(batch.samples, batch.values, batch.returns)


def _earned(sample: TrainingSample) -> float:
    if isinstance(sample.advantage, tuple):
        raise TypeError("a critic makes advantages of rewards; these are advantages already")
    return sample.advantage
