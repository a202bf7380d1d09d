"""The trainer's own scoring of the pool is work, and no waiting for data."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from lagoon import metrics as m
from lagoon.trajectory import TrainingSample
from tests.workers.fakes import loop_context
from tests.workers.loops.invariants import NUM_STEPS, PACED, UNFILTERED, overlapping
from tests.workers.streaming import Chance, StreamingGenerator, StreamingTrainer, ran
from workers.loops.context import Progress
from workers.loops.policy_gradient import PolicyGradientLoop

SCORING = 1000.0


class Scoring(StreamingTrainer):
    """A thousand seconds pass while it scores the pool."""

    progress: Progress
    pass_time: float = 0.0

    def __init__(self, chance: Chance) -> None:
        super().__init__(chance)
        self.activities: set[str] = set()
        self.passes: dict[int, int] = {}

    async def logprobs(
        self, samples: Sequence[TrainingSample], temperature: float | None = None
    ) -> list[list[float]]:
        if temperature is None:  # else it is the canaries'
            self.pass_time += SCORING
            self.activities.add(self.progress.activity)
            step = len(self.batches) + 1
            self.passes[step] = self.passes.get(step, 0) + 1
            await asyncio.sleep(0)
        return await super().logprobs(samples, temperature)


async def test_scoring_is_told_apart_from_waiting_and_the_parts_make_the_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = Chance(4, most_tokens=12)
    context, sink = loop_context(
        overlapping(PACED), [StreamingGenerator(chance) for _ in "ab"], tmp_path
    )
    trainer = Scoring(chance)
    trainer.progress = context.progress
    ticks = context.controls._stopwatch
    monkeypatch.setattr(context.controls, "_stopwatch", lambda: ticks() + trainer.pass_time)
    await PolicyGradientLoop(context, trainer).run()
    assert trainer.activities == {"scoring"}
    assert sum(trainer.passes.values()) > 0
    scored, waited = sink.values(m.SCORE_SECONDS), sink.values(m.GENERATE_SECONDS)
    for step in range(1, NUM_STEPS + 1):
        assert scored[step] // SCORING == trainer.passes.get(step, 0)
        assert waited[step] < SCORING
        parts = (m.TRAIN_SECONDS, m.EVALUATION_WAIT_SECONDS, m.PUBLISH_SECONDS)
        others = sum(sink.values(part)[step] for part in parts)
        assert sink.values(m.STEP_SECONDS)[step] == waited[step] + scored[step] + others


async def test_a_method_that_scores_nothing_reports_no_time_of_it(tmp_path: Path) -> None:
    assert (await ran(overlapping(UNFILTERED), tmp_path, Chance(0))).sink.values(
        m.SCORE_SECONDS
    ) == {}
