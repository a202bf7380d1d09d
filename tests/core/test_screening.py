import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lagoon.screening import why_dropped
from tests.builders import trajectory


@pytest.mark.parametrize("reward", [math.nan, math.inf, -math.inf])
def test_a_reward_that_is_not_a_number_drops_its_trajectory(reward: float) -> None:
    made = trajectory(versions=[0], reward=reward)
    assert why_dropped(made, trained_version=0) == "reward_not_finite"


def test_missing_log_probabilities_matter_only_to_a_loss_that_reads_them() -> None:
    made = replace(trajectory(versions=[0, 0]), behavior_logprobs=(-1.0, math.nan))
    assert why_dropped(made, trained_version=0) == "logprobs_missing"
    assert why_dropped(made, trained_version=0, needs_behavior=False) is None


def test_a_token_of_an_unknown_version_cannot_be_shown_to_keep_a_bound() -> None:
    made = trajectory(versions=[2, None])
    assert why_dropped(made, trained_version=2, max_staleness=1) == "versions_missing"
    assert why_dropped(made, trained_version=2) is None


def test_tokens_that_the_policy_did_not_sample_are_not_looked_at() -> None:
    made = replace(trajectory(versions=[None, 3], mask=[0, 1]), behavior_logprobs=(math.nan, -1.0))
    assert why_dropped(made, trained_version=3, max_staleness=0) is None


@given(st.lists(st.integers(0, 6), min_size=1, max_size=6), st.integers(0, 3), st.integers(0, 6))
def test_no_token_older_than_the_bound_passes(versions: list[int], later: int, bound: int) -> None:
    trained = max(versions) + later
    made = trajectory(versions=versions, completed=max(versions))
    reason = why_dropped(made, trained_version=trained, max_staleness=bound)
    assert (reason is None) == all(trained - version <= bound for version in versions)
    assert reason in (None, "stale")
