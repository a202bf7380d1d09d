"""What the driver may ask of a generator, wherever that runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from lagoon.trajectory import Trajectory
from workers.rollout import EpisodeFailure, EpisodeRequest, Sampled
from workers.steering import Steerable


@dataclass(frozen=True, slots=True)
class UpdateReport:
    """What a generator's weights became after an ES update."""

    checksum: str
    update_norm: float
    drift_norm: float
    num_parameters: int


class GeneratorHandle(Steerable, Protocol):
    """A generator, wherever it runs."""

    async def submit(self, requests: Sequence[EpisodeRequest]) -> None:
        """Start episodes."""
        ...

    async def collect(self) -> list[Trajectory | EpisodeFailure]:
        """Wait for at least one finished episode and return all finished ones."""
        ...

    async def give_up(self, trajectory_ids: Sequence[str]) -> None:
        """End episodes that nobody waits for: turns that are being sampled are cut, environments
        are left, places are free. Those that have ended already are passed over."""
        ...

    async def openings(
        self, requests: Sequence[EpisodeRequest]
    ) -> list[list[int]] | EpisodeFailure:
        """The prompts that episodes begin with. Nothing is sampled."""
        ...

    async def probe(self, prompts: Sequence[Sequence[int]], num_tokens: int) -> list[Sampled]:
        """The greedy continuations of prompts, ``num_tokens`` each."""
        ...

    async def tools_waited_for(self) -> tuple[int, int]:
        """Episodes that wait for a tool at this moment, and all in flight."""
        ...

    async def publish(self, version: int, weights: Any) -> str:
        """Load published weights; returns the checksum of what arrived."""
        ...

    async def perturb(self, seed: int, sigma: float, noise: str) -> None:
        """Load the master weights plus noise."""
        ...

    async def update(
        self, version: int, seeds: Sequence[int], coefficients: Sequence[float], noise: str
    ) -> UpdateReport:
        """Add a weighted sum of noise to the master weights and load them."""
        ...

    async def save(self, folder: str) -> None:
        """Write the master weights as a model folder."""
        ...
