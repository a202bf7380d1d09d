"""What real loops report when they play with stand-ins, as the API would answer it."""

import asyncio
import json
import random
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from lagoon.drift import TokenScores
from lagoon.events import Event, HistogramLogged
from lagoon.metrics import (
    CLIPPED,
    CRITIC_GRAD_NORM,
    CRITIC_LEARNING_RATE,
    ENTROPY,
    EXPLAINED_VARIANCE,
    GRAD_NORM,
    LEARNING_RATE,
    LOSS,
    MASKED,
    VALUE_LOSS,
)
from lagoon.trajectory import TrainingSample
from tests.builders import grpo_config
from tests.dashboard import canned, canned_series
from tests.dashboard.fake_api import FakeApi
from tests.workers.fakes import at_once, loop_context
from tests.workers.streaming import Chance, StreamingGenerator, StreamingTrainer
from workers.loops.policy_gradient import PolicyGradientLoop
from workers.step_report import StepReport

Json = dict[str, Any]

METHODS: dict[str, Json] = {
    "async_grpo": {"name": "async_grpo", "num_prompts": 4, "group_size": 2, "max_staleness": 2},
    "pace": {"name": "pace", "num_prompts": 4, "group_size": 2, "target": 6, "smoothing": 0.5},
    "sao": {"name": "sao", "num_prompts": 8, "critic_warmup_steps": 4},
    "one_step_off": {"name": "one_step_off", "num_prompts": 4, "group_size": 2},
    "grpo": {"name": "grpo", "num_prompts": 4, "group_size": 2},
}


class DriftingTrainer(StreamingTrainer):
    """Scores older tokens differently, the more so the older they are, and those beyond a ratio not
    at all; tells of a critic when its run has one."""

    def __init__(self, chance: Chance, *, has_critic: bool) -> None:
        super().__init__(chance)
        self.has_critic = has_critic
        self.noise = random.Random(7)

    async def step(self, samples: Sequence[TrainingSample], learning_rate: float) -> StepReport:
        version = len(self.batches)
        await super().step(samples, learning_rate)
        scores = tuple(self._scores(sample, version) for sample in samples)
        cut = [is_out for each in scores for is_out in (*each.below, *each.above)]
        masked = [is_out for each in scores for is_out in each.masked]
        falls = 1.0 / (1 + version)
        sums = {
            LOSS.name: (falls, 1.0),
            GRAD_NORM.name: (1 + falls, 1.0),
            ENTROPY.name: (0.4 + falls / 2, 1.0),
            LEARNING_RATE.name: (learning_rate, 1.0),
            CLIPPED.name: (sum(cut), len(masked)),
            MASKED.name: (sum(masked), len(masked)),
        }
        if self.has_critic:
            sums |= {
                VALUE_LOSS.name: (0.05 + 0.2 * falls, 1.0),
                EXPLAINED_VARIANCE.name: (0.6 - 0.7 * falls, 1.0),
                CRITIC_GRAD_NORM.name: (0.3 + falls, 1.0),
                CRITIC_LEARNING_RATE.name: (5 * learning_rate, 1.0),
            }
        return StepReport(sums, scores)

    def _scores(self, sample: TrainingSample, version: int) -> TokenScores:
        moves = [
            self.noise.gauss(0, 1e-3 + 0.25 * (version - (born or 0)))
            for born, _ in sample.trajectory.sampled
        ]
        below, above = [move < -0.4 for move in moves], [move > 0.4 for move in moves]
        return TokenScores(
            [behavior + move for (_, behavior), move in zip(sample.trajectory.sampled, moves,
             strict=True)], below, above, [low or high for low, high in zip(below, above,
             strict=True)],
        )  # fmt: skip


@dataclass(frozen=True)
class Recorded:
    """A run's configuration and all that it reported."""

    config: Json
    events: tuple[Event, ...]

    @property
    def series(self) -> list[Json]:
        """As the API answers for metrics."""
        return canned_series.reported(self.events)

    def histogram(self, name: str) -> Json:
        """As the API answers for one histogram."""
        items, total = [], dict[str, int]()
        for event in self.events:
            if isinstance(event, HistogramLogged) and event.name == name:
                counts = {str(value): count for value, count in event.counts.items()}
                items.append({"step": event.step, "first_step": event.step, "counts": counts})
                for value, count in counts.items():
                    total[value] = total.get(value, 0) + count
        return {"cursor": "1", "items": items, "total": {"counts": total}}


def record(
    method: str, *, steps: int = 12, places: int = 24, seed: int = 1, most_tokens: int = 24
) -> Recorded:
    """Play a run of ``method`` to its end."""
    chance = Chance(seed, most_tokens=most_tokens)
    config = grpo_config(
        method=METHODS[method],
        rollout={"max_concurrent": places},
        budget={"max_steps": steps},
        evaluation={"num_tasks": 4, "every_steps": steps},
    )
    with tempfile.TemporaryDirectory() as folder:
        generators = [StreamingGenerator(chance) for _ in range(2)]
        context, sink = loop_context(config, generators, Path(folder))
        trainer = DriftingTrainer(chance, has_critic=method == "sao")
        with patch("workers.checkpoints.asyncio.to_thread", at_once):
            asyncio.run(PolicyGradientLoop(context, trainer).run())
    return Recorded(json.loads(config.model_dump_json()), tuple(sink.events))


def with_run(fake: FakeApi, recorded: Recorded, *, name: str = "", run_id: str = "r0rec0rd") -> str:
    """Let ``fake`` show a recorded run, and give its id."""
    steps = recorded.config["budget"]["max_steps"]
    title = name or f"{recorded.config['method']['name']}-recorded"
    fake.runs[run_id] = canned.run(
        run_id, title, "running", recorded.config, step=steps, cursor=steps
    )
    fake.series[run_id] = recorded.series
    fake.histograms[run_id] = recorded.histogram
    return run_id
