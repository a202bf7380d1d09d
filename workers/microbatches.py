"""Trajectories of a batch, cut into padded micro-batches of bounded size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lagoon.trajectory import TrainingSample
from workers.packing import Row

MAX_SEEN_ENTRIES = 2**24
"""Size of a micro-batch's table of what each token sees: 64 MiB in float32."""

MAX_PADDING = 0.25
"""Largest part of a micro-batch that is padding: it costs as much as tokens do."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What tokens see where several trajectories share a row (see ``workers.packing``)."""

    positions: Tensor
    """Each token's position in its own trajectory, [B, T]."""
    attends: Tensor
    """Whether a token (third axis) sees another (last axis), [B, 1, T, T]."""


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Right-padded rows of trajectories. Tensors are [B, T]; padding is token 0 with mask 0."""

    token_ids: Tensor
    action_mask: Tensor
    """True where the policy sampled the token."""
    before: Tensor
    """Column of the token that stands before each token in its trajectory."""
    behavior_logprobs: Tensor
    advantages: Tensor
    weights: Tensor
    """Each sampled token's weight in the loss; 0 elsewhere."""
    versions: Tensor
    """Policy version that sampled each token; -1 where unknown."""
    trajectories: Tensor
    """Which trajectory of the batch each token is of; any one in padding and a shared prompt."""
    layout: Layout | None
    """None when each row holds one trajectory, which sees all that stands before."""
    rows: tuple[Row, ...]


def micro_batches(
    samples: Sequence[TrainingSample], rows: Sequence[Row], max_tokens: int, device: torch.device
) -> Iterator[MicroBatch]:
    """Cut ``rows`` of ``samples`` into micro-batches of at most ``max_tokens`` padded tokens.

    Rows of similar length go together, and a row that would bring too much padding begins a new
    one. One row longer than ``max_tokens`` is a micro-batch of its own.
    """
    taken: list[Row] = []
    for row in sorted(rows, key=lambda row: -row.num_tokens):
        if taken and not _fit([*taken, row], max_tokens):
            yield _padded(samples, taken, device)
            taken = []
        taken.append(row)
    if taken:
        yield _padded(samples, taken, device)


def _fit(rows: Sequence[Row], max_tokens: int) -> bool:
    """Whether rows, the longest first, may be one micro-batch."""
    longest = rows[0].num_tokens
    padded = len(rows) * longest
    has_table = any(row.is_shared for row in rows)
    return (
        padded <= max_tokens
        and padded - sum(row.num_tokens for row in rows) <= MAX_PADDING * padded
        and not (has_table and padded * longest > MAX_SEEN_ENTRIES)
    )


def _padded(
    samples: Sequence[TrainingSample], rows: Sequence[Row], device: torch.device
) -> MicroBatch:
    shape = (len(rows), max(row.num_tokens for row in rows))
    ids = torch.zeros(shape, dtype=torch.long)
    mask = torch.zeros(shape, dtype=torch.bool)
    behavior, advantages, weights = (torch.zeros(shape) for _ in range(3))
    versions = torch.full(shape, -1, dtype=torch.long)
    owners = torch.zeros(shape, dtype=torch.long)
    before = torch.arange(-1, shape[1] - 1).repeat(len(rows), 1)
    for place, row in enumerate(rows):
        for own in row.placed:
            sample, here = samples[own.index], (place, slice(own.start, own.start + own.length))
            trajectory, kept = sample.trajectory, slice(own.skipped, None)
            ids[here] = torch.tensor(trajectory.token_ids[kept])
            mask[here] = torch.tensor(trajectory.action_mask[kept], dtype=torch.bool)
            behavior[here] = torch.tensor(trajectory.behavior_logprobs[kept])
            known = [-1 if version is None else version for version in trajectory.versions[kept]]
            versions[here] = torch.tensor(known)
            owners[here] = own.index
            advantage = torch.tensor(sample.advantage)
            advantages[here] = advantage[kept] if advantage.ndim else advantage
            weights[here] = sample.token_weight
            if own.skipped and own.length:
                before[place, own.start] = own.skipped - 1
    layout = _layout(rows, shape, device) if any(row.is_shared for row in rows) else None
    return MicroBatch(
        token_ids=ids.to(device),
        action_mask=mask.to(device),
        before=before.to(device),
        behavior_logprobs=(behavior * mask).to(device),
        advantages=(advantages * mask).to(device),
        weights=(weights * mask).to(device),
        versions=versions.to(device),
        trajectories=owners.to(device),
        layout=layout,
        rows=tuple(rows),
    )


def _layout(rows: Sequence[Row], shape: tuple[int, int], device: torch.device) -> Layout:
    columns = torch.arange(shape[1])
    positions = torch.zeros(shape, dtype=torch.long)
    # Padding is an owner of its own, so that it sees something: a softmax over nothing is nan.
    owners = torch.full(shape, -1)
    for place, row in enumerate(rows):
        for own in row.placed:
            here = (place, slice(own.start, own.start + own.length))
            positions[here] = torch.arange(own.length) + own.skipped
            owners[here] = own.index
    num_shared = torch.tensor([row.num_shared for row in rows])
    is_prompt = columns < num_shared[:, None, None]
    is_own = owners[:, :, None] == owners[:, None, :]
    attends = (columns <= columns[:, None]) & (is_prompt | is_own)
    return Layout(positions.to(device), attends[:, None].to(device))


def by_trajectory(batch: MicroBatch, scores: Tensor) -> Iterator[tuple[int, list[Any]]]:
    """The ``scores`` ([B, T]) of each trajectory's sampled tokens, by its position in the batch."""
    scores, mask = scores.cpu(), batch.action_mask.cpu()
    for place, row in enumerate(batch.rows):
        for own in row.placed:
            here = (place, slice(own.start, own.start + own.length))
            yield own.index, scores[here][mask[here]].tolist()
