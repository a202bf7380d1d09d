"""PACE in the loop: the pool stays near its target where generators outrun the trainer."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from lagoon import metrics as m
from tests.builders import grpo_config
from tests.workers.fakes import loop_context
from tests.workers.streaming import Chance, StreamingGenerator, StreamingTrainer
from workers.loops.policy_gradient import PolicyGradientLoop

STEPS = 40


class Busy(StreamingTrainer):
    """Takes as long as generators need for several batches; counts what it is asked to score."""

    def __init__(self, chance: Chance) -> None:
        super().__init__(chance)
        self.num_scorings = 0

    async def step(self, *arguments: Any) -> Any:
        for _ in range(60):
            await asyncio.sleep(0)
        return await super().step(*arguments)

    async def logprobs(self, samples: Any, temperature: float | None = None) -> Any:
        self.num_scorings += samples[0].trajectory.trajectory_id.startswith("train/")
        return await super().logprobs(samples, temperature)


async def occupancy(method: str, folder: Path) -> tuple[list[float], Busy, Any]:
    config = grpo_config(
        method={"name": method, "num_prompts": 2, "group_size": 2},
        rollout={"max_concurrent": 16},
        budget={"max_steps": STEPS},
        evaluation={"num_tasks": 1, "every_steps": STEPS},
    )
    chance = Chance(5, most_tokens=4)
    context, sink = loop_context(config, [StreamingGenerator(chance)], folder)
    trainer = Busy(chance)
    loop = PolicyGradientLoop(context, trainer)
    await loop.run()
    assert loop.ledger.is_balanced
    return list(sink.values(m.POOL_READY).values()), trainer, sink


async def test_the_pool_converges_to_its_target_with_pace_and_grows_without(
    tmp_path: Path,
) -> None:
    held, trainer, sink = await occupancy("pace", tmp_path / "pace")
    grown, _, _ = await occupancy("async_grpo", tmp_path / "unfiltered")
    assert grown[-1] > 2 * max(held)
    late = held[STEPS // 2 :]
    assert max(late) < 1.5 * min(late) + 4
    assert set(sink.values(m.POOL_TARGET).values()) == {4.0}
    rejected = sum(p.value for _, p in sink.points(m.REJECTED))
    dropped = [p for _, p in sink.points(m.LEDGER_DROPPED) if p.labels]
    final = {p.labels["reason"]: p.value for p in dropped}
    assert rejected == pytest.approx(sum(final.values()))
    assert set(final) <= {"rejected_waiting", "rejected_drift"}
    # One pass for each update but the first, at whose version nothing can be older.
    assert trainer.num_scorings == STEPS - 1
