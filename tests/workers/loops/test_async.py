"""Generation, training, evaluation, publishes and deaths, in any order."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lagoon import metrics as m
from lagoon.events import CheckpointLogged, Event, HistogramLogged, StepLogged
from lagoon.ledger import Ledger
from lagoon.trajectory import TrajectoryGroup
from tests.builders import trajectory
from tests.workers.fakes import FakeGenerator, FakeTrainer, loop_context
from tests.workers.loops.invariants import (
    NUM_STEPS,
    ONE_STEP_OFF,
    PACED,
    SINGLE,
    UNFILTERED,
    bounds_hold,
    evaluations_are_of_their_versions,
    histograms_are_exact,
    is_balanced,
    labels_are_true,
    overlapping,
    prompts_are_somewhere,
)
from tests.workers.streaming import Chance, StreamingGenerator, StreamingTrainer, ran
from workers.loops.policy_gradient import PolicyGradientLoop
from workers.loops.state import LoopState, read_state
from workers.resuming import Restored
from workers.rollout import EpisodeRequest
from workers.step_report import StepReport

METHODS_OF_POOLS: dict[str, dict[str, Any]] = {
    "unfiltered": UNFILTERED,
    "bounded": UNFILTERED | {"max_staleness": 2},
    "paced": PACED | {"smoothing": 0.5},
}
METHODS = st.one_of(
    st.just(({"name": "grpo"}, None)),
    st.just((ONE_STEP_OFF, None)),
    st.tuples(
        st.one_of(
            st.just(UNFILTERED),
            st.just(PACED),
            st.just(SINGLE),
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
    # A step's own batch is still reserved in its books: nothing had been trained on at the first.
    assert list(run.sink.values(m.LEDGER_LENGTH_BIAS)) == list(range(2, NUM_STEPS + 1))


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
async def test_without_a_bound_the_pool_grows_unless_it_is_paced(tmp_path: Path, seed: int) -> None:
    class Slow(StreamingTrainer):
        async def step(self, *arguments: Any) -> StepReport:
            for _ in range(200):
                await asyncio.sleep(0)
            return await super().step(*arguments)

    ready = {}
    for name, method in METHODS_OF_POOLS.items():
        config = overlapping(method)
        chance = Chance(seed)
        context, sink = loop_context(
            config, [StreamingGenerator(chance) for _ in range(2)], tmp_path / name
        )
        await PolicyGradientLoop(context, Slow(chance)).run()
        ready[name] = sink.values(m.POOL_READY)
        blocked = sink.values(m.BACKPRESSURE_SECONDS)
        assert (max(blocked.values()) > 0) == (name == "bounded")
    grown = [ready["unfiltered"][step] for step in range(1, NUM_STEPS + 1)]
    assert grown == sorted(grown)
    assert grown[-1] > 3 * (2 + 1) * 2
    assert max(ready["bounded"].values()) <= (2 + 1) * 2
    assert ready["paced"][NUM_STEPS] < grown[-1] / 2


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
    assert run.sink.values(m.STALENESS_MISSING)[6] == 1
