"""Episodes in lock step: all play a turn, all tools are waited for, all play the next turn.

::

    episode ─▶ sample ┐                                  ┌─▶ its tool (side by side) ─▶ sample ...
    episode ─▶ sample ┼─▶ all are here ─▶ one generate ─▶┼─▶ its tool ─▶ sample ...
    episode ─▶ sample ┘                                  └─▶ over: it is not waited for any more

This is how a trainer plays that generates with the model it trains, a batch at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lagoon.trajectory import Trajectory
from workers.chat import Chat
from workers.environments.base import Environment
from workers.rollout import EpisodeLimits, EpisodeRequest, Sampled, play

Generate = Callable[[list[list[int]]], list[list[int]]]
"""Continues each of a batch of prompts, up to a turn's most tokens, end of turn included."""


@dataclass(slots=True)
class _Turn:
    prompt: list[int]
    max_tokens: int
    answer: asyncio.Future[list[int]]


class LockStep:
    """An engine that answers when all episodes that still play have asked."""

    def __init__(self, generate: Generate, num_playing: int) -> None:
        self._generate, self._num_playing = generate, num_playing
        self._asked: list[_Turn] = []

    async def sample(
        self,
        token_ids: list[int],
        *,
        max_tokens: int,
        temperature: float,
        stop_token_ids: list[int],
    ) -> Sampled:
        """Wait for all others, then for one batch of them all.

        Temperature and stop tokens are ``generate``'s own, and so are the log-probabilities, which
        are not known here: they are given as 0.
        """
        answer: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
        self._asked.append(_Turn(list(token_ids), max_tokens, answer))
        self._go_if_complete()
        sampled = await answer
        is_ended = bool(sampled) and sampled[-1] in stop_token_ids
        count = len(sampled)
        return Sampled(sampled, [0.0] * count, [None] * count, "stop" if is_ended else "length")

    def leave(self) -> None:
        """An episode is over."""
        self._num_playing -= 1
        self._go_if_complete()

    def _go_if_complete(self) -> None:
        if not self._asked or len(self._asked) < self._num_playing:
            return
        turns, self._asked = self._asked, []
        sampled = self._generate([turn.prompt for turn in turns])
        for turn, ids in zip(turns, sampled, strict=True):
            turn.answer.set_result(ids[: turn.max_tokens])


async def play_in_lock_step(
    episodes: Sequence[tuple[EpisodeRequest, Environment]],
    chat: Chat,
    limits: EpisodeLimits,
    generate: Generate,
    clock: Callable[[], float],
) -> list[Trajectory]:
    """Play episodes, in their order, with the rules of a run's own episodes."""
    engine = LockStep(generate, len(episodes))

    async def one(request: EpisodeRequest, environment: Environment) -> Trajectory:
        try:
            return await play(request, engine, chat, environment, limits, clock)
        finally:
            engine.leave()

    return list(await asyncio.gather(*(one(*episode) for episode in episodes)))


def as_rollout(played: Sequence[Trajectory]) -> dict[str, Any]:
    """Trajectories as TRL wants what its ``rollout_func`` has played.

    Prompts and what came after, with a mask that is 1 where the policy sampled; ``episode_reward``
    is handed on to the reward function.
    """
    starts = [trajectory.action_mask.index(1) for trajectory in played]
    pairs = list(zip(played, starts, strict=True))
    return {
        "prompt_ids": [list(each.token_ids[:start]) for each, start in pairs],
        "completion_ids": [list(each.token_ids[start:]) for each, start in pairs],
        "env_mask": [list(each.action_mask[start:]) for each, start in pairs],
        "logprobs": None,  # TRL computes them where it needs any
        "episode_reward": [each.reward for each in played],
    }
