"""A generator that takes the place of another is told at which pace to play before it may."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from lagoon.controls import Change
from tests.workers.fakes import loop_context
from tests.workers.loops.invariants import UNFILTERED, overlapping
from tests.workers.streaming import Chance, StreamingGenerator, StreamingTrainer
from workers.loops.policy_gradient import PolicyGradientLoop
from workers.rollout import EpisodeRequest


class Slow(StreamingGenerator):
    """It hears late at which pace to play."""

    async def steer(self, places: int, *, is_paused: bool) -> None:
        for _ in range(50):
            await asyncio.sleep(0)
        await super().steer(places, is_paused=is_paused)

    @property
    def num_sampled(self) -> int:
        return sum(len(each.versions) for each in self.begun)


class Mortal(StreamingGenerator):
    """Its held-out episodes of version 2 take long, and it dies when it is told to."""

    async def submit(self, requests: Sequence[EpisodeRequest]) -> None:
        await super().submit(requests)
        for each in self.playing:
            if each.request.trajectory_id.startswith("heldout/2/"):
                each.num_tokens = 1000

    def die(self) -> None:
        self.is_dead = True
        self._something.set()


async def until(is_so: Callable[[], object]) -> None:
    """Let the loop get on until something is so, and then until nothing moves."""
    async with asyncio.timeout(30):
        while not is_so():
            await asyncio.sleep(0)
    for _ in range(300):
        await asyncio.sleep(0)


async def test_a_generator_that_is_replaced_during_a_pause_samples_nothing_before_its_end(
    tmp_path: Path,
) -> None:
    """The held-out episodes of version 2 went with the one before, and wait for it."""
    chance = Chance(3, most_tokens=12)
    first, others = Mortal(chance), list[Slow]()

    async def replacement(generator: int) -> Slow:
        others.append(Slow(chance))
        return others[-1]

    class Pausing(StreamingTrainer):
        async def save(self, folder: str) -> None:  # of version 2, while that is evaluated
            await super().save(folder)
            if len(self.batches) == 2:
                pause = Change(number=1, settings={"paused": True})
                context.controls.deliver([pause])

    context, _ = loop_context(overlapping(UNFILTERED), [first], tmp_path, replacement=replacement)
    running = asyncio.ensure_future(PolicyGradientLoop(context, Pausing(chance)).run())
    await until(lambda: context.progress.activity == "paused")
    assert first.is_paused
    assert any(each.request.split == "heldout" for each in first.playing)
    first.die()
    await until(lambda: others and others[0].begun)
    assert {each.request.split for each in others[0].begun} >= {"heldout"}
    assert others[0].is_paused
    assert others[0].num_sampled == 0
    context.controls.deliver([Change(number=2, settings={"paused": False})])
    assert await running == "finished"
    assert others[0].num_sampled > 0


@pytest.mark.parametrize("seed", range(4))
async def test_a_replacement_has_heard_of_a_change_before_it_is_given_an_episode(
    tmp_path: Path, seed: int
) -> None:
    chance = Chance(seed, death=0.03)
    told: list[bool] = []

    class Later(Slow):
        async def submit(self, requests: Sequence[EpisodeRequest]) -> None:
            told.append(("steer", 5, False) in self.calls)
            await super().submit(requests)

    async def replacement(generator: int) -> Slow:
        return Later(chance)

    context, _ = loop_context(
        overlapping(UNFILTERED, steps=12),
        [StreamingGenerator(chance) for _ in "ab"],
        tmp_path,
        replacement=replacement,
    )
    context.controls.in_force = (5, False)  # changed since the attempt began
    assert await PolicyGradientLoop(context, StreamingTrainer(chance)).run() == "finished"
    assert told
    assert all(told)
