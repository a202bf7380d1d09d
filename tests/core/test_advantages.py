import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lagoon.advantages import group_standardized, has_signal

GOLDEN = Path(__file__).parent.parent / "golden"
REWARDS = st.lists(st.floats(-100, 100), min_size=2, max_size=16)


def cases(name: str) -> list[dict]:
    return json.loads((GOLDEN / f"{name}.json").read_text())["cases"]


@pytest.mark.parametrize("case", cases("grpo_advantages_trl"))
def test_advantages_agree_with_trl(case: dict) -> None:
    inputs = case["inputs"]
    rewards = [float(row[0]) for row in inputs["rewards_per_function"]]
    size = inputs["group_size"]
    ours = [
        value
        for start in range(0, len(rewards), size)
        for value in group_standardized(
            rewards[start : start + size],
            deviation="sample" if inputs["scale"] == "group" else "none",
            epsilon=inputs["eps"],
        )
    ]
    expected = [float(value) for value in case["expected"]["advantages"]]
    # The peer's deviation passes through float32: every case is off by the same 1.5e-8 of it.
    assert ours == pytest.approx(expected, rel=1e-7, abs=1e-9)


@pytest.mark.parametrize("case", cases("grpo_advantages_peers"))
def test_advantages_agree_with_areal_for_both_deviations(case: dict) -> None:
    inputs = case["inputs"]
    size, deviation = inputs["group_size"], "none"
    if inputs["std_level"]:
        deviation = "sample" if inputs["unbiased"] else "population"
    ours = [
        value
        for start in range(0, len(inputs["rewards"]), size)
        for value in group_standardized(
            inputs["rewards"][start : start + size],
            deviation=deviation,  # type: ignore[arg-type]
            epsilon=inputs["eps"],
        )
    ]
    assert ours == pytest.approx(case["expected"]["advantages"], rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("case", cases("grpo_advantages_verl"))
def test_advantages_agree_with_verl_whatever_the_order_of_the_groups(case: dict) -> None:
    inputs, expected = case["inputs"], case["expected"]["advantages"]
    for name in set(inputs["group"]):
        rows = [row for row, group in enumerate(inputs["group"]) if group == name]
        ours = group_standardized(
            [inputs["rewards"][row] for row in rows],
            deviation="sample" if inputs["normalise_by_std"] else "none",
            epsilon=inputs["eps"],
        )
        for row, value in zip(rows, ours, strict=True):
            masked = [value * is_action for is_action in inputs["mask"][row]]
            assert masked == pytest.approx(expected[row], rel=1e-9, abs=1e-9)


@given(REWARDS)
def test_advantages_of_a_group_sum_to_zero(rewards: list[float]) -> None:
    assert math.fsum(group_standardized(rewards)) == pytest.approx(0.0, abs=1e-6)


@given(st.floats(-1e6, 1e6), st.integers(2, 64))
def test_equal_rewards_give_exactly_zero(reward: float, size: int) -> None:
    assert group_standardized([reward] * size, epsilon=1e-12) == [0.0] * size
    assert not has_signal([reward] * size)


def test_a_reward_that_is_not_a_number_gets_no_advantage_and_moves_no_other() -> None:
    with_nan = group_standardized([1.0, math.nan, 0.0, 1.0])
    without = group_standardized([1.0, 0.0, 1.0])
    assert with_nan == [without[0], 0.0, without[1], without[2]]
