"""A stop is heard in every phase of a run, and one that is meant at once waits for nothing."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lagoon.config import CheckpointConfig, RunConfig
from lagoon.events import CheckpointLogged, HeartbeatLogged, StatusLogged
from tests.builders import es_config, grpo_config
from tests.workers.fakes import FakeGenerator, FakeTrainer, ListSink, loop_context
from workers import watchdog
from workers.driver import Started, Surroundings, train
from workers.failures import RunFailed
from workers.loops import context as context_module
from workers.loops.context import supervised, unless_stopped
from workers.loops.evolution import EvolutionLoop
from workers.loops.policy_gradient import PolicyGradientLoop
from workers.resuming import FROM_THE_START, restored


class Stuck:
    """A run that stands still at one of its phases; ``reached`` is set when it is there."""

    def __init__(self, phase: str) -> None:
        self.phase = phase
        self.reached, self.release = asyncio.Event(), asyncio.Event()
        self.generator = FakeGenerator(lambda *_: 1.0)
        self.trainer = FakeTrainer()
        for owner, names in (
            (self.trainer, ("ready", "step", "weights", "save")),
            (self.generator, ("submit", "publish", "perturb", "update")),
        ):
            for name in names:
                setattr(owner, name, self._held(name, getattr(owner, name)))

    def _held(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        async def held(*arguments: Any) -> Any:
            await self.at(self._name(name, arguments))
            return await call(*arguments)

        return held

    def _name(self, name: str, arguments: tuple[Any, ...]) -> str:
        return f"play {arguments[0][0].split}" if name == "submit" else name

    async def at(self, phase: str) -> None:
        if phase == self.phase:
            self.reached.set()
            await self.release.wait()

    async def start(self, config: RunConfig, surroundings: Surroundings) -> Started:
        await self.at("start")
        trainer = None if config.trainer is None else self.trainer
        return Started(restored(config, FROM_THE_START), range(4), [self.generator], trainer)


def surroundings_of(folder: Path) -> tuple[Surroundings, ListSink]:
    sink = ListSink()
    stop = asyncio.Event()
    return Surroundings(sink, folder / "checkpoints", folder, stop, fencing_token=5), sink


GRADIENT = ("start", "play heldout", "play train", "ready", "step", "weights", "publish", "save")
EVOLUTION = ("start", "play heldout", "perturb", "play train", "update")
PHASES = [*(("grpo", name) for name in GRADIENT), *(("es", name) for name in EVOLUTION)]
AT_ONCE = {"start", "play heldout", "play train", "ready", "perturb"}
"""Where a stop has nothing to wait for; elsewhere the step in progress ends first."""


def config_of(family: str) -> RunConfig:
    return grpo_config(checkpoint={"every_steps": 1}) if family == "grpo" else es_config()


@pytest.mark.parametrize(("family", "phase"), PHASES)
async def test_a_stop_is_heard_in_every_phase(tmp_path: Path, family: str, phase: str) -> None:
    stuck = Stuck(phase)
    surroundings, sink = surroundings_of(tmp_path)
    run = asyncio.ensure_future(train(config_of(family), surroundings, stuck.start))
    await asyncio.wait_for(stuck.reached.wait(), 10)
    surroundings.stop.set()
    if phase not in AT_ONCE:
        stuck.release.set()
    assert await asyncio.wait_for(run, 10) == "stopped"
    said = [event for event in sink.events if isinstance(event, StatusLogged)]
    heard = [event.message for event in said if event.phase == "stopping"]
    assert any(message.startswith("The stop was heard") for message in heard)


@pytest.mark.parametrize(("family", "phase"), PHASES)
async def test_a_run_that_is_taken_away_ends_at_once_in_every_phase_and_saves_nothing(
    tmp_path: Path, family: str, phase: str
) -> None:
    stuck, abandon = Stuck(phase), asyncio.Event()
    surroundings, sink = surroundings_of(tmp_path)
    run = asyncio.ensure_future(
        unless_stopped(abandon, train(config_of(family), surroundings, stuck.start))
    )
    await asyncio.wait_for(stuck.reached.wait(), 10)
    abandon.set()
    assert await asyncio.wait_for(run, 10) is None
    assert not [event for event in sink.events if isinstance(event, CheckpointLogged)]
    assert not (tmp_path / "checkpoints").exists()


async def test_a_run_that_stands_still_ends_as_failed_with_what_it_waits_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "HEARTBEAT_SECONDS", 0.05)
    stuck = Stuck("play train")
    surroundings, sink = surroundings_of(tmp_path)
    config = grpo_config(
        budget={"max_steps": 3, "stall_seconds": 1.0}, rollout={"tool_timeout_seconds": 0.5}
    )
    with pytest.raises(RunFailed, match="the loop is starved"):
        await asyncio.wait_for(train(config, surroundings, stuck.start), 20)
    beats = [event for event in sink.events if isinstance(event, HeartbeatLogged)]
    assert {beat.fencing_token for beat in beats} == {5}
    assert beats[-1].trajectories == 4  # the held-out tasks


STILL = RunFailed("It stands still.")


async def stood_still(folder: Path, stuck: Stuck, family: str, phase: str) -> list[Path]:
    """The checkpoints of a run that did two steps and then stood still at ``phase``."""
    config = config_of(family).model_copy(update={"checkpoint": CheckpointConfig(every_steps=100)})
    context, _ = loop_context(config, [stuck.generator], folder)
    progress = context.progress
    loop = (
        PolicyGradientLoop(context, stuck.trainer) if family == "grpo" else EvolutionLoop(context)
    )

    async def stand_still() -> None:
        while progress.version < 2:
            await asyncio.sleep(0)
        stuck.phase = phase
        await stuck.reached.wait()
        progress.alarm.sound(STILL)
        await asyncio.Event().wait()

    with pytest.raises(RunFailed, match="It stands still"):
        await asyncio.wait_for(supervised(loop.run(), [stand_still()]), 20)
    return sorted(folder.glob("step-*/lagoon/manifest.json"))


@pytest.mark.parametrize(
    ("family", "phase", "is_saved"),
    [
        ("grpo", "play train", True),
        ("grpo", "step", False),  # the trainer is between two versions
        ("es", "play train", True),
        ("es", "update", False),
    ],
)
async def test_a_run_that_stands_still_saves_what_it_has_learned(
    tmp_path: Path, family: str, phase: str, is_saved: bool
) -> None:
    saved = await stood_still(tmp_path, Stuck(""), family, phase)
    assert [path.parent.parent.name for path in saved] == ["step-000002"] * is_saved


async def test_a_save_that_hangs_holds_the_end_of_a_standstill_up_for_its_time_and_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context_module, "FAILURE_SAVE_SECONDS", 0.02)
    stuck = Stuck("")

    async def hangs(folder: str) -> None:
        await asyncio.Event().wait()

    stuck.trainer.save = hangs  # type: ignore[method-assign]
    assert await stood_still(tmp_path, stuck, "grpo", "play train") == []
