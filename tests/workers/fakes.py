"""Explicit stand-ins at the loops' seams: generators that answer from a script, a trainer that
counts its steps, a sink that is a list."""

import asyncio
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lagoon.config import RunConfig
from lagoon.controls import Change
from lagoon.drift import TokenScores
from lagoon.events import Event, HistogramLogged, StepLogged
from lagoon.metrics import LEARNING_RATE, LOSS, Metric
from lagoon.points import Point
from lagoon.trajectory import TrainingSample, Trajectory
from workers.checkpoints import Checkpoints
from workers.generators import Generators, Replacement
from workers.handles import UpdateReport
from workers.loops.context import LoopContext, Progress
from workers.reporting import Reporter
from workers.resuming import FROM_THE_START, Restored, restored
from workers.rollout import EpisodeFailure, EpisodeRequest, Sampled
from workers.steering import Controls
from workers.step_report import StepReport


class ListSink:
    """Keeps events in memory."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def log(self, event: Event) -> None:
        self.events.append(event)

    def flush(self) -> None:
        pass

    def close(self) -> bool:
        return True

    def points(self, metric: Metric) -> list[tuple[int, Point]]:
        steps = [event for event in self.events if isinstance(event, StepLogged)]
        return [(e.step, p) for e in steps for p in e.points if p.name == metric.name]

    def values(self, metric: Metric) -> dict[int, float]:
        return {step: point.value for step, point in self.points(metric)}

    def histograms(self, metric: Metric) -> dict[int, dict[int, int]]:
        return {
            event.step: event.counts
            for event in self.events
            if isinstance(event, HistogramLogged) and event.name == metric.name
        }


def fake_logprobs(weights: Any, prompt: Sequence[int], count: int) -> list[float]:
    """What any fake answers that holds these weights."""
    key = zlib.crc32(repr((weights, tuple(prompt))).encode())
    return [float(score) for score in np.random.default_rng(key).uniform(-3, 0, count)]


class FakeGenerator:
    """Plays an episode by asking ``reward_of``; keeps a log of what it was told."""

    def __init__(self, reward_of: Callable[[EpisodeRequest, "FakeGenerator"], float]) -> None:
        self.version = 0
        self.perturbed_with: int | None = None
        self.calls: list[tuple[Any, ...]] = []
        self.given_up: list[str] = []
        self.checksum = "initial"
        self.weights: Any = 0
        self.is_paused = False
        self._reward_of = reward_of
        self._finished: asyncio.Queue[Trajectory | EpisodeFailure] = asyncio.Queue()

    async def submit(self, requests: Sequence[EpisodeRequest]) -> None:
        for request in requests:
            self.calls.append(("play", request.split, request.prompt_id, self.version))
            self._finished.put_nowait(self._play(request))

    def _play(self, request: EpisodeRequest) -> Trajectory | EpisodeFailure:
        try:
            reward = self._reward_of(request, self)
        except Exception as error:
            return EpisodeFailure(request.trajectory_id, str(error), "traceback")
        return Trajectory(
            trajectory_id=request.trajectory_id,
            prompt_id=request.prompt_id,
            split=request.split,
            token_ids=(1, 2, 3),
            action_mask=(0, 1, 1),
            behavior_logprobs=(0.0, -1.0, -1.0),
            versions=(None, self.version, self.version),
            completed_version=0,
            reward=reward,
            success=reward > 0,
        )

    async def collect(self) -> list[Trajectory | EpisodeFailure]:
        finished = [await self._finished.get()]
        while not self._finished.empty():
            finished.append(self._finished.get_nowait())
        return finished

    async def give_up(self, trajectory_ids: Sequence[str]) -> None:
        self.given_up += trajectory_ids

    async def openings(
        self, requests: Sequence[EpisodeRequest]
    ) -> list[list[int]] | EpisodeFailure:
        return [[1, 2, 3 + request.index % 1000] for request in requests]

    async def probe(self, prompts: Sequence[Sequence[int]], num_tokens: int) -> list[Sampled]:
        tokens, versions = [5] * num_tokens, [self.version] * num_tokens
        return [
            Sampled(tokens, fake_logprobs(self.weights, prompt, num_tokens), [*versions], "length")
            for prompt in prompts
        ]

    async def tools_waited_for(self) -> tuple[int, int]:
        return 0, 0

    async def steer(self, places: int, *, is_paused: bool) -> None:
        self.calls.append(("steer", places, is_paused))
        self.is_paused = is_paused

    async def publish(self, version: int, weights: Any) -> str:
        self.calls.append(("publish", version))
        self.version, self.weights = version, weights
        return f"sum-of-{weights}"

    async def perturb(self, seed: int, sigma: float, noise: str) -> None:
        self.calls.append(("perturb", seed, sigma))
        self.perturbed_with = seed

    async def update(
        self, version: int, seeds: Sequence[int], coefficients: Sequence[float], noise: str
    ) -> UpdateReport:
        self.calls.append(("update", version, tuple(seeds), tuple(coefficients)))
        self.version, self.perturbed_with = version, None
        self.checksum = str(hash((self.checksum, tuple(seeds), tuple(coefficients))))
        self.weights = self.checksum
        return UpdateReport(self.checksum, 0.5, 0.7, 100)

    async def save(self, folder: str) -> None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / "weights").write_text(self.checksum)


class FakeTrainer:
    """Counts steps and remembers what it was given."""

    def __init__(self) -> None:
        self.batches: list[list[TrainingSample]] = []
        self.learning_rates: list[float] = []
        self.saved: list[str] = []

    async def ready(self) -> None:
        """It was never not."""

    async def step(self, samples: Sequence[TrainingSample], learning_rate: float) -> StepReport:
        self.batches.append(list(samples))
        self.learning_rates.append(learning_rate)
        sums = {LOSS.name: (2.0, 4.0), LEARNING_RATE.name: (learning_rate, 1.0)}
        return StepReport(sums, tuple(TokenScores(_behavior(s.trajectory)) for s in samples))

    async def logprobs(
        self, samples: Sequence[TrainingSample], temperature: float | None = None
    ) -> list[list[float]]:
        return [self._score(sample.trajectory) for sample in samples]

    def _score(self, scored: Trajectory) -> list[float]:
        given = scored.action_mask.index(1)
        return fake_logprobs(len(self.batches), scored.token_ids[:given], scored.num_actions)

    async def weights(self) -> tuple[Any, str]:
        return len(self.batches), f"sum-of-{len(self.batches)}"

    async def save(self, folder: str) -> None:
        self.saved.append(folder)
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / "weights").write_text(str(len(self.batches)))


def _behavior(played: Trajectory) -> list[float]:
    """What its tokens were sampled with: the scores of a trainer that differs from no generator."""
    return [logprob for _, logprob in played.sampled]


async def at_once(function: Callable[..., Any], *args: Any, **named: Any) -> Any:
    """In the place of a thread: a kill ends one with its process, a test would leave it running."""
    return function(*args, **named)


class Ticks:
    """A clock that moves one second with every reading."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def loop_context(
    config: RunConfig,
    generators: Sequence[FakeGenerator],
    folder: Path,
    begins: Restored | None = None,
    replacement: Replacement | None = None,
    changes: Sequence[Change] = (),
) -> tuple[LoopContext, ListSink]:
    """A context around fakes; ``changes`` were made to the run before."""
    sink, ticks = ListSink(), Ticks()
    begins = begins or restored(config, FROM_THE_START)
    progress = Progress()
    progress.begin(begins.state, begins.heldout_success)
    controls = Controls(config, changes, stopwatch=ticks)
    context = LoopContext(
        config=config,
        controls=controls,
        generators=Generators(generators, lambda: progress.version, replacement=replacement),
        reporter=Reporter(sink, ticks),
        progress=progress,
        stop=asyncio.Event(),
        clock=ticks,
        stopwatch=controls.stopwatch,
        num_train_tasks=None,
        heldout=range(config.evaluation.num_tasks),
        checkpoints=Checkpoints(folder, config, sink, ticks, begins.kept),
        begins=begins.state,
    )
    return context, sink
