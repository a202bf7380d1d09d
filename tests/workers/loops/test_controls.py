"""Settings that change while a run goes on, and runs that are paused."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from lagoon import metrics as m
from lagoon.clashes import Clash
from lagoon.config import RunConfig
from lagoon.controls import PAUSED, Change, Controlled, Refused
from lagoon.events import ControlsApplied, StatusLogged
from lagoon.methods.pace import Pace
from lagoon.trajectory import TrainingSample
from tests.builders import es_config
from tests.workers.fakes import FakeGenerator, FakeTrainer, ListSink, at_once, loop_context
from tests.workers.loops.invariants import (
    NUM_STEPS,
    PACED,
    SINGLE,
    UNFILTERED,
    is_balanced,
    overlapping,
)
from tests.workers.streaming import Chance, StreamingGenerator, StreamingTrainer
from workers.loops.context import LoopContext
from workers.loops.evolution import EvolutionLoop
from workers.loops.policy_gradient import PolicyGradientLoop
from workers.loops.state import read_state
from workers.rollout import EpisodeRequest
from workers.steering import Controls
from workers.step_report import StepReport

BOUNDED = UNFILTERED | {"max_staleness": 2, "drop_stale": True}
ALONE = SINGLE | {"max_staleness": 2, "drop_stale": True}
PATHS = {
    "async_grpo": ("method.max_staleness", st.integers(1, 4)),
    "pace": ("method.target", st.integers(2, 8)),
    "sao": ("method.max_staleness", st.integers(1, 4)),
}


def change(number: int, **values: Any) -> Change:
    """``rollout__max_concurrent`` is ``rollout.max_concurrent``."""
    return Change(number=number, settings={k.replace("__", "."): v for k, v in values.items()})


def said(sink: ListSink) -> list[tuple[int, tuple[int, ...]]]:
    applied = [event for event in sink.events if isinstance(event, ControlsApplied)]
    return [(event.version, event.numbers) for event in applied]


class Watched(StreamingGenerator):
    """Begins nothing for training while the run is paused."""

    async def submit(self, requests: Sequence[EpisodeRequest]) -> None:
        assert not (self.is_paused and requests[0].split == "train")
        await super().submit(requests)


class Meddled(StreamingTrainer):
    """Takes no step while the run is paused; ``after`` is called with each version that it made."""

    controls: Controls

    async def step(self, samples: Sequence[TrainingSample], learning_rate: float) -> StepReport:
        assert not self.controls.is_paused
        report = await super().step(samples, learning_rate)
        self.after(len(self.batches))
        return report

    def after(self, version: int) -> None:
        """Nothing, unless a test says so."""


@st.composite
def logs(draw: st.DrawFn) -> tuple[RunConfig, list[tuple[int, Change]]]:
    """A run, and changes that its API has accepted, each after some time. None is left paused."""
    config = overlapping(draw(st.sampled_from([BOUNDED, ALONE, PACED])))
    path, values = PATHS[getattr(config.method, "name")]  # noqa: B009  each method has one
    one = st.one_of(
        st.builds(lambda places: {"rollout.max_concurrent": places}, st.integers(4, 24)),
        st.builds(lambda value: {path: value}, values),
        st.builds(lambda is_paused: {PAUSED: is_paused}, st.booleans()),
    )
    state, log = Controlled(config), []
    for wanted in [*draw(st.lists(one, max_size=6)), {PAUSED: False}]:
        try:
            state = state.after(wanted)
        except Refused:
            continue
        when = draw(st.integers(0, 60))
        log.append((when, Change(number=len(log) + 1, settings=wanted)))
    return config, log


@settings(max_examples=15)
@given(logs(), st.integers(0, 2**20))
def test_changes_at_any_moment_leave_a_run_that_gets_on_and_balances(
    given: tuple[RunConfig, list[tuple[int, Change]]], seed: int
) -> None:
    config, log = given
    with TemporaryDirectory() as folder:
        chance = Chance(seed)
        context, sink = loop_context(config, [Watched(chance) for _ in range(2)], Path(folder))
        trainer = Meddled(chance)
        trainer.controls = context.controls

        async def meddle() -> None:
            delivered: list[Change] = []
            for after, each in log:
                for _ in range(after):
                    await asyncio.sleep(0)
                delivered.append(each)
                context.controls.deliver(delivered)  # the API repeats what it has not heard of

        async def both() -> str:
            async with asyncio.timeout(60):
                outcome, _ = await asyncio.gather(
                    PolicyGradientLoop(context, trainer).run(), meddle()
                )
            return outcome

        with patch("workers.checkpoints.asyncio.to_thread", at_once):
            assert asyncio.run(both()) == "finished"
        assert read_state(Path(folder) / "final").ledger.is_balanced
    numbers = [number for _, found in said(sink) for number in found]
    assert numbers == list(range(1, len(numbers) + 1))
    versions = [version for version, _ in said(sink)]
    assert versions == sorted(versions)
    for step in range(1, NUM_STEPS + 1):
        assert is_balanced(sink, step)
    bounds_held_when_drawn(config, [each for _, each in log], sink, trainer)


def bounds_held_when_drawn(
    config: RunConfig, log: Sequence[Change], sink: ListSink, trainer: StreamingTrainer
) -> None:
    """No trained token lags by more than the bound that held at the version of its batch."""
    for version, batch in enumerate(trainer.batches):
        bound = getattr(config.method, "max_staleness", None)
        for at, numbers in said(sink):
            for number in numbers if at <= version else ():
                bound = log[number - 1].settings.get("method.max_staleness", bound)
        lags = [version - v for s in batch for v in s.trajectory.versions if v is not None]
        assert bound is None or max(lags) <= bound


async def paused_after_step_2(
    folder: Path, method: dict[str, Any] = UNFILTERED
) -> tuple[LoopContext, ListSink, Any, Any]:
    chance = Chance(3, most_tokens=12)
    generator, trainer = Watched(chance), Meddled(chance)
    context, sink = loop_context(overlapping(method), [generator], folder)
    trainer.controls = context.controls

    def after(version: int) -> None:
        if version == 2:
            context.controls.deliver([change(1, paused=True)])

    trainer.after = after  # type: ignore[method-assign]
    return context, sink, generator, trainer


async def settled(is_so: Any) -> None:
    """Let the loop get on until something is so, and then until nothing moves."""
    async with asyncio.timeout(30):
        while not is_so():
            await asyncio.sleep(0)
    for _ in range(200):
        await asyncio.sleep(0)


async def test_a_paused_run_keeps_what_is_in_flight_and_goes_on_with_its_tokens(
    tmp_path: Path,
) -> None:
    context, sink, generator, trainer = await paused_after_step_2(tmp_path)
    running = asyncio.ensure_future(PolicyGradientLoop(context, trainer).run())
    await settled(lambda: generator.is_paused)
    assert context.progress.activity == "paused"
    assert context.progress.version == 2
    before = context.stopwatch()
    partial = {e.request.trajectory_id: list(e.versions) for e in generator.playing if e.versions}
    assert partial
    await settled(lambda: True)
    assert context.stopwatch() == before  # no training time passes
    assert {
        e.request.trajectory_id: list(e.versions) for e in generator.playing if e.versions
    } == partial
    context.controls.deliver([change(1, paused=True), change(2, paused=False)])
    assert await running == "finished"
    assert said(sink) == [(2, (1,)), (2, (2,))]
    went_on = partial.keys() & generator.sampled_with.keys()
    assert went_on
    for id in went_on:
        assert generator.sampled_with[id][: len(partial[id])] == partial[id]
    told = [event.message for event in sink.events if isinstance(event, StatusLogged)]
    assert "Resumed at version 2." in told


async def test_a_stop_ends_a_pause_and_saves(tmp_path: Path) -> None:
    context, _, generator, trainer = await paused_after_step_2(tmp_path)
    running = asyncio.ensure_future(PolicyGradientLoop(context, trainer).run())
    await settled(lambda: generator.is_paused)
    context.stop.set()
    assert await running == "stopped"
    assert read_state(tmp_path / "final").version == 2


async def test_a_stop_during_a_pause_draws_no_batch_that_nobody_trains_on(tmp_path: Path) -> None:
    context, _, generator, trainer = await paused_after_step_2(tmp_path, PACED)
    loop = PolicyGradientLoop(context, trainer)
    running = asyncio.ensure_future(loop.run())
    await settled(lambda: generator.is_paused)
    assert len(loop.pool.ready) > loop.method.pool_target  # it would give some up
    before, memory = loop.pool.ready, dict(loop.pool.memory)
    context.stop.set()
    assert await running == "stopped"
    assert (loop.pool.ready, dict(loop.pool.memory)) == (before, memory)


async def test_settings_hold_from_the_next_batch_on_and_reach_the_generators(
    tmp_path: Path,
) -> None:
    chance = Chance(1)
    generators, trainer = [Watched(chance) for _ in range(2)], Meddled(chance)
    context, sink = loop_context(overlapping(PACED), generators, tmp_path)
    trainer.controls = context.controls

    def after(version: int) -> None:
        if version == 3:
            wanted = change(1, method__target=7, rollout__max_concurrent=5)
            context.controls.deliver([wanted, change(2, method__gamma=-1.0)])

    trainer.after = after  # type: ignore[method-assign]
    assert await PolicyGradientLoop(context, trainer).run() == "finished"
    [applied] = [event for event in sink.events if isinstance(event, ControlsApplied)]
    assert (applied.version, applied.numbers) == (3, (1,))
    assert "method.gamma" in applied.refused[2]
    targets = sink.values(m.POOL_TARGET)
    assert [targets[step] for step in range(1, NUM_STEPS + 1)] == [4, 4, 4, 7, 7, 7]
    for generator in generators:
        assert [call for call in generator.calls if call[0] == "steer"] == [("steer", 5, False)]


async def test_an_attempt_begins_with_the_changes_so_far_and_says_so_at_its_version(
    tmp_path: Path,
) -> None:
    changes = [change(1, method__target=8), change(2, method__gamma=1.0)]
    generator = FakeGenerator(lambda *_: 1.0)
    context, sink = loop_context(overlapping(PACED), [generator], tmp_path, changes=changes)
    loop = PolicyGradientLoop(context, FakeTrainer())
    await loop.run()
    assert said(sink) == [(0, (1, 2))]
    assert sink.values(m.POOL_TARGET)[1] == 8
    assert cast(Pace, loop.method).gamma == 1.0


async def test_an_evolution_run_is_paused_between_its_members_and_goes_on(tmp_path: Path) -> None:
    class Pausing(FakeGenerator):
        async def submit(self, requests: Sequence[EpisodeRequest]) -> None:
            assert not (self.is_paused and requests[0].split == "train")
            await super().submit(requests)
            if requests[0].trajectory_id.startswith("train/") and context.progress.version == 1:
                context.controls.deliver([change(1, paused=True)])

    generator = Pausing(lambda *_: 1.0)
    context, sink = loop_context(es_config(), [generator], tmp_path)
    running = asyncio.ensure_future(EvolutionLoop(context).run())
    await settled(lambda: generator.is_paused)
    assert (context.progress.version, context.progress.activity) == (1, "paused")
    context.controls.deliver([change(2, paused=False)])
    assert await running == "finished"
    assert said(sink) == [(1, (1,)), (1, (2,))]


def test_a_change_that_the_driver_alone_knows_to_be_unfit_is_refused_and_the_next_is_not() -> None:
    controls = Controls(overlapping(UNFILTERED))

    def unfit(config: RunConfig) -> list[Clash]:
        fields = ("rollout.max_concurrent", "rollout.kv_cache_gib")
        return [Clash(fields, "too many")] if config.rollout.max_concurrent > 100 else []

    controls.refuse(unfit)
    controls.deliver([change(1, rollout__max_concurrent=101), change(2, paused=True)])
    assert controls.take() == ([2], {1: "rollout.max_concurrent, rollout.kv_cache_gib: too many"})
    assert controls.is_paused
    assert controls.config.rollout.max_concurrent == 16
