import math
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from lagoon.selection import STALE, PooledGroup, oldest_first
from lagoon.trajectory import TrajectoryGroup
from tests.builders import trajectory


def pooled(*versions: int | None) -> PooledGroup:
    return PooledGroup.of(TrajectoryGroup("p", tuple(trajectory(versions=(v,)) for v in versions)))


def test_a_group_is_as_old_as_its_oldest_sampled_token() -> None:
    given_first = trajectory(versions=(0, 4, 6), mask=(0, 1, 1))
    group = PooledGroup.of(TrajectoryGroup("p", (given_first, trajectory(versions=(5,)))))
    assert group.oldest_version == 4
    assert group.worst(7) == 3


def test_unknown_versions_make_no_group_old() -> None:
    assert pooled(None, None).worst(9) == 0
    assert pooled(None, 3).worst(9) == 6


def test_there_is_no_batch_before_there_are_enough_groups() -> None:
    found = oldest_first([pooled(0)], 5, {"kept": 1.0}, batch_size=2)
    assert (found.drawn, dict(found.dropped), found.memory) == ((), {}, {"kept": 1.0})


def test_stale_groups_are_given_up_even_when_there_is_no_batch() -> None:
    found = oldest_first([pooled(0), pooled(5)], 5, {}, batch_size=2, hard_bound=2)
    assert (found.drawn, dict(found.dropped)) == ((), {0: STALE})


def test_what_the_loss_needs_and_is_not_there_is_a_reason_and_never_a_zero() -> None:
    silent = replace(trajectory(versions=(5,)), behavior_logprobs=(math.nan,))
    pool = [
        pooled(5, None),
        PooledGroup.of(TrajectoryGroup("p", (trajectory(versions=(5,)), silent))),
        PooledGroup.of(TrajectoryGroup("p", (trajectory(versions=(5,), reward=math.nan),))),
        pooled(5),
    ]
    found = oldest_first(pool, 5, {}, batch_size=1, hard_bound=2)
    assert found.dropped == {
        0: "versions_missing",
        1: "logprobs_missing",
        2: "reward_not_finite",
    }
    assert found.drawn == (3,)
    unbounded = oldest_first(pool, 5, {}, batch_size=1, needs_behavior=False)
    assert (unbounded.drawn, unbounded.dropped) == ((0,), {2: "reward_not_finite"})


@given(
    oldest=st.lists(st.integers(0, 9)),
    batch_size=st.integers(1, 5),
    hard_bound=st.none() | st.integers(0, 9),
)
def test_the_first_that_are_fresh_enough_are_drawn(
    oldest: list[int], batch_size: int, hard_bound: int | None
) -> None:
    pool = [pooled(version) for version in oldest]
    found = oldest_first(pool, 9, {}, batch_size=batch_size, hard_bound=hard_bound)
    limit = math.inf if hard_bound is None else hard_bound
    fresh = [at for at, version in enumerate(oldest) if 9 - version <= limit]
    assert list(found.drawn) == (fresh[:batch_size] if len(fresh) >= batch_size else [])
    assert sorted([*fresh, *found.dropped]) == list(range(len(pool)))
