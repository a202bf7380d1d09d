"""One episode, tokens in and tokens out.

::

    environment.start ─▶ chat.open ─▶ ┌▶ engine.sample ─▶ environment.step ─┐ done ─▶ Trajectory
                                      └──────────── chat.observe ◀──────────┘

Sampled ids are kept as they were sampled; only the environment's words are tokenised.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from lagoon.trajectory import Split, Trajectory, Turn
from workers.environments.base import Environment, Message, Observation

if TYPE_CHECKING:
    from workers.chat import Chat


@dataclass(frozen=True, slots=True)
class Sampled:
    """One turn as the engine sampled it. All lists have the same length."""

    token_ids: list[int]
    logprobs: list[float]
    """Log-probabilities under the distribution the tokens were sampled from."""
    versions: list[int | None]
    finish: Literal["stop", "length"]
    num_cached_tokens: int = 0
    """Tokens of the prompt whose keys and values came from the engine's cache."""


class Engine(Protocol):
    """Whatever samples a continuation of token ids."""

    async def sample(
        self,
        token_ids: list[int],
        *,
        max_tokens: int,
        temperature: float,
        stop_token_ids: list[int],
    ) -> Sampled:
        """Continue ``token_ids`` until a stop token or ``max_tokens``."""
        ...


@dataclass(frozen=True, slots=True)
class EpisodeRequest:
    """An episode to play."""

    trajectory_id: str
    prompt_id: str
    split: Split
    index: int
    """Which task of the split."""
    temperature: float

    @classmethod
    def of_training(
        cls, position: int, member: int | str, index: int, temperature: float
    ) -> EpisodeRequest:
        """An episode of the training task ``index``, which stands at ``position`` of a run's order.

        Its name says which of the episodes of that position it is, and decides its luck.
        """
        return cls(
            trajectory_id=f"train/{position}/{member}",
            prompt_id=f"train/{index}",
            split="train",
            index=index,
            temperature=temperature,
        )

    @property
    def attempt(self) -> int:
        """What the environment draws its luck from: episodes of one task meet different weather,
        the same one whenever they are replayed."""
        return zlib.crc32(self.trajectory_id.encode())


@dataclass(frozen=True, slots=True)
class EpisodeFailure:
    """An episode whose environment raised: a fault of its code, not of a tool."""

    trajectory_id: str
    message: str
    traceback: str


@dataclass(frozen=True, slots=True)
class EpisodeLimits:
    """Where an episode is cut."""

    max_turns: int
    max_tokens_per_turn: int
    max_length_tokens: int
    tool_timeout_seconds: float


@dataclass(slots=True)
class _Transcript:
    """Token record of an episode while it is being played."""

    token_ids: list[int]
    action_mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int | None] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    tool_errors: int = 0
    environment_seconds: float = 0.0

    def __post_init__(self) -> None:
        given = len(self.token_ids)
        self.action_mask += [0] * given
        self.logprobs += [0.0] * given
        self.versions += [None] * given

    @property
    def info(self) -> dict[str, float]:
        """What a step's figures are made of."""
        return {
            "tool_errors": float(self.tool_errors),
            "environment_seconds": self.environment_seconds,
        }

    def add_sampled(self, sampled: Sampled) -> None:
        self.token_ids += sampled.token_ids
        self.action_mask += [1] * len(sampled.token_ids)
        self.logprobs += sampled.logprobs
        self.versions += sampled.versions

    def add_given(self, token_ids: list[int]) -> None:
        self.token_ids += token_ids
        self.action_mask += [0] * len(token_ids)
        self.logprobs += [0.0] * len(token_ids)
        self.versions += [None] * len(token_ids)

    def add_messages(self, messages: tuple[Message, ...], observation: Observation | None) -> None:
        wait = observation.wait_seconds if observation else 0.0
        error = observation.tool_error if observation else None
        self.turns += [Turn(message.role, message.text, wait, error) for message in messages]
        if error is not None:
            self.tool_errors += 1
            if not messages:  # an episode that ends with an error ends without a word
                self.turns.append(Turn("tool", "", wait, error))


async def play(
    request: EpisodeRequest,
    engine: Engine,
    chat: Chat,
    environment: Environment,
    limits: EpisodeLimits,
    clock: Callable[[], float],
) -> Trajectory:
    """Play one episode to its end or to a limit.

    ``completed_version`` is left at 0: the driver knows it. ``clock`` is for durations alone.
    """
    started_at = clock()
    opening = await environment.start()
    transcript = _Transcript(chat.open(opening))
    transcript.add_messages(opening, None)
    reward, success, truncated = 0.0, False, True
    for _ in range(limits.max_turns):
        room = limits.max_length_tokens - len(transcript.token_ids)
        if room <= 0:
            break
        turn_started = clock()
        sampled = await engine.sample(
            transcript.token_ids,
            max_tokens=min(limits.max_tokens_per_turn, room),
            temperature=request.temperature,
            stop_token_ids=chat.stop_token_ids,
        )
        transcript.add_sampled(sampled)
        text = chat.text(sampled.token_ids)
        transcript.turns.append(Turn("assistant", text, clock() - turn_started))
        asked_at = clock()
        observation = await _answer(environment, text, limits.tool_timeout_seconds)
        transcript.environment_seconds += clock() - asked_at
        if observation is None:
            transcript.add_messages((), _hung(limits.tool_timeout_seconds))
            break
        transcript.add_messages(observation.messages, observation)
        reward += observation.reward
        if observation.done:
            success, truncated = observation.success, False
            break
        transcript.add_given(chat.observe(sampled.token_ids, list(observation.messages)))
    return Trajectory(
        trajectory_id=request.trajectory_id,
        prompt_id=request.prompt_id,
        split=request.split,
        token_ids=tuple(transcript.token_ids),
        action_mask=tuple(transcript.action_mask),
        behavior_logprobs=tuple(transcript.logprobs),
        versions=tuple(transcript.versions),
        completed_version=0,
        reward=reward,
        success=success,
        turns=tuple(transcript.turns),
        truncated=truncated,
        started_at=started_at,
        finished_at=clock(),
        info=transcript.info,
    )


async def _answer(environment: Environment, text: str, seconds: float) -> Observation | None:
    """The environment's answer, or None when it takes longer than ``seconds``."""
    try:
        async with asyncio.timeout(seconds) as limit:
            return await environment.step(text)
    except TimeoutError:
        if limit.expired():
            return None
        raise  # an error of its own, of which the environment knows what it means


def _hung(seconds: float) -> Observation:
    return Observation(
        tool_error=f"no answer within {seconds:g} s: the episode was ended", wait_seconds=seconds
    )
