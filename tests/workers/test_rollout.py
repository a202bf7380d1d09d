import asyncio
from dataclasses import replace
from itertools import count
from random import Random

import pytest

from lagoon.environments.calculator import Calculator
from lagoon.environments.sudoku4 import Sudoku4
from lagoon.trajectory import Trajectory, Turn
from workers.environments.base import Environment, Message, Observation
from workers.environments.calculator import CalculatorEnvironment
from workers.environments.sudoku4 import Sudoku4Environment
from workers.rollout import EpisodeLimits, EpisodeRequest, Sampled, play

REQUEST = EpisodeRequest("t1", "p1", "train", 0, 1.0)
SHORT_SUM = Calculator(num_operations=1, max_turns=2, mean_wait_seconds=0)
SHORT_PUZZLE = Sudoku4(num_blanks=1, max_turns=1)


class ScriptedEngine:
    """Samples two given tokens a turn; remembers its prompts."""

    def __init__(self) -> None:
        self.prompts: list[list[int]] = []
        self.max_tokens: list[int] = []

    async def sample(
        self,
        token_ids: list[int],
        *,
        max_tokens: int,
        temperature: float,
        stop_token_ids: list[int],
    ) -> Sampled:
        self.prompts.append(list(token_ids))
        self.max_tokens.append(max_tokens)
        turn = len(self.prompts)
        return Sampled([50 + turn, 9], [-0.5, -0.25], [turn, turn], "stop")


class PlainChat:
    """One token a message."""

    def __init__(self) -> None:
        self.stop_token_ids = [9]

    def open(self, messages: tuple[Message, ...]) -> list[int]:
        return [1] * len(messages)

    def observe(self, sampled_ids: list[int], messages: list[Message]) -> list[int]:
        return [2] * len(messages)

    def text(self, sampled_ids: list[int]) -> str:
        return f"turn {sampled_ids[0]}"


class ThreeTurns:
    """Ends with a reward at the third turn; its tool fails at the second."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    async def start(self) -> tuple[Message, ...]:
        return (Message("system", "s"), Message("user", "u"))

    async def step(self, text: str) -> Observation:
        self.heard.append(text)
        if len(self.heard) == 3:
            return Observation(reward=1.0, done=True, success=True)
        error = "division by zero" if len(self.heard) == 2 else None
        return Observation((Message("tool", "r"),), tool_error=error, wait_seconds=0.5)


async def played_with(environment: Environment) -> Trajectory:
    """An episode whose model says one token a turn, by a clock that stands still."""
    limits = EpisodeLimits(5, 8, 100, 60.0)
    return await play(REQUEST, ScriptedEngine(), PlainChat(), environment, limits, lambda: 0.0)


async def test_sampled_tokens_are_kept_and_the_environments_words_are_masked() -> None:
    engine, environment = ScriptedEngine(), ThreeTurns()
    ticks = count()
    played = await play(
        REQUEST,
        engine,
        PlainChat(),
        environment,
        EpisodeLimits(5, 8, 100, 60.0),
        lambda: next(ticks),  # type: ignore[arg-type]
    )
    assert played.token_ids == (1, 1, 51, 9, 2, 52, 9, 2, 53, 9)
    assert played.action_mask == (0, 0, 1, 1, 0, 1, 1, 0, 1, 1)
    assert played.versions == (None, None, 1, 1, None, 2, 2, None, 3, 3)
    assert played.behavior_logprobs[2:4] == (-0.5, -0.25)
    assert engine.prompts[1] == [1, 1, 51, 9, 2]
    assert environment.heard == ["turn 51", "turn 52", "turn 53"]
    assert (played.reward, played.success, played.truncated) == (1.0, True, False)


async def test_a_failed_tool_is_data_on_the_trajectory() -> None:
    played = await played_with(ThreeTurns())
    tool_turns = [turn for turn in played.turns if turn.role == "tool"]
    assert [turn.error for turn in tool_turns] == [None, "division by zero"]
    assert [turn.seconds for turn in tool_turns] == [0.5, 0.5]
    assert played.info["tool_errors"] == 1.0


async def test_an_episodes_wait_for_its_environment_is_measured_by_the_clock() -> None:
    ticks = count()
    limits = EpisodeLimits(5, 8, 100, 60.0)
    played = await play(
        REQUEST, ScriptedEngine(), PlainChat(), ThreeTurns(), limits, lambda: float(next(ticks))
    )
    # The clock moves a second with each reading: one for each of the environment's three answers.
    assert played.info["environment_seconds"] == 3.0
    assert played.finished_at - played.started_at > 3.0


class EndsInError:
    """Refuses the first turn, and with it the episode, without a message."""

    async def start(self) -> tuple[Message, ...]:
        return (Message("user", "u"),)

    async def step(self, text: str) -> Observation:
        return Observation(done=True, tool_error="not a move", wait_seconds=0.5)


async def test_an_error_that_ends_the_episode_is_on_the_trajectory_and_not_in_its_tokens() -> None:
    played = await played_with(EndsInError())
    assert played.turns[-1] == Turn("tool", "", 0.5, "not a move")
    assert [turn.role for turn in played.turns] == ["user", "assistant", "tool"]
    assert played.info["tool_errors"] == 1.0
    assert (played.token_ids, played.action_mask) == ((1, 51, 9), (0, 1, 1))
    assert not played.truncated


class Hangs(ThreeTurns):
    """Never answers its second turn."""

    async def step(self, text: str) -> Observation:
        if self.heard:
            await asyncio.Event().wait()
        return replace(await super().step(text), reward=0.25)


async def test_a_tool_that_hangs_costs_its_episode_and_is_data_on_it() -> None:
    limits = EpisodeLimits(5, 8, 100, 0.01)
    played = await play(REQUEST, ScriptedEngine(), PlainChat(), Hangs(), limits, lambda: 0.0)
    assert played.turns[-1].error == "no answer within 0.01 s: the episode was ended"
    assert played.info["tool_errors"] == 1.0
    assert (played.reward, played.success, played.truncated) == (0.25, False, True)
    assert played.token_ids == (1, 1, 51, 9, 2, 52, 9)


async def test_a_timeout_of_the_environments_own_is_a_fault_of_its_code() -> None:
    class TimesOut(ThreeTurns):
        async def step(self, text: str) -> Observation:
            raise TimeoutError("the database of questions")

    with pytest.raises(TimeoutError, match="database of questions"):
        await played_with(TimesOut())


@pytest.mark.parametrize(
    ("world", "num_turns"),
    [
        (CalculatorEnvironment(SHORT_SUM, "7+2", Random(0)), 2),
        (Sudoku4Environment(SHORT_PUZZLE, (1, 2, 3, 4, 3, 4, 1, 2, 2, 1, 4, 3, 4, 3, 0, 0)), 1),
    ],
)
async def test_a_turn_limit_is_a_truncation_in_every_environment(
    world: Environment, num_turns: int
) -> None:
    class Chat(PlainChat):
        def text(self, sampled_ids: list[int]) -> str:
            return "p1"  # a right move of the puzzle; for the calculator, no answer

    played = await play(
        REQUEST,
        ScriptedEngine(),
        Chat(),
        world,
        EpisodeLimits(num_turns, 8, 100, 60.0),
        float,  # type: ignore[arg-type]
    )
    assert played.num_turns == num_turns
    assert played.truncated
    assert not played.success


async def test_an_episode_is_cut_at_its_turns_and_at_its_length() -> None:
    short = await play(
        REQUEST,
        ScriptedEngine(),
        PlainChat(),
        ThreeTurns(),
        EpisodeLimits(2, 8, 100, 60.0),
        float,  # type: ignore[arg-type]
    )
    assert short.truncated
    assert short.num_turns == 2
    engine = ScriptedEngine()
    full = await play(
        REQUEST,
        engine,
        PlainChat(),
        ThreeTurns(),
        EpisodeLimits(5, 8, 5, 60.0),
        float,  # type: ignore[arg-type]
    )
    assert full.truncated
    assert engine.max_tokens == [3]
