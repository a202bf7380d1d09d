from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from lagoon.config import RunConfig
from lagoon.critic import Updates, adaptive_trace, generalized_advantages
from lagoon.problems import field_problems
from tests.builders import grpo_config


def config(**fields: Any) -> RunConfig:
    return grpo_config(method={"name": "sao"} | fields, budget={"max_steps": 50})


def method(**fields: Any) -> Any:
    return config(**fields).method


def test_one_trajectory_is_played_for_each_prompt_and_none_waits_for_another() -> None:
    chosen = method()
    assert (chosen.prompts_per_step, chosen.trajectories_per_prompt) == (128, 1)
    assert chosen.staleness_bound is None
    assert (chosen.correction, chosen.band.low, chosen.band.high) == ("dis", 0.7, 6.0)


def test_masked_tokens_count_in_the_divisor() -> None:
    assert method().token_weights([3, 5]) == [1 / 8, 1 / 8]


def test_what_trajectories_earned_is_left_to_the_trainer() -> None:
    assert method().advantages([0.25]) == [0.25]


def test_advantages_skip_what_was_not_sampled_and_returns_are_what_was_earned() -> None:
    masks = [(0, 1, 1, 0, 1), (1, 0, 0, 0, 0)]
    values = [np.array([9.0, 0.1, 0.2, 9.0, 0.3]), np.array([0.5, 9, 9, 9, 9])]
    found = method().credit([1.0, 0.0], values, masks)
    trace = adaptive_trace(3, scale=1.5)
    alone = generalized_advantages([0, 0, 1.0], [0.1, 0.2, 0.3], (1, 1, 1), trace=trace)
    assert found[0].advantages[[1, 2, 4]] == pytest.approx(alone.advantages)
    assert list(found[0].advantages[[0, 3]]) == [0, 0]
    assert found[0].returns == pytest.approx([0, 1, 1, 0, 1])
    assert found[1].advantages == pytest.approx([-0.5, 0, 0, 0, 0])


def test_whitening_is_over_the_batch() -> None:
    masks, values = [(1, 0), (1, 1)], [np.zeros(2), np.zeros(2)]
    found = method(whiten=True).credit([1.0, 0.0], values, masks)
    sampled = [found[0].advantages[0], *found[1].advantages]
    assert (np.mean(sampled), np.std(sampled)) == (pytest.approx(0), pytest.approx(1))
    assert found[0].advantages[1] == 0


def test_the_critic_is_trained_alone_at_first_and_more_often_then() -> None:
    chosen = method(critic_warmup_steps=3, critic_updates=4, critic_rate_factor=2.0)
    assert chosen.updates_at(2) == Updates(critic=4, policy=0)
    assert chosen.updates_at(3) == Updates(critic=4, policy=1)
    assert chosen.critic_learning_rate(1e-4) == pytest.approx(2e-4)


def test_a_warm_up_longer_than_the_run_is_refused_with_both_fields() -> None:
    with pytest.raises(ValidationError) as caught:
        config(critic_warmup_steps=50)
    (problem,) = field_problems(caught.value, RunConfig)
    assert set(problem.fields) == {"method.critic_warmup_steps", "budget.max_steps"}


@pytest.mark.parametrize("name", ["grpo", "async_grpo", "pace", "one_step_off"])
def test_a_group_method_has_no_critic(name: str) -> None:
    with pytest.raises(ValidationError, match="critic_updates"):
        grpo_config(method={"name": name, "num_prompts": 2, "group_size": 2, "critic_updates": 2})
