"""What the trainer is asked of the pool: only what can have drifted, once or once a version."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from lagoon.drift import TokenScores
from lagoon.ledger import Ledger
from lagoon.methods.pace import Pace
from lagoon.selection import PooledGroup, Selection
from lagoon.trajectory import TrainingSample, Trajectory, TrajectoryGroup
from tests.builders import trajectory
from tests.workers.fakes import loop_context
from tests.workers.loops.invariants import PACED, overlapping
from tests.workers.streaming import Chance, StreamingGenerator, StreamingTrainer
from workers.loops.policy_gradient import PolicyGradientLoop
from workers.loops.pool import Pool
from workers.loops.state import LoopState
from workers.step_report import StepReport


class Patient(Pace):
    """It draws nothing, so that the pool is looked at again and again."""

    def select(
        self, pool: Sequence[PooledGroup], version: int, memory: Mapping[str, float]
    ) -> Selection:
        return Selection()


PATIENT = Patient(num_prompts=1, group_size=2, rescore=True)


class Scorer:
    """Keeps the names of what it was asked for, until it is looked at."""

    def __init__(self) -> None:
        self.names: list[str] = []

    async def __call__(self, given: Sequence[Trajectory]) -> list[list[float]]:
        assert given
        self.names += [each.trajectory_id for each in given]
        return [[-7.0] * each.num_actions for each in given]

    def asked(self) -> list[str]:
        names, self.names = self.names, []
        return names


def pool_of(**groups: Sequence[int | None]) -> Pool:
    pool = Pool(LoopState(3, 3, 0.0, 0, 0, Ledger()))
    for name, versions in groups.items():
        add(pool, name, versions)
    return pool


def add(pool: Pool, name: str, versions: Sequence[int | None]) -> None:
    pool.issue()
    members = (
        trajectory(versions=versions, completed=3, trajectory_id=f"{name}0"),
        trajectory(versions=(3,), completed=3, trajectory_id=f"{name}1"),
    )
    for each in members:
        pool.came_back(each)
    pool.complete(PATIENT, TrajectoryGroup(name, members))


async def test_what_the_present_version_sampled_alone_is_not_asked_for() -> None:
    pool, score = pool_of(fresh=(3, 3), mixed=(2, 3), unknown=(None, 3)), Scorer()
    assert await pool.draw(PATIENT, 3, score) == []
    assert score.asked() == ["mixed0", "unknown0"]
    fresh, mixed, unknown = (pooled.scores for pooled in pool.ready)
    assert fresh == ((-1.0, -1.0), (-1.0,))  # its behavior log-probabilities, bit for bit
    assert mixed == unknown == ((-7.0, -7.0), (-1.0,))


async def test_a_score_is_asked_for_again_only_when_there_is_a_new_version() -> None:
    pool, score = pool_of(old=(1, 2)), Scorer()
    await pool.draw(PATIENT, 3, score)
    add(pool, "later", (2,))
    await pool.draw(PATIENT, 3, score)
    await pool.draw(PATIENT, 3, score)
    assert score.asked() == ["old0", "later0"]
    await pool.draw(PATIENT, 4, score)
    assert score.asked() == ["old0", "old1", "later0", "later1"]
    await pool.draw(PATIENT, 4, score)
    assert score.asked() == []


async def test_unless_it_rescores_a_group_keeps_the_score_of_the_version_that_saw_it_first() -> (
    None
):
    pool, score = pool_of(old=(1, 2), fresh=(3, 3)), Scorer()
    once = PATIENT.model_copy(update={"rescore": False})
    for version in (3, 4, 5):
        await pool.draw(once, version, score)
    assert score.asked() == ["old0"]
    assert [pooled.scored_at for pooled in pool.ready] == [3, 3]


async def test_unless_it_rescores_what_no_new_version_came_into_is_not_asked_for() -> None:
    pool, score = pool_of(late=(2, 2), whole=(3, 3)), Scorer()
    await pool.draw(PATIENT.model_copy(update={"rescore": False}), 5, score)
    assert score.asked() == ["late0"]  # completed at 3
    await pool.draw(PATIENT, 6, score)
    assert score.asked() == ["late0", "late1", "whole0", "whole1"]


async def test_what_is_finished_while_the_trainer_scores_keeps_its_place_in_the_pool() -> None:
    pool = pool_of(old=(1, 2))

    async def score(given: Sequence[Trajectory]) -> list[list[float]]:
        add(pool, "meanwhile", (2,))
        return [[-7.0] * each.num_actions for each in given]

    await pool.draw(PATIENT, 3, score)
    assert [pooled.group.prompt_id for pooled in pool.ready] == ["old", "meanwhile"]
    assert [pooled.scored_at for pooled in pool.ready] == [3, None]


class Still(StreamingTrainer):
    """A trainer that learns nothing, whose numbers differ a little from the generators'."""

    NOISE = 1e-3

    def __init__(self, chance: Chance) -> None:
        super().__init__(chance)
        self.noise = random.Random(chance.seed)
        self.passes: Counter[tuple[str, int]] = Counter()

    def _scores(self, scored: Trajectory) -> list[float]:
        given = [logprob for _, logprob in scored.sampled]
        return [logprob + self.noise.uniform(-self.NOISE, self.NOISE) for logprob in given]

    async def step(self, samples: Sequence[TrainingSample], learning_rate: float) -> StepReport:
        report = await super().step(samples, learning_rate)
        scores = tuple(TokenScores(self._scores(each.trajectory)) for each in samples)
        return StepReport(report.sums, scores)

    async def logprobs(
        self, samples: Sequence[TrainingSample], temperature: float | None = None
    ) -> list[list[float]]:
        if temperature is not None:  # the canaries
            return await super().logprobs(samples, temperature)
        version = len(self.batches)
        for sample in samples:
            assert not sample.trajectory.is_of(version)
            self.passes[sample.trajectory.trajectory_id, version] += 1
        return [self._scores(sample.trajectory) for sample in samples]


@pytest.mark.parametrize("mode", ["keep", "wait", "abort"])
async def test_at_a_learning_rate_of_0_nothing_drifts_and_pace_ranks_by_waiting_alone(
    tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the loop: every score is a number of versions waited, as for a filter of ages; and no
    trajectory is passed through the trainer twice at one version."""
    chosen: list[tuple[Selection, list[float]]] = []
    select = Pace.select

    def watched(
        self: Pace, pool: Sequence[PooledGroup], version: int, memory: Mapping[str, float]
    ) -> Selection:
        found = select(self, pool, version, memory)
        waited = [
            sum(version - each.completed_version for each in pooled.group.trajectories) / 2
            for pooled in pool
        ]
        chosen.append((found, waited))
        return found

    monkeypatch.setattr(Pace, "select", watched)
    chance = Chance(4, most_tokens=12)
    config = overlapping(PACED | {"smoothing": 0.0}, mode, steps=12)
    context, _ = loop_context(config, [StreamingGenerator(chance) for _ in "ab"], tmp_path)
    trainer = Still(chance)
    loop = PolicyGradientLoop(context, trainer)
    await loop.run()
    assert set(trainer.passes.values()) == {1}
    assert 0 < loop.pool.memory["noise"] <= trainer.NOISE
    given_up = 0
    for found, waited in chosen:
        assert set(found.dropped.values()) <= {"rejected_waiting"}
        kept = [waited[at] for at in range(len(waited)) if at not in found.dropped]
        assert all(waited[at] >= max(kept) for at in found.dropped)
        given_up += len(found.dropped)
    assert given_up > 0
