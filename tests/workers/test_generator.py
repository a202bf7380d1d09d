"""Episodes without an engine, then a whole generator; the engine's own tests are in
``test_engine.py``."""

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from lagoon import metrics as m
from lagoon.trajectory import Trajectory
from tests.builders import es_config, grpo_config, trajectory
from tests.workers.fakes import FakeTrainer, loop_context
from tests.workers.models_for_tests import END, build_model
from workers.actors.episodes import Episodes
from workers.actors.generator import GeneratorActor
from workers.engine import EngineFailed
from workers.environments import make_environment
from workers.environments.base import Environment
from workers.loops.proving import Prover
from workers.payload import checksum
from workers.rollout import EpisodeFailure, EpisodeRequest
from workers.training import Trainer


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


async def test_an_episode_that_is_given_up_leaves_its_place_and_nothing_to_collect() -> None:
    stage = Stage()
    ours = episodes(stage.play, max_concurrent=2)
    ours.submit([request(name) for name in "abcd"])
    await settled()
    given_up = stage.open["a"]
    ours.give_up(["a", "c", "who?"])  # "c" has no place yet
    await settled()
    assert given_up.cancelled()
    assert list(stage.open) == ["a", "b", "d"]
    assert ours.num_playing == 2
    stage.end("b")
    assert [item.trajectory_id for item in await ours.collect()] == ["b"]
    ours.give_up(["b"])  # it has ended


async def test_an_environment_that_does_not_take_being_given_up_is_not_listened_to() -> None:
    async def play(request: EpisodeRequest) -> Trajectory:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            raise RuntimeError("I was not done") from error
        raise AssertionError("nobody sets it")

    ours = episodes(play)
    ours.submit([request("a")])
    await settled()
    ours.give_up(["a"])
    await settled()
    collecting = asyncio.ensure_future(ours.collect())
    await settled()
    assert not collecting.done()
    collecting.cancel()


BROKEN = 7


def environments(config: Any, split: Any, index: int, attempt: int) -> Environment:
    """The real ones, but task 7 cannot be made."""
    if index == BROKEN:
        raise LookupError("no board for task 7")
    return make_environment(config, split, index, attempt)


@pytest.mark.engine
@pytest.mark.slow
async def test_a_generator_plays_reports_broken_environments_and_does_not_outlive_its_engine(
    tmp_path: Path,
) -> None:
    folder = build_model(tmp_path / "model")
    config = es_config(rollout={"max_concurrent": 16, "kv_cache_gib": 0.25})
    generator = GeneratorActor(
        str(folder), config.model_dump(mode="json"), 1, environments=environments
    )
    await generator.ready()
    requests = [EpisodeRequest(f"t{i}", f"p{i}", "train", i, 1.0) for i in range(12)]
    await generator.submit(requests)
    items = {}
    while len(items) < len(requests):
        items.update({item.trajectory_id: item for item in await generator.collect()})

    failure = items.pop(f"t{BROKEN}")
    assert isinstance(failure, EpisodeFailure)
    assert failure.message == "LookupError: no board for task 7"
    for item in items.values():
        assert isinstance(item, Trajectory)
        sampled = [token for token, m in zip(item.token_ids, item.action_mask, strict=True) if m]
        versions = {v for v, m in zip(item.versions, item.action_mask, strict=True) if m}
        assert versions == {0}
        assert sampled
        assert item.turns[0].role in ("system", "user")
        assert item.finished_at >= item.started_at > 0
    ended = [i for i in items.values() if isinstance(i, Trajectory) and END in i.token_ids]
    assert ended

    await every_fault_is_caught(generator, folder, tmp_path)

    await generator.submit([EpisodeRequest("last", "p", "train", 0, 1.0)])
    os.kill(engine_process(generator), signal.SIGKILL)
    with pytest.raises(EngineFailed, match="the vLLM engine process died"):
        await collected_for_ever(generator)
    with pytest.raises(EngineFailed):
        await generator.perturb(1, 0.1, "per_tensor")
    generator.shutdown()


class OwnTrainer(FakeTrainer):
    """A real trainer whose weights take a small random step when they are told to."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.real = Trainer(folder, grpo_config())

    def advance(self) -> None:
        with torch.no_grad():
            for parameter in self.real._policy.model.parameters():
                parameter.add_(1e-4 * torch.randn_like(parameter))

    async def weights(self) -> tuple[Any, str]:
        return self.real.weights()

    async def logprobs(self, samples: Any, temperature: float | None = None) -> list[list[float]]:
        return self.real.logprobs(samples, temperature)


class Faulty:
    """A generator whose next publishes go wrong, in its engine."""

    def __init__(self, real: GeneratorActor) -> None:
        self.real, self.fault, self.held = real, "", None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    async def publish(self, version: int, weights: Any) -> str:
        core = self.real._engine._engine.engine_core
        if self.fault == "withheld":
            await self.real.publish(version, self.held)
            return checksum(weights)
        self.held = weights
        with pytest.MonkeyPatch.context() as patch:
            if self.fault == "stale":
                pause = core.pause_scheduler_async
                keep = {"mode": "keep", "clear_cache": False}
                patch.setattr(core, "pause_scheduler_async", lambda **_: pause(**keep))
            return await self.real.publish(version - (self.fault == "late"), weights)


async def every_fault_is_caught(generator: GeneratorActor, folder: Path, scratch: Path) -> None:
    """Right publishes are proved, and each wrong one is not, at once and at the second try."""
    faulty, trainer = Faulty(generator), OwnTrainer(folder)
    context, sink = loop_context(grpo_config(), [faulty], scratch)  # type: ignore[list-item]
    prover = Prover(context)
    await prover.open()
    await prover.confirm(trainer)
    assert sink.values(m.VERIFIED_ENGINES) == {0: 1.0}
    words = {"": "", "late": "labels", "stale": "cache holds", "withheld": "bit for bit"}
    for version, fault in enumerate(["", "late", "", "stale", "", "withheld", ""], start=1):
        trainer.advance()
        faulty.fault = fault
        proof = await prover.publish(version, trainer)
        assert proof.num_mismatched == bool(fault)
        assert proof.proven == ([] if fault else [0])
        assert words[fault] in proof.verdicts[0].fault
        if not fault:
            assert max(proof.logprob_diffs) < 1e-5


async def collected_for_ever(generator: GeneratorActor) -> None:
    while True:
        await generator.collect()


def engine_process(generator: GeneratorActor) -> int:
    manager = generator._engine._engine.engine_core.resources.engine_manager
    pid: int = manager.processes[0].pid
    return pid
