import math

from hypothesis import given
from hypothesis import strategies as st

from lagoon.selection import PooledGroup, oldest_first
from lagoon.trajectory import TrajectoryGroup
from tests.builders import trajectory


def pooled(*versions: int | None) -> PooledGroup:
    return PooledGroup.of(TrajectoryGroup("p", tuple(trajectory(versions=(v,)) for v in versions)))


def test_a_group_is_as_old_as_its_oldest_sampled_token() -> None:
    given_first = trajectory(versions=(0, 4, 6), mask=(0, 1, 1))
    group = PooledGroup.of(TrajectoryGroup("p", (given_first, trajectory(versions=(5,)))))
    assert group.oldest_version == 4
    assert (group.why_dropped(7, 3), group.why_dropped(7, 2)) == (None, "stale")


def test_what_has_a_token_of_unknown_version_cannot_be_shown_to_keep_a_bound() -> None:
    for group in (pooled(None, None), pooled(None, 3)):
        assert group.why_dropped(3, 5) == "versions_missing"
        assert group.why_dropped(3, None) is None


def test_there_is_no_batch_before_there_are_enough_groups() -> None:
    found = oldest_first([pooled(0)], 5, {"kept": 1.0}, batch_size=2)
    assert (found.drawn, dict(found.dropped), found.memory) == ((), {}, {"kept": 1.0})


def test_stale_groups_are_given_up_even_when_there_is_no_batch() -> None:
    found = oldest_first([pooled(0), pooled(5)], 5, {}, batch_size=2, hard_bound=2)
    assert (found.drawn, dict(found.dropped)) == ((), {0: "stale"})


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
