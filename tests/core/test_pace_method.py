import math
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from lagoon.drift import TokenScores, drift
from lagoon.metrics import REJECTED, REJECTION_RATE
from lagoon.pace import PaceState
from lagoon.problems import field_problems
from lagoon.selection import PooledGroup
from lagoon.trajectory import TrajectoryGroup
from tests.builders import grpo_config, trajectory


def method(**fields: Any) -> Any:
    return grpo_config(method={"name": "pace", "num_prompts": 2, "group_size": 2} | fields).method


def pooled(*versions: int | None, completed: int, moved: float | None = 0.5) -> PooledGroup:
    """A group of two alike, whose tokens the policy has ``moved`` away from; None: not scored."""
    member = trajectory(versions=versions, completed=completed)
    found = PooledGroup.of(TrajectoryGroup("p", (member, member)))
    if moved is None:
        return found
    return replace(found, logprobs=((moved - 1.0,) * len(versions),) * 2)


def test_the_target_is_two_batches_unless_it_is_set() -> None:
    assert method().target_size == 4
    assert method(pool_target=2).target_size == 2
    assert method().staleness_bound is None


def test_a_target_below_the_batch_is_refused_with_both_fields() -> None:
    with pytest.raises(ValidationError) as caught:
        method(pool_target=1)
    (problem,) = field_problems(caught.value, type(grpo_config()))
    assert set(problem.fields) == {"method.pool_target", "method.num_prompts"}


def test_gamma_below_0_is_refused() -> None:
    with pytest.raises(ValidationError, match="greater than or equal to 0"):
        method(gamma=-1)


def test_what_drifted_most_goes_first_and_the_oldest_of_the_rest_are_trained_on() -> None:
    chosen = method(pool_target=2, smoothing=0.0)
    pool = [pooled(3, 5, completed=5, moved=moved) for moved in (0.1, 0.9, 0.2, 0.3)]
    found = chosen.select(pool, 6, {})
    # An excess of a half of the pool: two groups; of those with no drift's share the oldest.
    assert found.dropped == {1: "rejected_waiting", 3: "rejected_waiting"}
    assert found.drawn == (0, 2)
    assert set(found.memory) == {"rate", "carry", "noise"}
    named = {(p.name, p.labels.get("reason")): p.value for p in found.points}
    assert named[REJECTED.name, "rejected_waiting"] == 2
    assert (REJECTION_RATE.name, None) in named


def test_a_version_crossed_without_drift_does_not_count() -> None:
    chosen = method(pool_target=2, smoothing=0.0)
    crossed = pooled(0, 6, completed=6, moved=0.0)
    waited = pooled(5, completed=5, moved=0.0)
    found = chosen.select([waited, crossed, pooled(6, completed=6, moved=None)], 6, {})
    assert found.dropped == {0: "rejected_waiting"}
    assert found.drawn == (1, 2)


def test_below_the_noise_there_is_no_drift() -> None:
    chosen = method(pool_target=2, smoothing=0.0)
    pool = [pooled(2, completed=5, moved=m) for m in (1e-7, 3e-7, 2e-7)]
    loud, quiet = chosen.select(pool, 6, {}), chosen.select(pool, 6, {"noise": 2e-7})
    assert set(loud.dropped) == {1}
    assert set(quiet.dropped) == {0}  # by age alone


def test_the_noise_is_what_the_last_update_measured_at_its_own_version() -> None:
    chosen, trained = method(), [trajectory(versions=[3, 3])]
    found = drift(trained, [TokenScores([-1.25, -1.0])], 3)
    told = chosen.remember({"rate": 0.5}, found)
    assert PaceState(**told) == PaceState(rate=0.5, noise=0.125)
    stale = drift(trained, [TokenScores([-1.25, -1.0])], 4)
    assert chosen.remember(told, stale) == told


def test_what_cannot_be_ranked_is_dropped_and_what_was_not_scored_yet_stays() -> None:
    unknown = pooled(None, 3, completed=3)
    silent = pooled(3, completed=3)
    member = replace(silent.group.trajectories[0], behavior_logprobs=(math.nan,))
    silent = PooledGroup.of(TrajectoryGroup("p", (member,)))
    late = pooled(3, completed=3, moved=None)
    found = method().select([unknown, late, silent], 4, {})
    assert found.dropped == {0: "versions_missing", 2: "logprobs_missing"}
    assert found.drawn == ()
    assert found.points == ()
