import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lagoon.selection import PooledGroup
from lagoon.staleness import admissible, mean, quantile, staleness_account
from lagoon.trajectory import TrajectoryGroup
from tests.builders import trajectory
from tests.core.golden import cases

SPANS = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4)), min_size=1, max_size=4)


@given(st.lists(st.tuples(SPANS, st.integers(0, 5)), min_size=1, max_size=6), st.integers(0, 5))
def test_total_is_generation_plus_waiting_for_every_token(
    made: list[tuple[list[tuple[int, int]], int]], extra: int
) -> None:
    trajectories = []
    for spans, later in made:
        versions = sorted(version for version, count in spans for _ in range(count))
        trajectories.append(trajectory(versions=versions, completed=versions[-1] + later))
    trained = max(t.completed_version for t in trajectories) + extra
    account = staleness_account(trajectories, trained)
    for sample in trajectories:
        own = staleness_account([sample], trained)
        for sampled in sample.versions:
            assert sampled is not None
            making = sample.completed_version - sampled
            waited = trained - sample.completed_version
            assert own.total[making + waited] == own.generation[making] > 0
            assert own.waiting == {waited: len(sample.versions)}
    total = sum(lag * count for lag, count in account.total.items())
    parts = sum(
        lag * count for part in (account.generation, account.waiting) for lag, count in part.items()
    )
    assert total == parts
    assert account.num_tokens == sum(len(t.versions) for t in trajectories)
    assert sum(account.worst.values()) == len(trajectories)
    assert sum(account.span.values()) == len(trajectories)
    assert max(account.worst) == max(account.total)


def test_counts_are_exact_for_known_lags() -> None:
    account = staleness_account([trajectory(versions=[3, 3, 4], completed=5)], 7)
    assert account.generation == {1: 1, 2: 2}
    assert account.waiting == {2: 3}
    assert account.total == {3: 1, 4: 2}
    assert account.worst == {4: 1}
    assert account.span == {2: 1}
    assert mean(account.total) == 11 / 3


def test_span_counts_the_distinct_versions_of_each_trajectory() -> None:
    account = staleness_account(
        [
            trajectory(versions=[1, 1, 1], completed=1),
            trajectory(versions=[0, 2, 3, 3], completed=3),
            trajectory(versions=[2, None, 2], completed=3),
            trajectory(versions=[None, None], completed=3),
        ],
        3,
    )
    assert account.span == {1: 2, 3: 1}
    assert account.missing_tokens == 3


@given(st.lists(st.integers(0, 9), min_size=1), st.floats(0.01, 1))
def test_a_quantile_is_the_least_value_that_so_many_counts_do_not_exceed(
    values: list[int], share: float
) -> None:
    found = quantile(Counter(values), share)
    assert sum(value <= found for value in values) >= share * len(values)
    assert sum(value < found for value in values) < share * len(values)


def test_nothing_has_no_quantile() -> None:
    assert math.isnan(quantile({}, 0.5))
    assert quantile({0: 3, 1: 1, 7: 1}, 1.0) == 7


def test_observation_tokens_are_not_counted() -> None:
    account = staleness_account(
        [trajectory(versions=[None, 0, None, 1], mask=[0, 1, 0, 1], completed=1)], 1
    )
    assert account.num_tokens == 2
    assert account.missing_tokens == 0


def test_missing_versions_are_counted_as_missing_never_as_zero() -> None:
    account = staleness_account([trajectory(versions=[None, 2], completed=2)], 2)
    assert account.missing_tokens == 1
    assert account.total == {0: 1}
    assert account.coverage == 0.5


def test_tokens_that_a_mask_gave_no_weight_count_as_trained_and_once_more_by_themselves() -> None:
    trajectories = [
        trajectory(versions=[3, None, 4, 4], mask=[1, 1, 0, 1], completed=5),
        trajectory(versions=[5, 5], completed=5),
    ]
    account = staleness_account(trajectories, 6, [[True, True, False], []])
    assert account.total == {1: 2, 2: 1, 3: 1}
    assert account.masked == {3: 1}
    assert account.missing_tokens == 1
    assert staleness_account(trajectories, 6).masked == {}


@given(st.integers(0, 4), st.integers(1, 5), st.lists(st.booleans(), max_size=200))
def test_no_group_is_trained_on_past_the_bound_and_the_loop_progresses(
    bound: int, batch: int, moves: list[bool]
) -> None:
    """Random interleavings of starts and updates; consumption is first in, first out."""
    version, started = 0, []
    for wants_update in [*moves, *[True, False] * 10]:
        room = admissible(version, len(started), max_staleness=bound, batch_size=batch)
        can_update = len(started) >= (version + 1) * batch
        assert room > 0 or can_update
        if wants_update and can_update:
            consumed = started[version * batch : (version + 1) * batch]
            assert all(version - start <= bound for start in consumed)
            version += 1
        elif room > 0:
            started.append(version)


def test_a_bound_of_zero_never_starts_a_batch_before_the_update_before_it() -> None:
    assert admissible(0, 4, max_staleness=0, batch_size=4) == 0
    assert admissible(1, 4, max_staleness=0, batch_size=4) == 4


# -- vectors of other implementations -------------------------------------------------------------


@pytest.mark.parametrize("case", cases("staleness_areal"))
def test_admission_agrees_with_areal_at_every_event(case: dict) -> None:
    """The peer's capacity is also bounded by concurrency, and may be negative."""
    inputs = case["inputs"]
    for state in case["expected"]["after_each_event"]:
        started = state["accepted"] + state["running"]
        room = admissible(
            state["version"],
            started,
            max_staleness=inputs["max_staleness"],
            batch_size=max(1, inputs["batch_size"]),
        )
        free = max(1, inputs["max_concurrent"]) - state["running"]
        assert min(room, max(0, free)) == max(0, state["capacity"])


@pytest.mark.parametrize("case", cases("staleness_skyrl"))
def test_admission_agrees_with_skyrl_at_every_event(case: dict) -> None:
    """The peer counts the step in progress from 1, so that step - 1 updates are done."""
    inputs = case["inputs"]
    for state in case["expected"]["after_each_event"]:
        room = admissible(
            state["step"] - 1,
            state["accepted"] + state["running"],
            max_staleness=inputs["max_staleness"],
            batch_size=inputs["batch_size"],
        )
        free = inputs["max_concurrent"] - state["running"]
        assert min(room, max(0, free)) == max(0, state["capacity"])


def began_before_its_update(case: dict) -> bool:
    start = case["inputs"]["start_version"]
    return start is not None and start < case["inputs"]["training_step"]


@pytest.mark.parametrize("case", cases("staleness_prime_rl", where=began_before_its_update))
def test_the_account_and_the_hard_bound_agree_with_prime_rl(case: dict) -> None:
    """The peer's rollouts may end after the update that trains on them; ours are over by then."""
    inputs, expected = case["inputs"], case["expected"]
    version = inputs["training_step"] - 1
    completed = min(inputs["end_version"], version)
    made = trajectory(versions=[inputs["start_version"]], completed=completed)
    account = staleness_account([made], version)
    assert account.total == {expected["total"]: 1}
    assert account.generation == {expected["in_flight"]: 1}
    assert account.waiting == {expected["in_queue"]: 1}
    group = PooledGroup.of(TrajectoryGroup("p", (made,)))
    reason = group.why_dropped(version, inputs["max_off_policy_steps"])
    assert (reason is None) == expected["kept"]
