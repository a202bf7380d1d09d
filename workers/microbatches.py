"""Trajectories of a batch, cut into padded micro-batches of bounded size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lagoon.trajectory import TrainingSample


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Right-padded trajectories. All tensors are [B, T]; padding is token 0 with mask 0."""

    token_ids: Tensor
    action_mask: Tensor
    """True where the policy sampled the token."""
    behavior_logprobs: Tensor
    advantages: Tensor
    weights: Tensor
    """Each sampled token's weight in the loss; 0 elsewhere."""
    versions: Tensor
    """Policy version that sampled each token; -1 where unknown."""
    order: tuple[int, ...]
    """Positions of the rows in the batch they were cut from."""


def micro_batches(
    samples: Sequence[TrainingSample], max_tokens: int, device: torch.device
) -> Iterator[MicroBatch]:
    """Cut ``samples`` into micro-batches of at most ``max_tokens`` padded tokens.

    Samples of similar length go together. One sample longer than ``max_tokens`` is a micro-batch
    of its own.
    """
    rows: list[int] = []
    lengths = [len(sample.trajectory.token_ids) for sample in samples]
    longest = 0
    for index in sorted(range(len(samples)), key=lambda i: -lengths[i]):
        longest = longest or lengths[index]
        if rows and (len(rows) + 1) * longest > max_tokens:
            yield _padded(samples, rows, device)
            rows, longest = [], lengths[index]
        rows.append(index)
    if rows:
        yield _padded(samples, rows, device)


def _padded(
    samples: Sequence[TrainingSample], rows: Sequence[int], device: torch.device
) -> MicroBatch:
    shape = (len(rows), max(len(samples[row].trajectory.token_ids) for row in rows))
    ids = torch.zeros(shape, dtype=torch.long)
    mask = torch.zeros(shape, dtype=torch.bool)
    behavior, advantages, weights = (torch.zeros(shape) for _ in range(3))
    versions = torch.full(shape, -1, dtype=torch.long)
    for place, row in enumerate(rows):
        sample = samples[row]
        trajectory = sample.trajectory
        length = len(trajectory.token_ids)
        ids[place, :length] = torch.tensor(trajectory.token_ids)
        mask[place, :length] = torch.tensor(trajectory.action_mask, dtype=torch.bool)
        behavior[place, :length] = torch.tensor(trajectory.behavior_logprobs)
        known = [-1 if version is None else version for version in trajectory.versions]
        versions[place, :length] = torch.tensor(known)
        advantages[place, :length] = sample.advantage
        weights[place, :length] = sample.token_weight
    return MicroBatch(
        token_ids=ids.to(device),
        action_mask=mask.to(device),
        behavior_logprobs=(behavior * mask).to(device),
        advantages=(advantages * mask).to(device),
        weights=(weights * mask).to(device),
        versions=versions.to(device),
        order=tuple(rows),
    )
