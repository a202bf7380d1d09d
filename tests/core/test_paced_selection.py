"""The controller of PACE as a selection from the pool; its arithmetic is tested beside it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from lagoon.drift import TokenScores, drift
from lagoon.methods.pace import Pace, candidates
from lagoon.metrics import REJECTED
from lagoon.selection import PooledGroup, Selection
from lagoon.trajectory import TrajectoryGroup
from tests.builders import trajectory

NOW = 9


def pooled(version: int | None, completed: int, score: float = -1.0) -> PooledGroup:
    made = trajectory(versions=(version, version), completed=completed)
    group = PooledGroup.of(TrajectoryGroup("p", (made, made)))
    return replace(group, scores=((score, score), (score, score)))


def select(
    pool: list[PooledGroup], memory: Mapping[str, float] | None = None, **fields: Any
) -> Selection:
    method = Pace.model_validate({"num_prompts": 2, "target": 2, "smoothing": 0.0} | fields)
    return method.select(pool, NOW, memory or {})


def test_the_group_that_waits_longest_is_given_up_first_when_nothing_has_drifted() -> None:
    pool = [pooled(5, 7), pooled(6, 6), pooled(8, 8), pooled(9, 9)]
    found = select(pool)
    assert found.drawn == (2, 3)
    assert dict(found.dropped) == {0: "rejected_waiting", 1: "rejected_waiting"}


def test_a_group_that_was_long_in_the_making_goes_when_the_policy_has_drifted_from_it() -> None:
    pool = [pooled(2, 9, score=-4.0), pooled(8, 8), pooled(9, 9)]
    found = select(pool)
    assert found.drawn == (1, 2)
    assert dict(found.dropped) == {0: "rejected_drift"}
    undisturbed = [pooled(2, 9), pooled(8, 8), pooled(9, 9)]
    assert dict(select(undisturbed).dropped) == {1: "rejected_waiting"}


def test_drift_is_that_of_the_version_at_which_it_was_looked_at() -> None:
    """Tokens of that version had not drifted then, whatever the program's numbers say of them."""
    seen = replace(pooled(4, 4, score=-3.0), scored_at=4)
    (one, _) = candidates(seen, NOW, 0.0)
    assert (one.drift, one.waiting) == (0.0, NOW - 4)
    (one, _) = candidates(replace(seen, scored_at=5), NOW, 0.0)
    assert one.drift == 2.0


def test_the_state_of_the_controller_is_what_is_remembered() -> None:
    pool = [pooled(9, 9, score=-1.5), pooled(9, 9), pooled(9, 9)]
    first = select(pool, {"noise": 0.5}, smoothing=0.9)
    assert first.memory == pytest.approx({"rate": 0.1 / 3, "carry": 0.1, "noise": 0.5}, rel=1e-9)
    second = select(pool, first.memory, smoothing=0.9)
    assert second.memory["rate"] == pytest.approx(0.9 * 0.1 / 3 + 0.1 / 3)


def test_without_a_batch_nothing_is_decided() -> None:
    found = select([pooled(9, 9)], {"rate": 0.5, "carry": 0.2, "noise": 0.0})
    assert (found.drawn, dict(found.dropped), found.points) == ((), {}, ())
    assert found.memory == {"rate": 0.5, "carry": 0.2, "noise": 0.0}


def test_the_noise_of_the_numbers_is_learned_from_trained_tokens_of_the_trained_version() -> None:
    """Three tokens that differ by 0.3, then one by 0.1; what an older version sampled says nothing
    of it. With three times that noise, what differs by no more has not drifted."""
    method = Pace()
    batches = [((0, 0, 0), 0.3, 0), ((3, 1), 0.1, 3), ((1, 1), 5.0, 4)]
    memory: Mapping[str, float] = {"rate": 0.2}
    for versions, distance, trained in batches:
        made = trajectory(versions=versions, completed=trained)
        scores = TokenScores([logprob - distance for _, logprob in made.sampled])
        memory = method.remember(memory, drift([made], [scores], trained))
    assert memory == pytest.approx({"rate": 0.2, "noise": 0.25, "noise_tokens": 4.0})
    noisy = [pooled(2, 9, score=-1.7), pooled(8, 8), pooled(9, 9)]
    assert dict(select(noisy, memory).dropped) == {1: "rejected_waiting"}
    assert dict(select(noisy).dropped) == {0: "rejected_drift"}


def test_a_group_of_unknown_versions_is_given_up_and_counted_as_that() -> None:
    found = select([pooled(None, 9), pooled(9, 9), pooled(9, 9)])
    assert found.drawn == (1, 2)
    assert dict(found.dropped) == {0: "versions_missing"}
    assert [point.value for point in found.points if point.name == REJECTED.name] == [0, 0]
