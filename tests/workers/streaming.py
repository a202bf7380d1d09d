"""Generators that sample token by token, while their weights change and their processes die.

Everything happens in an order that a seed decides: nothing waits for a clock.
"""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from lagoon.config import RunConfig
from lagoon.trajectory import TrainingSample, Trajectory
from tests.workers.fakes import FakeGenerator, FakeTrainer, ListSink, at_once, loop_context
from workers.loops.context import Outcome
from workers.loops.policy_gradient import PolicyGradientLoop
from workers.resuming import FROM_THE_START, Restored, restored
from workers.rollout import EpisodeRequest, Sampled
from workers.step_report import StepReport


class Died(RuntimeError):
    """The process of a generator is gone."""

    is_transient = True


@dataclass
class Chance:
    """How things go: all of it follows from the seed."""

    seed: int
    death: float = 0.0
    """Probability that a call of a generator is its last."""
    fault: float = 0.0
    """Probability that the payload of a version does not reach one of the engines at first."""
    most_tokens: int = 6
    deaths_left: int = 20
    order: random.Random = field(init=False)
    faulty: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.order = random.Random(self.seed)

    def happens(self, probability: float) -> bool:
        return probability > 0 and self.order.random() < probability

    async def pause(self) -> None:
        for _ in range(self.order.randrange(4)):
            await asyncio.sleep(0)


@dataclass
class Playing:
    """An episode in flight."""

    request: EpisodeRequest
    num_tokens: int
    versions: list[int] = field(default_factory=list)
    weights: list[Any] = field(default_factory=list)
    """With which each token was sampled, whatever its label says."""


class StreamingGenerator(FakeGenerator):
    """Samples the tokens of all its episodes side by side, each with the weights of the moment."""

    def __init__(self, chance: Chance, version: int = 0) -> None:
        super().__init__(lambda request, _: 0.0)
        self.version = self.weights = version
        self.chance = chance
        self.has_begun = False
        """It was given an episode: before, its death costs the attempt."""
        self.playing: list[Playing] = []
        self.begun: list[Playing] = []
        """All that it was ever given."""
        self.sampled_with: dict[str, list[Any]] = {}
        self.is_dead = False
        self._something = asyncio.Event()

    def live(self) -> None:
        chance = self.chance
        if (
            not self.is_dead
            and self.has_begun
            and chance.deaths_left
            and chance.happens(chance.death)
        ):
            chance.deaths_left -= 1
            self.is_dead = True
        if self.is_dead:
            self._something.set()
            raise Died("killed")

    async def submit(self, requests: Sequence[EpisodeRequest]) -> None:
        await self.chance.pause()
        self.has_begun = True
        self.live()
        for request in requests:
            self.calls.append(("play", request.split, request.prompt_id, self.version))
            length = self.chance.order.randint(1, self.chance.most_tokens)
            self.playing.append(Playing(request, length))
            self.begun.append(self.playing[-1])
        self._something.set()

    async def collect(self) -> list[Any]:
        while True:
            await self.chance.pause()
            while (self.is_paused or not self.playing) and not self.is_dead:
                self._something.clear()
                await self._something.wait()
            self.live()
            for episode in self.playing:
                if self.chance.happens(0.5):
                    episode.versions.append(self.version)
                    episode.weights.append(self.weights)
            over = [each for each in self.playing if len(each.versions) >= each.num_tokens]
            self.playing = [each for each in self.playing if each not in over]
            if over:
                return [self._finished_one(each) for each in over]

    def _finished_one(self, episode: Playing) -> Trajectory:
        self.sampled_with[episode.request.trajectory_id] = episode.weights
        count = len(episode.versions)
        reward = float(self.chance.order.random() < 0.5)
        return Trajectory(
            trajectory_id=episode.request.trajectory_id,
            prompt_id=episode.request.prompt_id,
            split=episode.request.split,
            token_ids=(1, *range(count)),
            action_mask=(0, *[1] * count),
            behavior_logprobs=(0.0, *[-1.0] * count),
            versions=(None, *episode.versions),
            completed_version=0,
            reward=reward,
            success=reward > 0,
        )

    async def give_up(self, trajectory_ids: Sequence[str]) -> None:
        await self.chance.pause()
        self.live()
        await super().give_up(trajectory_ids)
        names = set(trajectory_ids)
        self.playing = [each for each in self.playing if each.request.trajectory_id not in names]

    async def steer(self, places: int, *, is_paused: bool) -> None:
        await self.chance.pause()
        self.live()
        await super().steer(places, is_paused=is_paused)
        self._something.set()

    async def probe(self, prompts: Sequence[Sequence[int]], num_tokens: int) -> list[Sampled]:
        await self.chance.pause()
        self.live()
        return await super().probe(prompts, num_tokens)

    async def publish(self, version: int, weights: Any) -> str:
        await self.chance.pause()
        self.live()
        self.calls.append(("publish", version))
        self.version = version
        # Its label and its checksum are right, whatever became of the payload.
        if version in self.chance.faulty or not self.chance.happens(self.chance.fault):
            self.weights = weights
        else:
            self.chance.faulty.add(version)
        return f"sum-of-{weights}"


class StreamingTrainer(FakeTrainer):
    """Takes its time, and remembers what it trained on at which version."""

    def __init__(self, chance: Chance, version: int = 0) -> None:
        super().__init__()
        self.batches = [[] for _ in range(version)]
        self._chance = chance

    async def step(self, samples: Sequence[TrainingSample], learning_rate: float) -> StepReport:
        for _ in range(3):
            await self._chance.pause()
        return await super().step(samples, learning_rate)

    def lags(self) -> list[int]:
        """By how many versions each trained token lagged."""
        return [
            version - sampled
            for version, batch in enumerate(self.batches)
            for sample in batch
            for sampled in sample.trajectory.versions
            if sampled is not None
        ]

    def positions(self) -> list[list[int]]:
        """The prompts of each batch."""
        return [
            sorted({int(s.trajectory.trajectory_id.split("/")[1]) for s in batch})
            for batch in self.batches
        ]


@dataclass
class Ran:
    """A run that has ended."""

    outcome: Outcome
    sink: ListSink
    trainer: StreamingTrainer
    generators: list[StreamingGenerator]
    """Those that died included."""
    loop: PolicyGradientLoop


async def ran(
    config: RunConfig,
    folder: Path,
    chance: Chance,
    num_generators: int = 2,
    begins: Restored | None = None,
) -> Ran:
    """A run to its end; whoever dies is replaced."""
    begins = begins or restored(config, FROM_THE_START)
    version = begins.state.version
    generators = [StreamingGenerator(chance, version) for _ in range(num_generators)]
    first = list(generators)

    async def replacement(generator: int) -> StreamingGenerator:
        await chance.pause()
        generators.append(StreamingGenerator(chance, version))
        return generators[-1]

    trainer = StreamingTrainer(chance, version)
    context, sink = loop_context(config, first, folder, begins, replacement)
    loop = PolicyGradientLoop(context, trainer)
    with patch("workers.checkpoints.asyncio.to_thread", at_once):
        async with asyncio.timeout(60):  # a run that stands still must not take the suite with it
            outcome = await loop.run()
    return Ran(outcome, sink, trainer, generators, loop)
