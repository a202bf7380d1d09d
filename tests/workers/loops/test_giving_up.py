"""Episodes that nobody waits for are ended: of a lost group, of an evaluation that is stopped, and
of whatever is in flight when a run ends."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from lagoon import metrics as m
from tests.workers.fakes import loop_context
from tests.workers.loops.invariants import UNFILTERED, overlapping
from tests.workers.streaming import Chance, Died, StreamingGenerator, StreamingTrainer, ran
from workers.failures import RunFailed
from workers.generators import Generators
from workers.loops.policy_gradient import PolicyGradientLoop
from workers.loops.state import read_state
from workers.rollout import EpisodeFailure, EpisodeRequest

FOR_EVER = 10**9


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


class Endless(StreamingGenerator):
    """It has a few places. Of the third prompt on, a group's first member ends, the others never
    do."""

    NUM_PLACES = 12

    def __init__(self, chance: Chance) -> None:
        super().__init__(chance)
        self.waiting: list[EpisodeRequest] = []

    async def submit(self, requests: Sequence[EpisodeRequest]) -> None:
        self.waiting += requests
        await self._seat()

    async def give_up(self, trajectory_ids: Sequence[str]) -> None:
        await super().give_up(trajectory_ids)
        self.waiting = [each for each in self.waiting if each.trajectory_id not in trajectory_ids]
        await self._seat()

    async def _seat(self) -> None:
        while self.waiting and len(self.playing) < self.NUM_PLACES:
            request = self.waiting.pop(0)
            await super().submit([request])
            split, position, member = request.trajectory_id.split("/")
            if split == "train" and int(position) >= 4 and member != "0":
                self.playing[-1].num_tokens = FOR_EVER


async def test_a_run_ends_while_episodes_are_in_flight_that_would_never_end(tmp_path: Path) -> None:
    """Two updates of two prompts; twelve more are in flight then, and hold all places."""
    chance = Chance(0)
    config = overlapping(UNFILTERED | {"group_size": 3}, steps=2, places=48)
    generator = Endless(chance)
    context, sink = loop_context(config, [generator], tmp_path)
    loop = PolicyGradientLoop(context, StreamingTrainer(chance))
    async with asyncio.timeout(30):
        assert await loop.run() == "finished"
    assert sink.values(m.HELDOUT_SUCCESS).keys() == {0, 2}
    assert {each.request.split for each in generator.playing} <= {"heldout"}
    state = read_state(tmp_path / "final")
    assert state.in_flight == tuple(range(4, state.ledger.issued))
    assert state.ledger.generating == len(state.in_flight) > 4
    lost = [(step, p.value) for step, p in sink.points(m.LOST_EPISODES)]
    assert lost == [(2, len(set(generator.given_up)))]
    assert all(int(name.split("/")[1]) >= 4 for name in generator.given_up)
    # Tokens of those that had ended are known, and dropped; nobody knows those of the others.
    assert state.tokens is not None
    assert state.tokens.is_balanced
    assert state.tokens.generating == 0
    finished = len(state.in_flight) * 3 - len(set(generator.given_up))
    assert state.lost["group_lost"].trajectories == finished > 0
    assert state.tokens.dropped["group_lost"] == state.lost["group_lost"].tokens


async def test_a_stop_ends_what_is_in_flight(tmp_path: Path) -> None:
    chance = Chance(0)
    config = overlapping(UNFILTERED | {"group_size": 3}, steps=50, places=48)
    generator = Endless(chance)
    context, _ = loop_context(config, [generator], tmp_path)
    loop = PolicyGradientLoop(context, StreamingTrainer(chance))
    running = asyncio.ensure_future(loop.run())
    while context.progress.version < 2:
        await asyncio.sleep(0)
    context.stop.set()
    async with asyncio.timeout(30):
        assert await running == "stopped"
    await settled()
    assert generator.playing == generator.waiting == []


@pytest.mark.parametrize("seed", range(3))
async def test_what_was_played_with_unproved_weights_is_not_played_on(
    tmp_path: Path, seed: int
) -> None:
    run = await ran(overlapping(UNFILTERED), tmp_path, Chance(seed, fault=0.7, most_tokens=12), 1)
    (generator,) = run.generators
    given_up = [name for name in generator.given_up if not name.startswith("heldout/")]
    assert given_up
    trained = {s.trajectory.trajectory_id for batch in run.trainer.batches for s in batch}
    assert not trained & set(given_up)


# -- the driver's side -----------------------------------------------------------------------------


class Told(StreamingGenerator):
    """It notes when it is told, and answers only when the test lets it."""

    def __init__(self) -> None:
        super().__init__(Chance(0))
        self.told: list[set[str]] = []
        self.may_answer = asyncio.Event()

    async def submit(self, requests: Sequence[EpisodeRequest]) -> None:
        """Nothing of it ever ends."""

    async def give_up(self, trajectory_ids: Sequence[str]) -> None:
        self.told.append(set(trajectory_ids))
        await self.may_answer.wait()


def request(name: str) -> EpisodeRequest:
    return EpisodeRequest(name, "p", "train", 0, 1.0)


async def test_many_that_are_cancelled_at_once_are_given_up_in_one_call() -> None:
    told = Told()
    generators = Generators([told], lambda: 0)
    generators.trust([0])
    names = [f"{group}/{member}" for group in range(5) for member in range(2)]
    plays = [
        asyncio.ensure_future(generators.play([request(f"{group}/0"), request(f"{group}/1")]))
        for group in range(5)
    ]
    others = asyncio.ensure_future(generators.play([request("wanted")]))
    await settled()
    for play in plays:
        play.cancel()
    await settled()
    assert told.told == [set(names)]
    assert generators.num_lost == {"given_up": 10}
    draining = asyncio.ensure_future(generators.drain())
    others.cancel()
    await settled()
    assert not draining.done()  # until it has said that they are over
    told.may_answer.set()
    await settled()
    assert told.told == [set(names), {"wanted"}]
    assert draining.done()


async def test_a_failure_of_what_nobody_waits_for_is_nobodys() -> None:
    class Fails(Told):
        async def collect(self) -> list[EpisodeFailure]:  # type: ignore[override]
            await self.may_answer.wait()
            self.may_answer = asyncio.Event()
            return [EpisodeFailure("a", "no board", "traceback")]

    fails = Fails()
    generators = Generators([fails], lambda: 0)
    generators.trust([0])
    play = asyncio.ensure_future(generators.play([request("a")]))
    await settled()
    play.cancel()
    await settled()
    pump = asyncio.ensure_future(generators.pump(0))
    fails.may_answer.set()
    await settled()
    assert not pump.done()
    pump.cancel()


async def test_a_generator_that_is_dead_need_not_be_told(caplog: pytest.LogCaptureFixture) -> None:
    class Dead(Told):
        async def give_up(self, trajectory_ids: Sequence[str]) -> None:
            raise Died("killed")

    generators = Generators([Dead()], lambda: 0)
    generators.trust([0])
    play = asyncio.ensure_future(generators.play([request("a")]))
    await settled()
    play.cancel()
    with pytest.raises(asyncio.CancelledError):
        await play
    await settled()
    assert "Episodes that nobody waits for may go on" in caplog.text
    with pytest.raises(RunFailed, match="killed"):  # its pump hears of it, which is supervised
        await generators.ask(0, lambda handle: handle.give_up(["a"]))
