"""Tokens per second of a run's generators, beside bare vLLM on the requests they have just made.

::

    tasks ─▶ Generators ─▶ Ray actor ─▶ engine ─▶ tokens/s ┐
                 │ trajectories                            ├▶ ratio
                 └─▶ turns ─▶ bare vLLM ─▶ tokens/s ───────┘
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import ray

from benchmarks.bare import Bare, bare_engine, turns
from benchmarks.frame import progress
from lagoon.config import RunConfig
from lagoon.trajectory import Trajectory
from workers import cluster
from workers.engine_settings import engine_settings
from workers.generators import Generators
from workers.loops.context import supervised
from workers.rollout import EpisodeRequest

GROUP_SIZE = 8


@dataclass(frozen=True, slots=True)
class Compared:
    """One repetition: the same requests on all sides."""

    num_tokens: int
    generator_seconds: float
    bare_seconds: tuple[float, ...]
    """Of each bare engine: the one with the run's scheduler, then the one with vLLM's own."""

    @property
    def ratios(self) -> tuple[float, ...]:
        """Tokens/s of the generators over those of each bare engine."""
        return tuple(seconds / self.generator_seconds for seconds in self.bare_seconds)


def compare(
    config: RunConfig, model_folder: Path, *, num_episodes: int, repetitions: int, stock: bool
) -> list[Compared]:
    """Start the engines, warm them up, then measure them in turn, one working at a time.

    ``stock`` adds bare vLLM with its own scheduler.
    """
    os.environ.pop("RAY_ADDRESS", None)  # all sides on this machine
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    threads = max(1, int(config.resources.cpus_per_generator))
    settings = engine_settings(config, threads=threads, index=0)
    with ExitStack() as engines:
        bare = [
            engines.enter_context(bare_engine(model_folder, settings, stock_scheduler=is_stock))
            for is_stock in ((False, True) if stock else (False,))
        ]
        cluster.connect()
        engines.callback(ray.shutdown)
        comparison = _Comparison(config, model_folder, bare, num_episodes)
        return asyncio.run(comparison.run(repetitions))


class _Comparison:
    """All sides, and the position in the order of tasks."""

    def __init__(
        self, config: RunConfig, model_folder: Path, bare: Sequence[Bare], num_episodes: int
    ) -> None:
        assert config.rollout.temperature is not None  # resolved at validation
        self._temperature = config.rollout.temperature
        self._bare, self._num_episodes = bare, num_episodes
        self._handles = cluster.start_generators(config, model_folder)
        self._generators = Generators(self._handles, lambda: 0)
        self._generators.trust(range(len(self._handles)))  # nothing is published here
        self._position = 0

    async def run(self, repetitions: int) -> list[Compared]:
        await cluster.all_started(self._handles, None)
        for engine in self._bare:
            engine.wait_ready()
        pumps = [self._generators.pump(index) for index in range(len(self._handles))]
        return await supervised(self._measure(repetitions), pumps)

    async def _measure(self, repetitions: int) -> list[Compared]:
        await self._once(max(GROUP_SIZE, self._num_episodes // 4))  # warm-up
        found = []
        for number in range(1, repetitions + 1):
            compared = await self._once(self._num_episodes)
            shown = ", ".join(f"{ratio:.3f}" for ratio in compared.ratios)
            progress(f"throughput {number} of {repetitions}: {shown} of bare vLLM")
            found.append(compared)
        return found

    async def _once(self, num_episodes: int) -> Compared:
        groups = self._groups(num_episodes)
        started = time.perf_counter()
        played = await asyncio.gather(*map(self._generators.play, groups))
        seconds = time.perf_counter() - started
        trajectories = [trajectory for group in played for trajectory in group]
        num_tokens = sum(trajectory.num_actions for trajectory in trajectories)
        bare = [await self._replay(engine, trajectories, num_tokens) for engine in self._bare]
        return Compared(num_tokens, seconds, tuple(bare))

    async def _replay(
        self, engine: Bare, trajectories: Sequence[Trajectory], num_tokens: int
    ) -> float:
        """Seconds that a bare engine takes; refuses to compare with other work."""
        episodes = [turns(trajectory) for trajectory in trajectories]
        replayed = await asyncio.to_thread(engine.replay, episodes, self._temperature)
        if replayed.num_tokens != num_tokens:
            raise RuntimeError(
                f"bare vLLM sampled {replayed.num_tokens} tokens where {num_tokens} were asked for"
            )
        return replayed.seconds

    def _groups(self, num_episodes: int) -> list[list[EpisodeRequest]]:
        """Groups as a run plays them, each of a task that was not played before."""
        first = self._position
        self._position += -(-num_episodes // GROUP_SIZE)
        return [
            [
                EpisodeRequest.of_training(index, member, index, self._temperature)
                for member in range(GROUP_SIZE)
            ]
            for index in range(first, self._position)
        ]
