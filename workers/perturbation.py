"""The one place where noise meets a tensor.

Noise is a function of (seed, tensor name) alone, drawn on the CPU in float32, so that every
process regenerates the same one. Nothing is ever added and subtracted again: a perturbed copy is
computed out of place from the master.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from lagoon.evolution import NoiseKey, noise_seed


def noise(name: str, shape: Sequence[int], seed: int, key: NoiseKey) -> Tensor:
    """The standard normal noise of member ``seed`` on the tensor ``name``, float32 on the CPU."""
    generator = torch.Generator().manual_seed(noise_seed(seed, name, key))
    return torch.randn(tuple(shape), generator=generator, dtype=torch.float32)


def perturbed(
    master: Mapping[str, Tensor], seed: int, sigma: float, key: NoiseKey
) -> Iterator[tuple[str, Tensor]]:
    """``master + sigma * noise``, tensor by tensor, in each tensor's own number format."""
    for name, tensor in master.items():
        moved = noise(name, tensor.shape, seed, key).mul_(sigma).add_(tensor.float())
        yield name, moved.to(tensor.dtype)


def add_update_(
    master: Mapping[str, Tensor],
    seeds: Sequence[int],
    coefficients: Sequence[float],
    key: NoiseKey,
) -> float:
    """Add ``sum_i coefficients[i] * noise(seeds[i])`` to ``master`` and return the sum's norm.

    The sum runs in float32 in the given order, with one cast at the end. Members whose
    coefficient is 0 add nothing, so that equal fitness leaves every bit as it was.
    """
    members = [(s, c) for s, c in zip(seeds, coefficients, strict=True) if c != 0.0]
    if not members:
        return 0.0
    squares = 0.0
    for name, tensor in master.items():
        update = torch.zeros(tensor.shape, dtype=torch.float32)
        for seed, coefficient in members:
            update.add_(noise(name, tensor.shape, seed, key), alpha=coefficient)
        squares += sum_of_squares(update)
        tensor.copy_(tensor.float() + update)
    return math.sqrt(squares)


def sum_of_squares(tensor: Tensor) -> float:
    """Sum of the squared elements, accumulated in float64."""
    return float(tensor.double().square().sum())
