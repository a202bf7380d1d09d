"""The pool under constant over-supply, in the loop: in a band around its target, or ever larger."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from lagoon import metrics as m
from lagoon.trajectory import TrainingSample
from tests.workers.fakes import FakeGenerator, FakeTrainer, loop_context
from tests.workers.loops.invariants import UNFILTERED, is_balanced, overlapping
from workers.loops.policy_gradient import PolicyGradientLoop
from workers.rollout import EpisodeRequest
from workers.step_report import StepReport

BATCH, SURPLUS, TARGET, NUM_STEPS = 2, 3, 6, 60


class Supply(FakeGenerator):
    """Groups end when the trainer has made a step: always as many, in the order of their starts."""

    def __init__(self) -> None:
        super().__init__(lambda request, _: float(request.trajectory_id.endswith("0")))
        self.groups: list[Sequence[EpisodeRequest]] = []
        self.is_open = BATCH + SURPLUS
        """Groups that may still end at once: those of the first update."""

    async def submit(self, requests: Sequence[EpisodeRequest]) -> None:
        if requests[0].split == "heldout":
            await super().submit(requests)
        elif self.is_open:
            self.is_open -= 1
            await super().submit(requests)
        else:
            self.groups.append(requests)

    async def release(self) -> None:
        for requests in self.groups[: BATCH + SURPLUS]:
            await super().submit(requests)
        del self.groups[: BATCH + SURPLUS]


class Steady(FakeTrainer):
    def __init__(self, supply: Supply) -> None:
        super().__init__()
        self.supply = supply

    async def step(self, samples: Sequence[TrainingSample], learning_rate: float) -> StepReport:
        await self.supply.release()
        for _ in range(30):  # they reach the pool, and others begin in their places
            await asyncio.sleep(0)
        return await super().step(samples, learning_rate)


async def occupancy(method: dict[str, Any], folder: Path) -> list[float]:
    """Ready groups before each selection but the first."""
    supply = Supply()
    context, sink = loop_context(overlapping(method, steps=NUM_STEPS, places=64), [supply], folder)
    await PolicyGradientLoop(context, Steady(supply)).run()
    assert all(is_balanced(sink, step) for step in range(1, NUM_STEPS + 1))
    ready = sink.values(m.POOL_READY)
    return [ready[step] for step in range(1, NUM_STEPS + 1)]


@pytest.mark.parametrize("smoothing", [0.0, 0.5, 0.9])
async def test_with_pace_the_pool_settles_in_a_band_around_its_target(
    tmp_path: Path, smoothing: float
) -> None:
    method = {"name": "pace", "target": TARGET, "smoothing": smoothing}
    seen = await occupancy(method, tmp_path)
    settled = seen[NUM_STEPS // 2 :]
    assert max(abs(ready - (TARGET + SURPLUS)) for ready in settled) <= 2


async def test_without_it_the_pool_grows_by_the_surplus_of_every_update(tmp_path: Path) -> None:
    seen = await occupancy(UNFILTERED, tmp_path)
    assert seen == [(step + 1) * SURPLUS + BATCH for step in range(1, NUM_STEPS + 1)]
