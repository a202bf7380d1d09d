"""Lock step waits for everyone who still plays, and for nobody else."""

import asyncio
import itertools
from collections.abc import Sequence

from benchmarks.lockstep import LockStep, as_rollout, play_in_lock_step
from tests.builders import trajectory
from workers.environments.base import Environment, Message, Observation
from workers.rollout import EpisodeLimits, EpisodeRequest

LIMITS = EpisodeLimits(
    max_turns=4, max_tokens_per_turn=2, max_length_tokens=50, tool_timeout_seconds=60
)


class PlainChat:
    """A message is one token, 7; a turn ends with 9."""

    stop_token_ids = (9,)

    def open(self, messages: Sequence[Message]) -> list[int]:
        return [7] * len(messages)

    def observe(self, sampled_ids: Sequence[int], messages: Sequence[Message]) -> list[int]:
        return [7] * len(messages)

    def text(self, sampled_ids: Sequence[int]) -> str:
        return "said"


class Turns:
    """An episode of so many turns."""

    def __init__(self, num_turns: int) -> None:
        self._left = num_turns

    async def start(self) -> tuple[Message, ...]:
        return (Message("user", "?"),)

    async def step(self, text: str) -> Observation:
        self._left -= 1
        await asyncio.sleep(0)
        if self._left:
            return Observation((Message("tool", "on"),))
        return Observation(reward=1.0, done=True, success=True)


def episode(number: int, num_turns: int) -> tuple[EpisodeRequest, Environment]:
    return EpisodeRequest(f"t{number}", f"p{number}", "train", number, 1.0), Turns(num_turns)


class Generate:
    """Answers a batch; keeps the prompts of every batch."""

    def __init__(self) -> None:
        self.batches: list[list[list[int]]] = []

    def __call__(self, prompts: list[list[int]]) -> list[list[int]]:
        self.batches.append(prompts)
        return [[5, 9, 9][: 2 + len(prompts) % 2] for _ in prompts]


async def test_a_turn_of_all_comes_before_the_next_one_and_who_is_over_is_not_waited_for():
    generate, ticks = Generate(), itertools.count()
    episodes = [episode(number, turns) for number, turns in enumerate([2, 1, 3])]
    played = await play_in_lock_step(
        episodes, PlainChat(), LIMITS, generate, lambda: float(next(ticks))
    )
    assert [len(batch) for batch in generate.batches] == [3, 2, 1]
    assert generate.batches[1] == [[7, 5, 9, 7]] * 2
    assert [each.trajectory_id for each in played] == ["t0", "t1", "t2"]
    assert [each.num_turns for each in played] == [2, 1, 3]
    assert all(each.success for each in played)


async def test_a_turn_is_cut_at_the_most_tokens_that_were_asked_for():
    step = LockStep(lambda prompts: [[1, 2, 3] for _ in prompts], 2)
    asked = [
        step.sample([0], max_tokens=most, temperature=1.0, stop_token_ids=[3]) for most in (3, 2)
    ]
    whole, cut = await asyncio.gather(*asked)
    assert (whole.token_ids, whole.finish) == ([1, 2, 3], "stop")
    assert (cut.token_ids, cut.finish) == ([1, 2], "length")


def test_a_rollout_is_parted_where_the_policy_begins_and_its_mask_leaves_out_what_tools_said():
    played = trajectory(versions=[0] * 6, mask=[0, 0, 1, 0, 1, 1], reward=0.5)
    assert as_rollout([played]) == {
        "prompt_ids": [[0, 1]],
        "completion_ids": [[2, 3, 4, 5]],
        "env_mask": [[1, 0, 1, 1]],
        "logprobs": None,
        "episode_reward": [0.5],
    }
