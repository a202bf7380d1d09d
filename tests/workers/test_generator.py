"""Episodes without an engine; the engine's own tests are in ``test_engine.py``."""

import asyncio
from collections.abc import Callable

import pytest

from lagoon.trajectory import Trajectory
from tests.builders import trajectory
from workers.actors.episodes import Episodes
from workers.rollout import EpisodeFailure, EpisodeRequest


class Died(Exception):
    pass


def request(name: str) -> EpisodeRequest:
    return EpisodeRequest(name, "p", "train", 0, 1.0)


def episodes(
    play: Callable, max_concurrent: int = 8, check: Callable[[], None] = lambda: None
) -> Episodes:
    return Episodes(play, check, Died, max_concurrent)


class Stage:
    """Episodes that end when the test says so."""

    def __init__(self) -> None:
        self.open: dict[str, asyncio.Future[None]] = {}

    async def play(self, request: EpisodeRequest) -> Trajectory:
        self.open[request.trajectory_id] = asyncio.get_running_loop().create_future()
        await self.open[request.trajectory_id]
        return trajectory(trajectory_id=request.trajectory_id)

    def end(self, name: str, error: Exception | None = None) -> None:
        future = self.open.pop(name)
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)


async def settled() -> None:
    """Let every task run until it waits."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_collect_waits_for_one_and_returns_all_that_are_finished() -> None:
    stage = Stage()
    ours = episodes(stage.play)
    ours.submit([request("a"), request("b"), request("c")])
    collecting = asyncio.create_task(ours.collect())
    await settled()
    assert not collecting.done()
    stage.end("b")
    stage.end("c")
    assert {item.trajectory_id for item in await collecting} == {"b", "c"}
    stage.end("a")
    assert [item.trajectory_id for item in await ours.collect()] == ["a"]


async def test_no_more_than_its_share_is_played_at_once() -> None:
    stage = Stage()
    ours = episodes(stage.play, max_concurrent=2)
    ours.submit([request(name) for name in "abcd"])
    await settled()
    assert list(stage.open) == ["a", "b"]
    stage.end("a")
    await settled()
    assert list(stage.open) == ["b", "c"]
    await ours.cancel()


async def test_an_environment_that_raises_is_reported_with_its_traceback() -> None:
    stage = Stage()
    ours = episodes(stage.play)
    ours.submit([request("a")])
    await settled()
    stage.end("a", KeyError("board"))
    (failure,) = await ours.collect()
    assert isinstance(failure, EpisodeFailure)
    assert failure.message == "KeyError: 'board'"
    assert "in play" in failure.traceback


async def test_an_engine_that_fails_in_an_episode_fails_the_collecting() -> None:
    stage = Stage()
    ours = episodes(stage.play)
    ours.submit([request("a"), request("b")])
    await settled()
    stage.end("a", Died("gone"))
    with pytest.raises(Died, match="gone"):
        await ours.collect()
    await ours.cancel()


async def test_an_engine_that_dies_while_every_episode_waits_is_noticed() -> None:
    stage = Stage()
    looked = 0

    def check() -> None:
        nonlocal looked
        looked += 1
        if looked == 2:
            raise Died("gone")

    ours = episodes(stage.play, check=check)
    ours.submit([request("a")])
    with pytest.raises(Died):
        await ours.collect()
    await ours.cancel()


async def test_cancelled_episodes_never_come_back() -> None:
    stage = Stage()
    ours = episodes(stage.play, max_concurrent=1)
    ours.submit([request("a"), request("b")])
    await settled()
    await ours.cancel()
    assert await ours.collect() == []
    ours.submit([request("c")])
    await settled()
    stage.end("c")
    assert [item.trajectory_id for item in await ours.collect()] == ["c"]
