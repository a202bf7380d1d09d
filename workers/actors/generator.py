"""The generator: a vLLM engine, and the episodes that are played on it.

A plain class that a test can use without Ray; the driver wraps it as an async actor.
"""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lagoon.config import RunConfig
from lagoon.evolution import NoiseKey
from lagoon.trajectory import Split, Trajectory
from workers.actors.episodes import Episodes, ToolWatch
from workers.chat import Chat
from workers.engine import EngineFailed, VLLMEngine
from workers.engine_settings import engine_settings
from workers.environments import make_environment
from workers.environments.base import Environment
from workers.handles import UpdateReport
from workers.payload import Weights
from workers.rollout import EpisodeFailure, EpisodeLimits, EpisodeRequest, Sampled, play

logger = logging.getLogger(__name__)


class GeneratorActor:
    """Plays episodes with the newest weights it was given."""

    def __init__(
        self,
        model_folder: str,
        config: dict[str, Any],
        threads: int,
        index: int = 0,
        checkpoint: str | None = None,
        version: int = 0,
        environments: Callable[[Any, Split, int, int], Environment] = make_environment,
    ) -> None:
        self._origin = Path(model_folder)
        self._model_folder, self._version = Path(checkpoint or model_folder), version
        self._config = RunConfig.stored(config)
        self._settings = engine_settings(self._config, threads=threads, index=index)
        self._environments = environments
        self._tools = ToolWatch()
        environment = self._config.environment
        self._limits = EpisodeLimits(
            max_turns=environment.max_turns,
            max_tokens_per_turn=environment.max_tokens_per_turn,
            max_length_tokens=self._config.model.max_length_tokens,
            tool_timeout_seconds=self._config.rollout.tool_timeout_seconds,
        )

    async def prepare(self) -> None:
        """Import what the engine needs, which takes long, and nothing else."""
        VLLMEngine.prepare(self._settings)

    async def ready(self) -> None:
        """Load the tokenizer and start the engine; raises what went wrong."""
        from transformers import AutoTokenizer  # noqa: PLC0415  slow; the driver does not need it

        started = time.monotonic()
        tokenizer = AutoTokenizer.from_pretrained(self._model_folder, local_files_only=True)
        self._chat = Chat(tokenizer)
        self._engine = await VLLMEngine.start(
            self._model_folder, self._settings, self._version, self._origin
        )
        self._episodes = Episodes(
            self._play, self._engine.check, EngineFailed, self._settings.max_concurrent
        )
        logger.info("engine ready after %.1f s", time.monotonic() - started)

    async def submit(self, requests: Sequence[EpisodeRequest]) -> None:
        """Start episodes."""
        self._episodes.submit(requests)

    async def collect(self) -> list[Trajectory | EpisodeFailure]:
        """Wait for at least one finished episode, and return all finished ones."""
        return await self._episodes.collect()

    async def give_up(self, trajectory_ids: Sequence[str]) -> None:
        """End episodes that nobody waits for."""
        self._episodes.give_up(trajectory_ids)

    async def openings(
        self, requests: Sequence[EpisodeRequest]
    ) -> list[list[int]] | EpisodeFailure:
        """The prompts that episodes begin with. Nothing is sampled."""
        found = []
        for request in requests:
            try:
                found.append(self._chat.open(await self._environment(request).start()))
            except Exception as error:  # an environment's bug must reach the driver as such
                message = f"{type(error).__name__}: {error}"
                return EpisodeFailure(request.trajectory_id, message, traceback.format_exc())
        return found

    async def probe(self, prompts: Sequence[Sequence[int]], num_tokens: int) -> list[Sampled]:
        """The greedy continuations of prompts."""
        sampled = (
            self._engine.sample(
                list(prompt), max_tokens=num_tokens, temperature=0.0, stop_token_ids=[]
            )
            for prompt in prompts
        )
        return list(await asyncio.gather(*sampled))

    async def tools_waited_for(self) -> tuple[int, int]:
        """Episodes that wait for a tool at this moment, and all in flight."""
        return self._tools.waiting, self._episodes.num_playing

    async def steer(self, places: int, *, is_paused: bool) -> None:
        """Play at most ``places`` episodes at once; while paused sample nothing."""
        self._episodes.resize(places)
        await self._engine.hold(is_paused=is_paused)

    async def publish(self, version: int, weights: Weights) -> str:
        """Load published weights; returns the checksum of what the engine received."""
        return await self._engine.publish(version, weights)

    async def perturb(self, seed: int, sigma: float, noise: NoiseKey) -> None:
        """Load the master weights plus noise."""
        await self._engine.perturb(seed, sigma, noise)

    async def update(
        self, version: int, seeds: Sequence[int], coefficients: Sequence[float], noise: NoiseKey
    ) -> UpdateReport:
        """Add a weighted sum of noise to the master weights and load them as ``version``."""
        return await self._engine.update(version, seeds, coefficients, noise)

    async def save(self, folder: str) -> None:
        """Write the master weights as a Hugging Face folder."""
        await self._engine.save(Path(folder))

    def shutdown(self) -> None:
        """End the engine process."""
        self._engine.shutdown()

    def _environment(self, request: EpisodeRequest) -> Environment:
        return self._environments(
            self._config.environment, request.split, request.index, request.attempt
        )

    async def _play(self, request: EpisodeRequest) -> Trajectory:
        watched = self._tools.over(self._environment(request))
        return await play(request, self._engine, self._chat, watched, self._limits, time.monotonic)
