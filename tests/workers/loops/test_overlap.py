"""What goes on beside training: evaluation, deaths, selections, stops and new attempts."""

import asyncio
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lagoon import metrics as m
from lagoon.events import CheckpointLogged
from lagoon.methods.async_grpo import AsyncGRPO
from lagoon.points import Point
from lagoon.selection import PooledGroup, Selection
from lagoon.trajectory import Trajectory
from tests.workers.fakes import FakeGenerator, FakeTrainer, loop_context
from tests.workers.loops.invariants import (
    NUM_STEPS,
    PACED,
    SINGLE,
    UNFILTERED,
    overlapping,
    prompts_are_somewhere,
)
from tests.workers.streaming import Chance, StreamingGenerator, StreamingTrainer, ran
from workers.failures import RunFailed
from workers.loops.policy_gradient import PolicyGradientLoop
from workers.loops.state import read_state
from workers.resuming import Candidates, restored
from workers.rollout import EpisodeFailure, EpisodeRequest
from workers.step_report import StepReport


async def test_training_goes_on_beside_an_evaluation_and_the_next_publish_waits_for_it(
    tmp_path: Path,
) -> None:
    seen: list[str] = []

    class Watched(StreamingGenerator):
        async def publish(self, version: int, weights: Any) -> str:
            assert not any(each.request.split == "heldout" for each in self.playing)
            seen.append(f"publish {version}")
            return await super().publish(version, weights)

        async def submit(self, requests: Sequence[EpisodeRequest]) -> None:
            if requests[0].split == "heldout":
                seen.append(f"evaluate {requests[0].trajectory_id.split('/')[1]}")
            await super().submit(requests)

        def _finished_one(self, episode: Any) -> Any:
            if episode.request.split == "heldout":
                seen.append("evaluated")
            return super()._finished_one(episode)

    class Trainer(StreamingTrainer):
        async def step(self, *arguments: Any) -> StepReport:
            seen.append(f"step {len(self.batches) + 1}")
            return await super().step(*arguments)

    chance = Chance(3)
    context, sink = loop_context(overlapping(UNFILTERED), [Watched(chance)], tmp_path)
    await PolicyGradientLoop(context, Trainer(chance)).run()
    begun = seen.index("evaluate 2")
    ended = begun + 1 + [at for at, what in enumerate(seen[begun:]) if what == "evaluated"][3]
    assert "step 3" in seen[begun:ended]
    assert "publish 3" in seen[ended:]
    saved = [event for event in sink.events if isinstance(event, CheckpointLogged)]
    assert [event.step for event in saved] == [2, 4, 6, 6]
    best = max(sink.values(m.HELDOUT_SUCCESS)[step] for step in (2, 4, 6))
    assert context.checkpoints.best == best


async def test_a_stop_during_an_evaluation_beside_training_leaves_it_to_who_goes_on(
    tmp_path: Path,
) -> None:
    config = overlapping(UNFILTERED, steps=50)

    class Stopping(StreamingGenerator):
        async def submit(self, requests: Sequence[EpisodeRequest]) -> None:
            if requests[0].trajectory_id.startswith("heldout/4/"):
                context.stop.set()
            await super().submit(requests)

    chance = Chance(0)
    context, _ = loop_context(config, [Stopping(chance)], tmp_path)
    assert await PolicyGradientLoop(context, StreamingTrainer(chance)).run() == "stopped"
    assert read_state(tmp_path / "step-000004").evaluated == 2


async def test_an_evaluation_that_a_failure_has_ended_is_left_to_who_goes_on(
    tmp_path: Path,
) -> None:
    class Alarming(StreamingGenerator):
        async def submit(self, requests: Sequence[EpisodeRequest]) -> None:
            if requests[0].trajectory_id.startswith("heldout/4/"):
                context.progress.alarm.sound(RunFailed("It stands still."))
            await super().submit(requests)

    chance = Chance(0)
    context, _ = loop_context(overlapping(UNFILTERED, steps=50), [Alarming(chance)], tmp_path)
    with pytest.raises(RunFailed, match="stands still"):
        await PolicyGradientLoop(context, StreamingTrainer(chance)).run()
    assert read_state(tmp_path / "step-000004").evaluated == 2


@pytest.mark.parametrize("num_generators", [1, 2])
async def test_a_generator_that_dies_is_replaced_while_the_others_go_on(
    tmp_path: Path, num_generators: int
) -> None:
    run = await ran(overlapping(UNFILTERED), tmp_path, Chance(5, death=0.05), num_generators)
    assert len(run.generators) > num_generators
    died = [p.value for _, p in run.sink.points(m.LOST_EPISODES)]
    assert max(died) > 0
    assert run.loop.context.generators.living == list(range(num_generators))


async def test_training_goes_on_with_the_others_while_a_dead_generator_is_being_replaced(
    tmp_path: Path,
) -> None:
    """Its replacement takes as long as it takes for three more updates."""
    chance = Chance(5, death=0.05, deaths_left=1)
    died_at: list[int] = []

    async def replacement(generator: int) -> StreamingGenerator:
        died_at.append(context.progress.version)
        while context.progress.version < died_at[0] + 3:
            assert context.generators.living == [1 - generator]
            await asyncio.sleep(0)
        return StreamingGenerator(chance)

    generators = [StreamingGenerator(chance) for _ in range(2)]
    config = overlapping(UNFILTERED, steps=10)
    context, _ = loop_context(config, generators, tmp_path, replacement=replacement)
    trainer = StreamingTrainer(chance)
    async with asyncio.timeout(30):
        assert await PolicyGradientLoop(context, trainer).run() == "finished"
    assert len(trainer.batches) == 10
    assert len(died_at) == 1
    assert context.generators.living == [0, 1]


async def test_where_nobody_can_be_replaced_a_death_costs_the_attempt(tmp_path: Path) -> None:
    chance = Chance(5, death=0.05)
    generators = [StreamingGenerator(chance) for _ in range(2)]
    context, _ = loop_context(overlapping(UNFILTERED), generators, tmp_path)
    with pytest.raises(RunFailed, match=r"Generator \d failed: killed") as caught:
        await PolicyGradientLoop(context, StreamingTrainer(chance)).run()
    assert caught.value.is_transient


async def test_a_replacement_with_other_weights_ends_the_run(tmp_path: Path) -> None:
    class Stranger(StreamingGenerator):
        async def publish(self, version: int, weights: Any) -> str:
            return await super().publish(version, "others") and f"sum-of-{weights}"

    chance = Chance(5, death=0.05, deaths_left=1)

    async def replacement(generator: int) -> StreamingGenerator:
        return Stranger(chance)

    generators = [StreamingGenerator(chance) for _ in range(2)]
    context, _ = loop_context(
        overlapping(UNFILTERED), generators, tmp_path, replacement=replacement
    )
    with pytest.raises(RunFailed, match=r"does not hold the weights of version \d: its log-prob"):
        await PolicyGradientLoop(context, StreamingTrainer(chance)).run()


async def test_a_reward_that_is_no_number_drops_its_trajectory(tmp_path: Path) -> None:
    def reward(request: EpisodeRequest, generator: FakeGenerator) -> float:
        _, position, member = request.trajectory_id.split("/")
        if request.split == "train" and (position == "1" or (position == "0" and member == "2")):
            return math.nan if member != "0" else 1.0
        return float(member == "0")

    config = overlapping({"name": "grpo", "group_size": 3})
    context, _ = loop_context(config, [FakeGenerator(reward)], tmp_path)
    trainer = FakeTrainer()
    loop = PolicyGradientLoop(context, trainer)
    assert await loop.run() == "finished"
    trained = [sample.trajectory for batch in trainer.batches for sample in batch]
    assert all(math.isfinite(each.reward) for each in trained)
    assert sum(each.trajectory_id.startswith("train/0/") for each in trained) == 2
    assert not any(each.trajectory_id.startswith("train/1/") for each in trained)
    assert loop.ledger.dropped == {"reward_not_finite": 1}
    assert len(trained) == NUM_STEPS * 2 * 3 - 1


@pytest.mark.parametrize("method", [UNFILTERED, PACED, SINGLE])
async def test_a_reward_that_is_no_number_is_trained_on_by_no_asynchronous_method(
    tmp_path: Path, method: dict[str, Any]
) -> None:
    def reward(request: EpisodeRequest, generator: FakeGenerator) -> float:
        split, position, _ = request.trajectory_id.split("/")
        return math.nan if split == "train" and position == "1" else float(position) % 2

    context, _ = loop_context(overlapping(method), [FakeGenerator(reward)], tmp_path)
    trainer = FakeTrainer()
    loop = PolicyGradientLoop(context, trainer)
    assert await loop.run() == "finished"
    trained = [sample.trajectory for batch in trainer.batches for sample in batch]
    assert all(math.isfinite(each.reward) for each in trained)
    assert loop.ledger.dropped["reward_not_finite"] == 1
    assert loop.ledger.is_balanced


class Forgetful(FakeGenerator):
    """Of the first prompt's second member the engine did not say a log-probability, of the second
    prompt's a version."""

    def _play(self, request: EpisodeRequest) -> Trajectory | EpisodeFailure:
        played = super()._play(request)
        assert isinstance(played, Trajectory)
        if request.trajectory_id == "train/0/1":
            return replace(played, behavior_logprobs=(0.0, -1.0, math.nan))
        if request.trajectory_id == "train/1/1":
            return replace(played, versions=(None, self.version, None))
        return played


async def test_what_the_engine_did_not_say_is_counted_as_missing(tmp_path: Path) -> None:
    config = overlapping({"name": "async_grpo", "group_size": 3, "max_staleness": 0})
    context, sink = loop_context(config, [Forgetful(lambda r, _: float(r.index % 2))], tmp_path)
    trainer = FakeTrainer()
    loop = PolicyGradientLoop(context, trainer)
    await loop.run()
    first = [sample.trajectory.trajectory_id for sample in trainer.batches[0]]
    assert first == ["train/0/0", "train/0/2", "train/1/0", "train/1/1", "train/1/2"]
    dropped = loop.state().lost
    assert (dropped["logprobs_missing"].trajectories, dropped["logprobs_missing"].tokens) == (1, 2)
    assert loop.ledger.dropped == {}  # its group goes on without it
    assert sink.values(m.STALENESS_COVERAGE)[1] == pytest.approx(9 / 10)
    assert sink.histograms(m.TOTAL_HISTOGRAM)[1] == {0: 9}  # and not 10
    unknown = [p.value for _, p in sink.points(m.DRIFT_TOKENS) if p.labels["cause"] == "unknown"]
    assert unknown == [1.0, *[0.0] * (NUM_STEPS - 1)]


async def test_what_has_no_version_cannot_be_shown_to_keep_a_hard_bound(tmp_path: Path) -> None:
    method = UNFILTERED | {"max_staleness": 1, "drop_stale": True}
    context, _ = loop_context(overlapping(method), [Forgetful(lambda *_: 1.0)], tmp_path)
    trainer = FakeTrainer()
    loop = PolicyGradientLoop(context, trainer)
    await loop.run()
    assert loop.ledger.dropped["versions_missing"] == 1
    trained = {each.trajectory.trajectory_id for batch in trainer.batches for each in batch}
    assert not trained & {"train/1/0", "train/1/1"}


@pytest.mark.parametrize("mode", ["keep", "abort"])
async def test_a_partial_rollout_goes_on_after_the_publish_that_it_meets(
    tmp_path: Path, mode: str
) -> None:
    """It is begun once, keeps the tokens that it has, and is trained on with all its versions."""
    run = await ran(overlapping(UNFILTERED, mode), tmp_path, Chance(1, most_tokens=12))
    begun = Counter(
        each.request.trajectory_id for generator in run.generators for each in generator.begun
    )
    trained = [sample.trajectory for batch in run.trainer.batches for sample in batch]
    crossed = [each for each in trained if len(set(each.versions[1:])) > 1]
    assert crossed
    for each in crossed:
        assert begun[each.trajectory_id] == 1
        known = [version for version in each.versions[1:] if version is not None]
        assert known == sorted(known)
        assert each.completed_version >= known[-1]


async def test_a_run_goes_on_from_a_checkpoint_that_was_announced_after_its_evaluation(
    tmp_path: Path,
) -> None:
    config = overlapping(UNFILTERED)
    first = await ran(config, tmp_path / "a", Chance(2))
    assert first.outcome == "finished"
    begins = restored(config, Candidates((tmp_path / "a" / "step-000004",)))
    assert begins.state.evaluated == 4
    assert begins.heldout_success == first.sink.values(m.HELDOUT_SUCCESS)[4]
    second = await ran(config, tmp_path / "b", Chance(3), begins=begins)
    again = second.trainer.positions()
    assert len([batch for batch in again if batch]) == 2
    before = {position for batch in first.trainer.positions()[:4] for position in batch}
    assert not before & {position for batch in again for position in batch}


class Drifting(AsyncGRPO):
    """Drops what moved most, and counts its selections: the shape of a controller."""

    @property
    def needs_scores(self) -> bool:
        return True

    def select(
        self, pool: Sequence[PooledGroup], version: int, memory: Mapping[str, float]
    ) -> Selection:
        assert len(pool) >= self.prompts_per_step
        for pooled in pool:
            assert pooled.scores is not None
            lengths = [each.num_actions for each in pooled.group.trajectories]
            assert [len(scores) for scores in pooled.scores] == lengths
        count = memory.get("selections", 0.0) + 1
        extra = range(self.prompts_per_step, len(pool))
        dropped, told = (
            dict.fromkeys(extra, "drifted"),
            Point(name=m.POOL_TARGET.name, value=-count),
        )
        return Selection((0, 1), dropped, {"selections": count}, (told,))


async def test_a_selection_may_need_the_trainers_view_of_the_pool_and_remembers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AsyncGRPO, "needs_scores", Drifting.needs_scores)
    monkeypatch.setattr(AsyncGRPO, "select", Drifting.select)
    config = overlapping(UNFILTERED)
    run = await ran(config, tmp_path / "a", Chance(7))
    prompts_are_somewhere(run, read_state(tmp_path / "a" / "final"))
    assert run.loop.ledger.dropped["drifted"] > 0
    told = [(step, p.value) for step, p in run.sink.points(m.POOL_TARGET) if p.value < 0]
    assert told == [(step, -step) for step in range(1, NUM_STEPS + 1)]
    begins = restored(config, Candidates((tmp_path / "a" / "step-000004",)))
    assert begins.state.memory == {"selections": 4.0}
    second = await ran(config, tmp_path / "b", Chance(8), begins=begins)
    assert second.loop.pool.memory == {"selections": 6.0}


@pytest.mark.parametrize("seed", range(8))
async def test_a_stop_is_heard_while_the_only_generator_is_being_replaced(
    tmp_path: Path, seed: int
) -> None:
    chance = Chance(seed, death=0.03)

    async def replacement(generator: int) -> StreamingGenerator:
        context.stop.set()
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")

    context, _ = loop_context(
        overlapping(UNFILTERED, steps=500),
        [StreamingGenerator(chance)],
        tmp_path,
        replacement=replacement,
    )
    async with asyncio.timeout(30):
        assert await PolicyGradientLoop(context, StreamingTrainer(chance)).run() == "stopped"


async def test_a_replacement_that_comes_after_a_stop_is_not_judged(tmp_path: Path) -> None:
    """The publish that its predecessor died in came to nothing: it cannot be given those weights,
    and the final ones are being saved."""
    chance = Chance(1)

    class Mortal(StreamingGenerator):
        async def publish(self, version: int, weights: Any) -> str:
            if version == 3:
                self.is_dead = True
                self.live()
            return await super().publish(version, weights)

    class Slow(StreamingTrainer):
        async def save(self, folder: str) -> None:
            if context.stop.is_set():
                for _ in range(300):
                    await asyncio.sleep(0)
            await super().save(folder)

    async def replacement(generator: int) -> StreamingGenerator:
        context.stop.set()
        for _ in range(20):
            await asyncio.sleep(0)
        return StreamingGenerator(chance)

    context, _ = loop_context(
        overlapping(UNFILTERED, steps=50), [Mortal(chance)], tmp_path, replacement=replacement
    )
    async with asyncio.timeout(30):
        assert await PolicyGradientLoop(context, Slow(chance)).run() == "stopped"
    assert context.generators.living == [0]
    assert read_state(tmp_path / "final").version == 3
