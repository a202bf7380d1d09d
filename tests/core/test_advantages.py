import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lagoon.advantages import Deviation, group_standardized, has_signal
from tests.core.golden import cases

REWARDS = st.lists(st.floats(-100, 100), min_size=2, max_size=16)


def standardized(
    rewards: Sequence[float], sizes: Sequence[int], deviation: Deviation, epsilon: float
) -> list[float]:
    """Those of groups that stand one behind the other."""
    found: list[float] = []
    for size in sizes:
        group = rewards[len(found) : len(found) + size]
        found += group_standardized(group, deviation=deviation, epsilon=epsilon)
    return found


def rewarded(row: list, weights: list[float]) -> float:
    """The weighted sum of the rewards that are known; NaN when none is."""
    parts = [float(r) * w for r, w in zip(row, weights, strict=True) if not math.isnan(float(r))]
    return sum(parts) if parts else math.nan


@pytest.mark.parametrize(
    "case",
    cases(
        "grpo_advantages_trl",
        where=lambda case: (
            case["inputs"]["scale"] != "batch"
            and case["inputs"]["aggregation"] == "sum_then_normalize"
        ),
    ),
)
def test_advantages_agree_with_trl(case: dict) -> None:
    inputs = case["inputs"]
    rewards = [rewarded(row, inputs["weights"]) for row in inputs["rewards_per_function"]]
    size = inputs["group_size"]
    deviation: Deviation = "sample" if inputs["scale"] == "group" else "none"
    ours = standardized(rewards, [size] * (len(rewards) // size), deviation, inputs["eps"])
    expected = [float(value) for value in case["expected"]["advantages"]]
    # The peer's deviation passes through float32: every case is off by the same 1.5e-8 of it.
    assert ours == pytest.approx(expected, rel=1e-7, abs=1e-9)


def is_of_areal(case: dict) -> bool:
    """Deviations of the group or none; or a batch that is one group."""
    inputs = case["inputs"]
    levels = inputs["mean_level"], inputs["std_level"]
    known = levels in {("group", "group"), ("group", None), ("batch", "batch")}
    return known and not inputs["leave_one_out"]


@pytest.mark.parametrize(
    "case", cases("grpo_advantages_peers", "AReaL Normalization", where=is_of_areal)
)
def test_advantages_agree_with_areal_for_both_deviations(case: dict) -> None:
    inputs, rewards = case["inputs"], case["inputs"]["rewards"]
    deviation: Deviation = "none"
    if inputs["std_level"]:
        deviation = "sample" if inputs["unbiased"] else "population"
    size = len(rewards) if inputs["mean_level"] == "batch" else inputs["group_size"]
    sizes = inputs["group_sizes"] if size is None else [size] * (len(rewards) // size)
    ours = standardized(rewards, sizes, deviation, inputs["eps"])
    assert ours == pytest.approx(case["expected"]["advantages"], rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(
    "case",
    [
        *cases("grpo_advantages_peers", "slime _post_process_rewards"),
        *cases("grpo_advantages_peers", "OpenRLHF dr_grpo", "OpenRLHF group_norm"),
        *cases(
            "grpo_advantages_peers",
            "twinkle GRPOAdvantage",
            where=lambda case: (
                case["inputs"]["scale"] != "batch" and case["inputs"]["group_size"] > 1
            ),
        ),
    ],
)
def test_advantages_agree_with_slime_openrlhf_and_twinkle(case: dict) -> None:
    inputs, rewards = case["inputs"], case["inputs"]["rewards"]
    is_divided = inputs.get("std_normalise", True) and inputs.get("scale") != "none"
    deviation: Deviation = "sample" if is_divided and "dr_grpo" not in case["function"] else "none"
    # slime takes a batch that is not whole groups for one group.
    size = inputs["group_size"] if len(rewards) % inputs["group_size"] == 0 else len(rewards)
    ours = standardized(rewards, [size] * (len(rewards) // size), deviation, inputs["eps"])
    assert ours == pytest.approx(case["expected"]["advantages"], rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(
    "case",
    cases(
        "grpo_advantages_nemo",
        where=lambda case: not case["inputs"]["leave_one_out"],
    ),
)
def test_baseline_and_deviation_agree_with_nemo(case: dict) -> None:
    inputs, epsilon = case["inputs"], 1e-6
    for name in set(inputs["group"]):
        rows = [row for row, group in enumerate(inputs["group"]) if group == name]
        ours = group_standardized(
            [inputs["rewards"][row] if inputs["valid"][row] else math.nan for row in rows],
            deviation="sample",
            epsilon=epsilon,
        )
        for row, value in zip(rows, ours, strict=True):
            baseline, std = (case["expected"][part][row] for part in ("baseline", "std"))
            theirs = (inputs["rewards"][row] - baseline) / (std + epsilon)
            wanted = theirs if inputs["valid"][row] else 0.0
            assert value == pytest.approx(wanted, rel=1e-7, abs=1e-9)


def is_of_groups(case: dict) -> bool:
    """Groups of one keep their reward with verl. Its vectorized form rounds to float32 on the way,
    which is all that is left of rewards that are close to each other."""
    groups = case["inputs"]["group"]
    close = case["note"] in ("allequal", "constplus")
    return len(set(groups)) < len(groups) and not close


@pytest.mark.parametrize(
    "case",
    cases(
        "grpo_advantages_verl",
        "compute_grpo_outcome_advantage",
        "compute_grpo_vectorized_outcome_advantage",
        where=is_of_groups,
    ),
)
def test_advantages_agree_with_verl_whatever_the_order_of_the_groups(case: dict) -> None:
    inputs, expected = case["inputs"], case["expected"]["advantages"]
    precision = 1e-6 if "vectorized" in case["function"] else 1e-9
    for name in set(inputs["group"]):
        rows = [row for row, group in enumerate(inputs["group"]) if group == name]
        ours = group_standardized(
            [inputs["rewards"][row] for row in rows],
            deviation="sample" if inputs["normalise_by_std"] else "none",
            epsilon=inputs["eps"],
        )
        for row, value in zip(rows, ours, strict=True):
            masked = [value * is_action for is_action in inputs["mask"][row]]
            assert masked == pytest.approx(expected[row], rel=precision, abs=1e-9)


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
