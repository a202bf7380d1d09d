"""Generation, training, evaluation, publishes and deaths, in any order."""

import asyncio
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lagoon import metrics as m
from lagoon.config import RunConfig
from lagoon.events import CheckpointLogged, Event, HistogramLogged, StepLogged
from lagoon.ledger import Ledger
from lagoon.methods.async_grpo import AsyncGRPO
from lagoon.selection import PooledGroup, Selection
from lagoon.trajectory import TrajectoryGroup
from tests.builders import grpo_config, trajectory
from tests.workers.fakes import FakeGenerator, FakeTrainer, ListSink, loop_context
from tests.workers.streaming import Chance, Ran, StreamingGenerator, StreamingTrainer, ran
from workers.generators import RunFailed
from workers.loops.policy_gradient import PolicyGradientLoop
from workers.loops.state import LoopState, read_state
from workers.resuming import Candidates, Restored, restored
from workers.rollout import EpisodeRequest

NUM_STEPS = 6
UNFILTERED: dict[str, Any] = {"name": "async_grpo"}
ONE_STEP_OFF: dict[str, Any] = {"name": "one_step_off"}


def overlapping(
    method: dict[str, Any], mode: str | None = None, *, steps: int = NUM_STEPS, places: int = 16
) -> RunConfig:
    return grpo_config(
        method={"num_prompts": 2, "group_size": 2} | method,
        rollout={"weight_update_mode": mode, "max_concurrent": places},
        budget={"max_steps": steps},
        checkpoint={"every_steps": 2},
    )


METHODS = st.one_of(
    st.just(({"name": "grpo"}, None)),
    st.just((ONE_STEP_OFF, None)),
    st.tuples(
        st.one_of(
            st.just(UNFILTERED),
            st.builds(
                lambda bound, drops: UNFILTERED | {"max_staleness": bound, "drop_stale": drops},
                st.integers(1, 3),
                st.booleans(),
            ),
        ),
        st.sampled_from(["keep", "wait", "abort"]),
    ),
)


@settings(max_examples=40)
@given(
    chance=st.builds(
        Chance,
        st.integers(0, 2**20),
        death=st.sampled_from([0.0, 0.01, 0.03]),
        fault=st.sampled_from([0.0, 0.3]),
        most_tokens=st.integers(1, 12),
    ),
    method=METHODS,
    num_generators=st.integers(1, 3),
    places=st.integers(4, 24),
)
def test_whatever_the_order_of_things_nothing_is_trained_that_should_not_be(
    chance: Chance, method: tuple[dict[str, Any], str | None], num_generators: int, places: int
) -> None:
    chosen, mode = method
    places = max(places, 4)
    config = overlapping(chosen, mode, places=places)
    with TemporaryDirectory() as folder:
        run = asyncio.run(ran(config, Path(folder), chance, num_generators))
        state = read_state(Path(folder) / "final")
    assert run.outcome == "finished"
    assert len(run.trainer.batches) == NUM_STEPS  # the loop always gets on
    prompts_are_somewhere(run, state)
    labels_are_true(run)
    histograms_are_exact(run)
    bounds_hold(run)
    evaluations_are_of_their_versions(run, config)
    for step in range(1, NUM_STEPS + 1):
        assert is_balanced(run.sink, step)


def prompts_are_somewhere(run: Ran, state: LoopState) -> None:
    """Each issued prompt was trained on once, waits, is in flight, or was dropped."""
    trained = [position for batch in run.trainer.positions() for position in batch]
    waiting = [int(group.trajectories[0].trajectory_id.split("/")[1]) for group in state.pool]
    seen = [*trained, *waiting, *state.in_flight]
    assert len(seen) == len(set(seen)) == state.ledger.issued - state.ledger.num_dropped
    assert set(seen) <= set(range(state.ledger.issued))
    assert state.ledger.trained == len(trained) == 2 * NUM_STEPS
    assert state.ledger.is_balanced


def labels_are_true(run: Ran) -> None:
    """Every trained token was sampled with the weights that it is labelled with."""
    sampled_with = {id: found for g in run.generators for id, found in g.sampled_with.items()}
    for batch in run.trainer.batches:
        for sample in batch:
            given = sample.trajectory
            assert sampled_with[given.trajectory_id] == list(given.versions[1:])


def histograms_are_exact(run: Ran) -> None:
    for version, batch in enumerate(run.trainer.batches):
        known = [
            (v, s.trajectory.completed_version) for s in batch for v in s.trajectory.versions[1:]
        ]
        total = Counter(version - sampled for sampled, _ in known if sampled is not None)
        generation = Counter(done - sampled for sampled, done in known if sampled is not None)
        waiting = Counter(version - done for _, done in known)
        step = version + 1
        assert run.sink.histograms(m.TOTAL_HISTOGRAM)[step] == total
        assert run.sink.histograms(m.GENERATION_HISTOGRAM)[step] == generation
        assert run.sink.histograms(m.WAITING_HISTOGRAM)[step] == waiting
        assert min([*total, *generation, *waiting]) >= 0


def bounds_hold(run: Ran) -> None:
    method, lags = run.loop.method, run.trainer.lags()
    if method.hard_bound is not None:
        assert max(lags) <= method.hard_bound
    if method.staleness_bound == 0:
        assert set(lags) == {0}
    if run.loop.context.config.rollout.weight_update_mode == "wait":
        spans = run.sink.histograms(m.SPAN_HISTOGRAM).values()
        assert {span for counts in spans for span in counts} == {1}


def evaluations_are_of_their_versions(run: Ran, config: RunConfig) -> None:
    assert list(run.sink.values(m.HELDOUT_SUCCESS)) == [0, 2, 4, 6]
    assert set(run.sink.values(m.HELDOUT_TASKS).values()) == {config.evaluation.num_tasks}
    for generator in run.generators:
        for id, weights in generator.sampled_with.items():
            split, version, _ = id.split("/")
            if split == "heldout":
                assert set(weights) == {int(version)}


def is_balanced(sink: ListSink, step: int) -> bool:
    places = (m.POOL_GENERATING, m.POOL_READY, m.POOL_RESERVED, m.LEDGER_TRAINED, m.LEDGER_DROPPED)
    parts = sum(p.value for each in places for at, p in sink.points(each) if at == step)
    return bool(sink.values(m.LEDGER_ISSUED)[step] == parts)


def without_times(events: Sequence[Event]) -> list[Any]:
    """What was reported, but for when and where."""
    found: list[Any] = []
    for event in events:
        if isinstance(event, StepLogged):
            points = [p for p in event.points if "seconds" not in p.name and "per_" not in p.name]
            found.append((event.step, points))
        elif isinstance(event, HistogramLogged):
            found.append((event.step, event.name, event.counts))
        elif isinstance(event, CheckpointLogged):
            found.append((event.step, event.is_final, event.is_best, Path(event.path).name))
    return found


def synchronous(method: dict[str, Any], folder: Path) -> tuple[list[Any], list[Any], list[Any]]:
    """A run on generators that answer in an order of their own: trace, batches, calls."""
    config = overlapping(method)
    generators = [FakeGenerator(lambda r, _: float(r.trajectory_id.endswith("0"))) for _ in "ab"]
    trainer = FakeTrainer()
    context, sink = loop_context(config, generators, folder)
    asyncio.run(PolicyGradientLoop(context, trainer).run())
    return without_times(sink.events), trainer.batches, [g.calls for g in generators]


def test_a_bound_of_0_is_synchronous_training_event_by_event(tmp_path: Path) -> None:
    sync = synchronous({"name": "grpo"}, tmp_path / "grpo")
    assert sync == synchronous(UNFILTERED | {"max_staleness": 0}, tmp_path / "async_grpo")
    assert len(sync[0]) > 4 * NUM_STEPS


@pytest.mark.parametrize("seed", range(5))
async def test_one_step_off_trains_on_the_policy_before_the_last_update(
    tmp_path: Path, seed: int
) -> None:
    run = await ran(overlapping(ONE_STEP_OFF), tmp_path, Chance(seed))
    totals = run.sink.histograms(m.TOTAL_HISTOGRAM)
    assert [set(totals[step]) for step in range(1, NUM_STEPS + 1)] == [{0}, *[{1}] * 5]


@pytest.mark.parametrize("seed", range(3))
async def test_without_a_bound_the_pool_grows_and_with_one_it_does_not(
    tmp_path: Path, seed: int
) -> None:
    class Slow(StreamingTrainer):
        async def step(self, *arguments: Any) -> dict[str, tuple[float, float]]:
            for _ in range(200):
                await asyncio.sleep(0)
            return await super().step(*arguments)

    ready = {}
    for bound in (None, 2):
        config = overlapping(UNFILTERED | {"max_staleness": bound})
        chance = Chance(seed)
        context, sink = loop_context(
            config, [StreamingGenerator(chance) for _ in range(2)], tmp_path / str(bound)
        )
        await PolicyGradientLoop(context, Slow(chance)).run()
        ready[bound] = sink.values(m.POOL_READY)
        blocked = sink.values(m.BACKPRESSURE_SECONDS)
        assert (max(blocked.values()) > 0) == (bound is not None)
    grown = [ready[None][step] for step in range(1, NUM_STEPS + 1)]
    assert grown == sorted(grown)
    assert grown[-1] > 3 * (2 + 1) * 2
    assert max(ready[2].values()) <= (2 + 1) * 2


class OneSlow(StreamingGenerator):
    """Its first episode takes much longer than all others."""

    async def submit(self, requests: Sequence[EpisodeRequest]) -> None:
        await super().submit(requests)
        if requests[0].trajectory_id.startswith("train/0/"):
            self.playing[-1] = replace(self.playing[-1], num_tokens=60)


@pytest.mark.parametrize("drops", [False, True])
async def test_what_was_overtaken_is_dropped_when_the_bound_is_checked_again(
    tmp_path: Path, drops: bool
) -> None:
    method = UNFILTERED | {"max_staleness": 1, "drop_stale": drops}
    chance = Chance(1, most_tokens=2)
    context, sink = loop_context(
        overlapping(method, steps=40), [OneSlow(chance) for _ in range(2)], tmp_path
    )
    trainer = StreamingTrainer(chance)
    loop = PolicyGradientLoop(context, trainer)
    await loop.run()
    assert (max(trainer.lags()) > 1) == (not drops)
    assert loop.ledger.dropped == ({"stale": 1} if drops else {})
    told = [p.value for _, p in sink.points(m.LEDGER_DROPPED) if p.labels == {"reason": "stale"}]
    assert set(told) == ({1.0} if drops else set())


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
        async def step(self, *arguments: Any) -> dict[str, tuple[float, float]]:
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


@pytest.mark.parametrize("num_generators", [1, 2])
async def test_a_generator_that_dies_is_replaced_while_the_others_go_on(
    tmp_path: Path, num_generators: int
) -> None:
    run = await ran(overlapping(UNFILTERED), tmp_path, Chance(5, death=0.05), num_generators)
    assert len(run.generators) > num_generators
    died = [p.value for _, p in run.sink.points(m.LOST_EPISODES)]
    assert max(died) > 0
    assert run.loop.context.generators.living == list(range(num_generators))


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
    assert loop.ledger.dropped == {"non_finite_reward": 1}
    assert len(trained) == NUM_STEPS * 2 * 3 - 1


async def test_a_trace_of_known_lags_gives_exactly_the_known_histograms(tmp_path: Path) -> None:
    """Two groups that wait at version 5, with tokens of versions 1 to 5."""
    given = [
        TrajectoryGroup(
            "p",
            (
                trajectory(versions=(None, 1, 1, 3), mask=(0, 1, 1, 1), completed=4, reward=1.0),
                trajectory(versions=(5, 5), completed=5, reward=0.0),
            ),
        ),
        TrajectoryGroup(
            "q",
            (
                trajectory(versions=(2, 3, 4), completed=4, reward=0.0),
                trajectory(versions=(4, None), completed=5, reward=1.0),
            ),
        ),
    ]
    pool = tuple(
        TrajectoryGroup(
            group.prompt_id,
            tuple(
                replace(each, trajectory_id=f"train/{at}/{member}")
                for member, each in enumerate(group.trajectories)
            ),
        )
        for at, group in enumerate(given, start=10)
    )
    config = overlapping(UNFILTERED, steps=6)
    begins = LoopState(5, 5, 0.0, 0, 0, Ledger(issued=12, ready=2, trained=10), pool=pool)
    run = await ran(config, tmp_path, Chance(0), begins=Restored(None, begins))
    assert run.sink.histograms(m.TOTAL_HISTOGRAM)[6] == {0: 2, 1: 2, 2: 2, 3: 1, 4: 2}
    assert run.sink.histograms(m.GENERATION_HISTOGRAM)[6] == {0: 3, 1: 3, 2: 1, 3: 2}
    assert run.sink.histograms(m.WAITING_HISTOGRAM)[6] == {0: 3, 1: 6}
    assert run.sink.histograms(m.WORST_HISTOGRAM)[6] == {0: 1, 1: 1, 3: 1, 4: 1}
    assert run.sink.histograms(m.SPAN_HISTOGRAM)[6] == {1: 2, 2: 1, 3: 1}
    assert run.sink.values(m.STALENESS_COVERAGE)[6] == pytest.approx(9 / 10)


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
        return Selection((0, 1), dict.fromkeys(extra, "drifted"), {"selections": count})


async def test_a_selection_may_need_the_trainers_view_of_the_pool_and_remembers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AsyncGRPO, "needs_scores", Drifting.needs_scores)
    monkeypatch.setattr(AsyncGRPO, "select", Drifting.select)
    config = overlapping(UNFILTERED)
    run = await ran(config, tmp_path / "a", Chance(7))
    prompts_are_somewhere(run, read_state(tmp_path / "a" / "final"))
    assert run.loop.ledger.dropped["drifted"] > 0
    begins = restored(config, Candidates((tmp_path / "a" / "step-000004",)))
    assert begins.state.memory == {"selections": 4.0}
    second = await ran(config, tmp_path / "b", Chance(8), begins=begins)
    assert second.loop.pool.memory == {"selections": 6.0}
