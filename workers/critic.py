"""The critic of single-rollout methods: the policy's body with a head of one number.

::

    policy's weights ─▶ body (attention frozen) ─▶ head, which begins at 0 ─▶ value before a token
                              ▲                                                   │
                              └── own optimizer ◀── squared error of returns ◀────┘

Its arithmetic is in ``lagoon/critic.py``. A value is of what stands before a token: the same states
that the policy's log-probabilities are made of.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lagoon.config import TrainerConfig
from lagoon.critic import Floats, explained_variance, is_trained, value_loss
from lagoon.metrics import CRITIC_GRAD_NORM, CRITIC_LEARNING_RATE, EXPLAINED_VARIANCE, VALUE_LOSS
from lagoon.trajectory import TrainingSample
from workers.microbatches import MicroBatch, by_trajectory
from workers.optimizer import Optimizer
from workers.policy import as_arguments
from workers.step_report import Sums

MicroBatches = Callable[[Sequence[TrainingSample]], Iterator[MicroBatch]]
"""Cuts a batch of samples."""
WEIGHTS = "weights"


class NonFiniteCritic(ArithmeticError):
    """The critic's gradient is NaN or infinite; its update was refused."""

    def __init__(self, norm: float) -> None:
        super().__init__(f"the critic's gradient is {norm}")
        self.norm = norm


class Critic:
    """A model that predicts the return of each sampled token, and its optimizer."""

    def __init__(self, policy: Any, settings: TrainerConfig, micro_batches: MicroBatches) -> None:
        """A critic that begins as ``policy``'s body."""
        body = copy.deepcopy(policy.base_model)
        size = policy.get_output_embeddings().weight.shape[-1]
        head = torch.nn.Linear(size, 1, device=policy.device, dtype=torch.float32)
        # All values begin as equal: a random head would be noise in the first advantages.
        torch.nn.init.zeros_(head.weight)
        torch.nn.init.zeros_(head.bias)
        self._body, self._head, self._dtype = body, head, policy.dtype
        self._model = torch.nn.ModuleDict({"body": body, "head": head}).eval()
        for name, parameter in self._model.named_parameters():
            parameter.requires_grad_(is_trained(name))
        self._trained = {n: p for n, p in self._model.named_parameters() if p.requires_grad}
        self._optimizer = Optimizer(self._trained, settings)
        self._micro_batches = micro_batches

    def values(self, samples: Sequence[TrainingSample]) -> list[Floats]:
        """The value before each token of each sample; 0 where the policy did not sample."""
        found: dict[int, list[float]] = {}
        with torch.no_grad():
            for batch in self._micro_batches(samples):
                found.update(by_trajectory(batch, self._values(batch)))
        return [
            _spread(found[index], sample.trajectory.action_mask)
            for index, sample in enumerate(samples)
        ]

    def learn(
        self,
        samples: Sequence[TrainingSample],
        returns: Sequence[Floats],
        learning_rate: float,
        num_updates: int,
    ) -> Sums:
        """Take ``num_updates`` steps towards the ``returns`` of the samples' tokens.

        Raises ``NonFiniteCritic`` with the critic as it was before the step that failed.
        """
        total = max(1, sum(sample.trajectory.num_actions for sample in samples))
        # A batch of the critic has the returns where one of the policy has advantages.
        targets = [
            replace(sample, advantage=tuple(target.tolist()), token_weight=1 / total)
            for sample, target in zip(samples, returns, strict=True)
        ]
        losses, norms = [], []
        for _ in range(num_updates):
            loss, norm = self._step(targets, learning_rate)
            losses.append(loss)
            norms.append(norm)
        return {
            VALUE_LOSS: (losses[0], 1.0),
            CRITIC_GRAD_NORM: (sum(norms), float(num_updates)),
            CRITIC_LEARNING_RATE: (learning_rate, 1.0),
        }

    def state(self) -> dict[str, Tensor]:
        """All that a later critic needs to go on bit for bit, by part and name."""
        weights = {
            f"{WEIGHTS}/{name}": parameter.detach().cpu().contiguous()
            for name, parameter in self._model.named_parameters()
        }
        return weights | self._optimizer.state()

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Go on from what ``state`` returned. Raises ``ValueError`` for another model's."""
        own = dict(self._model.named_parameters())
        prefix = f"{WEIGHTS}/"
        weights = {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
        if weights.keys() != own.keys():
            odd = sorted(weights.keys() ^ own.keys())[0]
            raise ValueError(f"the critic's state is of another model: {odd!r} is in one of them")
        with torch.no_grad():
            for name, parameter in own.items():
                parameter.copy_(weights[name])
        self._optimizer.load({k: v for k, v in state.items() if not k.startswith(prefix)})

    def _step(self, targets: Sequence[TrainingSample], learning_rate: float) -> tuple[float, float]:
        """One optimizer step; the loss before it, and the norm of its gradient."""
        total = 0.0
        for batch in self._micro_batches(targets):
            if not bool(batch.action_mask.any()):
                continue
            loss = value_loss(self._values(batch), batch.advantages, batch.weights)
            loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
            total += float(loss.detach())
            self._optimizer.collect_gradient()
        norm = self._optimizer.gradient_norm()
        if not math.isfinite(norm):
            self._optimizer.drop_gradient()
            raise NonFiniteCritic(norm)
        self._optimizer.step(learning_rate, norm)
        return total, norm

    def _values(self, batch: MicroBatch) -> Tensor:
        """[B, T]; 0 where nothing was sampled."""
        rows, columns = batch.action_mask.nonzero(as_tuple=True)
        seen = as_arguments(batch.layout, self._dtype)
        answer = self._body(input_ids=batch.token_ids, use_cache=False, **seen)
        states = answer.last_hidden_state
        before = states[rows, batch.before[rows, columns]].float()
        values = self._head(before).squeeze(-1)
        return torch.zeros(batch.token_ids.shape, device=values.device).index_put(
            (rows, columns), values
        )


def _spread(sampled: Sequence[float], action_mask: Sequence[int]) -> Floats:
    values = np.zeros(len(action_mask))
    values[np.flatnonzero(action_mask)] = sampled
    return values


def explained(
    samples: Sequence[TrainingSample], values: Sequence[Floats], returns: Sequence[Floats]
) -> Sums:
    """How much of the returns the values said; nothing where all returns are equal."""
    masks = [np.asarray(sample.trajectory.action_mask, dtype=bool) for sample in samples]
    said, earned = (
        np.concatenate([part[mask] for part, mask in zip(parts, masks, strict=True)])
        for parts in (values, returns)
    )
    share = explained_variance(said, earned)
    return {} if math.isnan(share) else {EXPLAINED_VARIANCE: (share, 1.0)}
