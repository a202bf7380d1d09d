"""The driver's heartbeats, and the end of a run that stands still; time is moved by hand."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from lagoon.events import HeartbeatLogged
from lagoon.proc import machine_id
from tests.builders import es_config, grpo_config
from tests.workers.fakes import FakeGenerator, FakeTrainer, ListSink, loop_context
from workers.actors.episodes import ToolWatch
from workers.environments.base import Message, Observation
from workers.failures import RunFailed
from workers.generators import Generators
from workers.loops.context import Progress
from workers.loops.evolution import EvolutionLoop
from workers.loops.policy_gradient import PolicyGradientLoop
from workers.watchdog import HEARTBEAT_SECONDS, pulse


class Time:
    """A clock that moves when somebody sleeps; ``at`` is called with the seconds then."""

    def __init__(self, at: Any = lambda now: None) -> None:
        self.now = 0.0
        self._at = at

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        self._at(self.now)
        await asyncio.sleep(0)


async def beaten(progress: Progress, time: Time, limit: float = 100.0) -> list[HeartbeatLogged]:
    """The heartbeats until the run is ended for standing still; fails when it never is."""
    sink = ListSink()

    async def sleep(seconds: float) -> None:
        if progress.alarm.cause:
            await progress.alarm.watch()
        await time.sleep(seconds)

    beats = pulse(sink, progress, limit_seconds=limit, fencing_token=4, stopwatch=time, sleep=sleep)
    with pytest.raises(RunFailed) as ended:
        await asyncio.wait_for(beats, 20)
    heard = [event for event in sink.events if isinstance(event, HeartbeatLogged)]
    assert "No trajectory has finished and no step was done" in str(ended.value)
    assert "budget.stall_seconds" in str(ended.value)
    return heard


async def test_a_heartbeat_says_who_where_and_how_far() -> None:
    progress = Progress(version=4, reported=3, trajectories=17, activity="training")
    first = (await beaten(progress, Time()))[0]
    assert (first.step, first.trajectories, first.activity) == (3, 17, "training")
    assert (first.fencing_token, first.boot_id, first.idle_seconds) == (4, machine_id(), 0.0)


async def test_a_run_that_stands_still_is_ended_at_its_limit() -> None:
    heard = await beaten(Progress(activity="starved"), Time())
    assert heard[-1].idle_seconds == 100.0
    assert len(heard) == 100 / HEARTBEAT_SECONDS + 1


@pytest.mark.parametrize("what", ["version", "trajectories"])
async def test_a_step_or_a_trajectory_is_progress(what: str) -> None:
    progress = Progress(activity="starved")

    def advance(now: float) -> None:
        if now <= 500:
            setattr(progress, what, int(now))

    heard = await beaten(progress, Time(advance))
    assert max(beat.idle_seconds for beat in heard[:101]) <= HEARTBEAT_SECONDS
    assert len(heard) == 600 / HEARTBEAT_SECONDS + 1


async def test_a_start_may_take_longer_than_the_limit_and_does_not_count_against_the_loop() -> None:
    progress = Progress()

    def advance(now: float) -> None:
        if now == 1000:
            progress.activity = "starved"

    heard = await beaten(progress, Time(advance))
    assert len(heard) == 1100 / HEARTBEAT_SECONDS + 1


async def test_a_pause_is_no_standstill_and_the_clock_begins_anew_after_it() -> None:
    progress = Progress(activity="starved")

    def advance(now: float) -> None:
        if now in (50, 1000):
            progress.activity = "paused" if now == 50 else "starved"

    heard = await beaten(progress, Time(advance))
    assert len(heard) == 1100 / HEARTBEAT_SECONDS + 1
    assert {beat.activity for beat in heard[10:200]} == {"paused"}


async def test_heartbeats_go_on_while_the_loop_saves_and_the_first_cause_is_told() -> None:
    progress, sink = Progress(activity="starved"), ListSink()

    def saves_and_ends(now: float) -> None:
        if now == 105:
            progress.activity = "saving"
        if now == 130:
            raise InterruptedError

    time = Time(saves_and_ends)
    with pytest.raises(InterruptedError):
        await pulse(sink, progress, limit_seconds=100.0, stopwatch=time, sleep=time.sleep)
    with pytest.raises(RunFailed, match="the loop is starved"):
        await progress.alarm.watch()
    heard = [event for event in sink.events if isinstance(event, HeartbeatLogged)]
    assert heard[-1].idle_seconds == 125.0


async def test_turning_without_progress_is_none() -> None:
    progress = Progress(activity="starved")

    def turn(now: float) -> None:
        progress.activity = "updating" if progress.activity == "starved" else "starved"

    heard = await beaten(progress, Time(turn))
    assert len(heard) == 100 / HEARTBEAT_SECONDS + 1


class Watching(FakeGenerator):
    """Notes what the loop is at whenever it is told something."""

    def __init__(self, reward_of: Any) -> None:
        super().__init__(reward_of)
        self.progress = Progress()
        self.seen: list[tuple[str, str]] = []

    def note(self, what: str) -> None:
        self.seen.append((what, self.progress.activity))

    async def submit(self, requests: Any) -> None:
        self.note(requests[0].split)
        await super().submit(requests)

    async def publish(self, version: int, weights: Any) -> str:
        self.note("publish")
        return await super().publish(version, weights)

    async def update(self, *arguments: Any) -> Any:
        self.note("update")
        return await super().update(*arguments)


async def test_the_gradient_loop_says_what_it_is_at(tmp_path: Path) -> None:
    generator, trainer = Watching(lambda *_: 1.0), FakeTrainer()
    context, _ = loop_context(grpo_config(), [generator], tmp_path)
    generator.progress = context.progress
    step, save = trainer.step, trainer.save

    async def noted_step(*arguments: Any) -> Any:
        generator.note("step")
        return await step(*arguments)

    async def noted_save(folder: str) -> None:
        generator.note("save")
        await save(folder)

    trainer.step, trainer.save = noted_step, noted_save  # type: ignore[method-assign]
    await PolicyGradientLoop(context, trainer).run()
    assert set(generator.seen) == {
        ("heldout", "evaluating"),
        ("train", "starved"),
        ("step", "training"),
        ("publish", "updating"),
        ("save", "saving"),
    }


async def test_the_evolution_loop_says_what_it_is_at(tmp_path: Path) -> None:
    generator = Watching(lambda *_: 1.0)
    context, _ = loop_context(es_config(), [generator], tmp_path)
    generator.progress = context.progress
    await EvolutionLoop(context).run()
    assert set(generator.seen) == {
        ("heldout", "evaluating"),
        ("train", "starved"),
        ("update", "updating"),
    }


class Hanging(FakeGenerator):
    """Episodes of a split never end from the version after the first update on, or from a prompt of
    that update's successors."""

    def __init__(self, split: str) -> None:
        super().__init__(lambda *_: 1.0)
        self.split = split

    async def submit(self, requests: Any) -> None:
        split, where, _ = requests[0].trajectory_id.split("/")
        first = 1 if split == "heldout" else 2  # the version, or the prompt after the first batch
        if split != self.split or int(where) < first:
            await super().submit(requests)


@pytest.mark.parametrize(
    ("method", "split", "activity"),
    [("async_grpo", "heldout", "evaluating"), ("one_step_off", "train", "starved")],
)
async def test_a_publish_that_has_to_wait_for_episodes_is_not_blamed_on_the_weights(
    tmp_path: Path, method: str, split: str, activity: str
) -> None:
    config = grpo_config(
        method={"name": method, "num_prompts": 2, "group_size": 2},
        evaluation={"num_tasks": 2, "every_steps": 1},
    )
    context, _ = loop_context(config, [Hanging(split)], tmp_path)
    running = asyncio.ensure_future(PolicyGradientLoop(context, FakeTrainer()).run())
    for _ in range(3000):  # as far as it gets
        await asyncio.sleep(0)
    assert not running.done()
    progress = context.progress
    assert (progress.version, progress.activity) == (progress.reported + 1, activity)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize(
    ("counts", "activity"),
    [([(2, 2), (1, 1)], "tool"), ([(2, 2), (0, 1)], "starved"), ([(0, 0), (0, 0)], "starved")],
)
async def test_a_starved_loop_whose_episodes_all_wait_for_tools_says_so(
    counts: list[tuple[int, int]], activity: str
) -> None:
    class Busy(FakeGenerator):
        def __init__(self, count: tuple[int, int]) -> None:
            super().__init__(lambda *_: 1.0)
            self.count = count

        async def tools_waited_for(self) -> tuple[int, int]:
            return self.count

    generators = Generators([Busy(count) for count in counts], lambda: 0)
    progress = Progress(activity="starved", ask_tools=generators.all_wait_for_tools)
    heard = await beaten(progress, Time())
    assert heard[-1].activity == activity
    assert heard[0].activity == "starved"  # nobody is asked while things go on


async def test_generators_that_do_not_say_leave_the_reason_as_it_is() -> None:
    class Dead(FakeGenerator):
        async def tools_waited_for(self) -> tuple[int, int]:
            raise ConnectionError("the engine is gone")

    generators = Generators([Dead(lambda *_: 1.0)], lambda: 0)
    progress = Progress(activity="starved", ask_tools=generators.all_wait_for_tools)
    assert (await beaten(progress, Time()))[-1].activity == "starved"


async def test_episodes_are_counted_while_their_environment_answers() -> None:
    asked, answer = asyncio.Event(), asyncio.Event()

    class Slow:
        async def start(self) -> tuple[Message, ...]:
            return ()

        async def step(self, text: str) -> Observation:
            asked.set()
            await answer.wait()
            raise KeyError(text)

    tools = ToolWatch()
    environment = tools.over(Slow())
    assert await environment.start() == ()
    step = asyncio.ensure_future(environment.step("7*6"))
    await asked.wait()
    assert tools.waiting == 1
    answer.set()
    with pytest.raises(KeyError):
        await step
    assert tools.waiting == 0
