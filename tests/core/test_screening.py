import math
from dataclasses import replace

import pytest

from lagoon.screening import UNTRAINABLE, why_dropped
from tests.builders import trajectory


@pytest.mark.parametrize("reward", [math.nan, math.inf, -math.inf])
def test_a_reward_that_is_not_a_number_drops_its_trajectory(reward: float) -> None:
    assert why_dropped(trajectory(versions=[0], reward=reward)) == "reward_not_finite"


def test_missing_log_probabilities_matter_only_to_a_loss_that_reads_them() -> None:
    made = replace(trajectory(versions=[0, 0]), behavior_logprobs=(-1.0, math.nan))
    assert why_dropped(made) == "logprobs_missing"
    assert why_dropped(made, needs_behavior=False) is None


def test_missing_versions_matter_only_to_a_loss_that_reads_them() -> None:
    made = trajectory(versions=[0, None])
    assert why_dropped(made, needs_versions=True) == "versions_missing"
    assert why_dropped(made) is None
    prompted = trajectory(versions=[None, 2], mask=[0, 1])  # nobody sampled its prompt
    assert why_dropped(prompted, needs_versions=True) is None


@pytest.mark.parametrize("needs_behavior", [True, False])
def test_a_trajectory_without_a_sampled_token_gives_nothing_to_train_on(
    needs_behavior: bool,
) -> None:
    empty = trajectory(versions=[None, None], mask=[0, 0])
    assert why_dropped(empty, needs_behavior=needs_behavior) == "no_tokens"
    cut = trajectory(versions=[None, 2, None], mask=[0, 1, 0])  # one turn, and no room for a second
    assert why_dropped(cut, needs_behavior=needs_behavior) is None


def test_it_is_said_of_every_such_reason_what_is_wrong() -> None:
    missing = replace(trajectory(versions=[0]), behavior_logprobs=(math.nan,))
    wrong = [
        trajectory(reward=math.nan),
        trajectory(versions=[None], mask=[0]),
        missing,
        trajectory(versions=[None]),
    ]
    assert {why_dropped(each, needs_versions=True) for each in wrong} == set(UNTRAINABLE)


def test_tokens_that_the_policy_did_not_sample_are_not_looked_at() -> None:
    made = replace(trajectory(versions=[None, 3], mask=[0, 1]), behavior_logprobs=(math.nan, -1.0))
    assert why_dropped(made) is None
