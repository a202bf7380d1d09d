"""What is replayed is what was played: the same prompts, lengths and order."""

import asyncio
from dataclasses import replace

from benchmarks.bare import Replayed, TurnRequest, replay, turns
from lagoon.trajectory import Turn
from tests.builders import trajectory


def test_the_turns_of_an_episode_are_its_prompts_and_how_much_was_sampled():
    played = trajectory(versions=[0] * 7, mask=[0, 0, 1, 1, 0, 1, 0])
    assert turns(played) == (TurnRequest((0, 1), 2), TurnRequest((0, 1, 2, 3, 4), 1))


def test_an_episode_that_ends_with_a_sampled_token_loses_none():
    played = trajectory(versions=[0] * 4, mask=[0, 1, 1, 1])
    assert sum(turn.num_tokens for turn in turns(played)) == played.num_actions == 3


def test_the_wait_for_a_tool_belongs_to_the_turn_that_called_it():
    played = trajectory(versions=[0] * 6, mask=[0, 1, 0, 1, 0, 1])
    said = [("user", 0.0), ("assistant", 9.0), ("tool", 2.0), ("tool", 2.0), ("assistant", 9.0)]
    told = replace(
        played,
        turns=tuple(
            Turn(role, "", seconds) for role, seconds in [*said, ("tool", 3.0), ("assistant", 9.0)]
        ),
    )
    assert [turn.wait_seconds for turn in turns(told)] == [2.0, 3.0, 0.0]


async def test_a_replay_waits_for_tools_as_long_as_the_episode_did():
    slept: list[float] = []

    async def ask(request: TurnRequest) -> int:
        return request.num_tokens

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    episode = (TurnRequest((1,), 2, 0.5), TurnRequest((1, 1), 3))
    assert (await replay(ask, [episode], 1, lambda: 0.0, sleep)).num_tokens == 5
    assert slept == [0.5]


class Asked:
    """Answers when told to, and remembers the order."""

    def __init__(self) -> None:
        self.asked: list[TurnRequest] = []
        self.waiting: list[asyncio.Future[int]] = []

    async def ask(self, request: TurnRequest) -> int:
        self.asked.append(request)
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.waiting.append(future)
        return await future

    async def answer(self) -> None:
        waiting, self.waiting = self.waiting, []
        for future, request in zip(waiting, self.asked[-len(waiting) :], strict=True):
            future.set_result(request.num_tokens)
        for _ in range(5):  # a turn of the loop for whoever the answer lets go on
            await asyncio.sleep(0)


async def test_a_replay_keeps_the_order_of_turns_and_so_many_episodes_at_once():
    first = (TurnRequest((1,), 2), TurnRequest((1, 1), 3))
    second, third = (TurnRequest((2,), 1),), (TurnRequest((3,), 4),)
    asked, moments = Asked(), iter([10.0, 12.5])
    work = asyncio.ensure_future(
        replay(asked.ask, [first, second, third], 2, lambda: next(moments))
    )
    for _ in range(5):
        await asyncio.sleep(0)
    assert asked.asked == [first[0], second[0]]
    await asked.answer()
    assert set(asked.asked[2:]) == {first[1], third[0]}
    await asked.answer()
    assert await work == Replayed(num_tokens=10, seconds=2.5)
