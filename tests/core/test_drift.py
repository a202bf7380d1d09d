import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lagoon.drift import QUANTILES, TokenScores, drift, drift_points, effective_samples
from lagoon.trajectory import Trajectory
from tests.builders import trajectory
from tests.core.golden import cases, padded

LOG_RATIOS = st.lists(st.floats(-5, 5), min_size=1, max_size=20)


def sampled(versions: list[int | None], behavior: list[float]) -> Trajectory:
    return replace(trajectory(versions=versions, completed=9), behavior_logprobs=tuple(behavior))


def test_tokens_at_the_trained_version_are_mismatch_and_older_ones_are_lag() -> None:
    made = sampled([3, 1, 3, 2], [-1.0, -1.0, -2.0, -1.0])
    found = drift([made], [TokenScores([-1.1, -1.5, -2.0, -0.5])], 3)
    assert found.mismatch is not None
    assert found.lag is not None
    assert (found.mismatch.num_tokens, found.lag.num_tokens, found.num_unknown) == (2, 2, 0)
    assert found.mismatch.logprob_abs == pytest.approx(0.05)
    assert found.lag.logprob_abs == pytest.approx(0.5)
    assert found.lag.ratio_quantiles[0.5] == pytest.approx(1.0)


def test_what_is_missing_is_counted_and_is_in_no_other_figure() -> None:
    made = sampled([None, 2, 2], [-1.0, math.nan, -1.0])
    found = drift([made], [TokenScores([-9.0, -9.0, -1.0])], 2)
    assert found.num_unknown == 2
    assert found.lag is None
    assert found.mismatch is not None
    assert (found.mismatch.num_tokens, found.mismatch.kl) == (1, 0.0)


def test_a_cause_without_tokens_is_left_out_not_zero() -> None:
    points = drift_points(drift([sampled([0], [-1.0])], [TokenScores([-1.0])], 4))
    assert {p.labels["cause"]: p.value for p in points if p.name == "drift/tokens"} == {
        "unknown": 0,
        "mismatch": 0,
        "lag": 1,
    }
    assert {p.labels["cause"] for p in points if p.name == "drift/kl"} == {"lag"}
    assert drift_points(drift([], [], 4))[0].value == 0


def test_tokens_that_the_policy_did_not_sample_are_not_compared() -> None:
    made = trajectory(versions=[None, 1, None, 1], mask=[0, 1, 0, 1], completed=1)
    found = drift([made], [TokenScores([-1.0, -1.2])], 1)
    assert found.num_unknown == 0
    assert found.mismatch is not None
    assert found.mismatch.num_tokens == 2


def test_scores_that_are_not_as_many_as_the_tokens_are_refused() -> None:
    with pytest.raises(ValueError, match="1 scores for 2 sampled tokens"):
        drift([sampled([0, 0], [-1.0, -1.0])], [TokenScores([-1.0])], 0)


def test_clipped_and_masked_shares_are_told_apart_by_cause_and_side() -> None:
    made = sampled([1, 1, 0, 0], [-1.0] * 4)
    scores = TokenScores(
        [-1.0] * 4,
        below=[True, False, False, False],
        above=[False, False, True, True],
        masked=[False, False, True, False],
    )
    shares = {
        (p.name, p.labels["cause"], p.labels["side"]): p.value
        for p in drift_points(drift([made], [scores], 1))
        if "side" in p.labels
    }
    assert shares == {
        ("drift/clipped_ratio", "mismatch", "low"): 0.5,
        ("drift/clipped_ratio", "mismatch", "high"): 0.0,
        ("drift/clipped_ratio", "lag", "low"): 0.0,
        ("drift/clipped_ratio", "lag", "high"): 1.0,
        ("drift/masked_ratio", "mismatch", "low"): 0.0,
        ("drift/masked_ratio", "mismatch", "high"): 0.0,
        ("drift/masked_ratio", "lag", "low"): 0.0,
        ("drift/masked_ratio", "lag", "high"): 0.5,
    }


@given(LOG_RATIOS)
def test_the_divergence_is_never_negative_and_zero_only_without_any(
    log_ratios: list[float],
) -> None:
    made = sampled([0] * len(log_ratios), [-6.0] * len(log_ratios))
    found = drift([made], [TokenScores([r - 6.0 for r in log_ratios])], 1).lag
    assert found is not None
    assert found.kl >= -1e-12
    assert 0 < found.effective_samples <= 1 + 1e-12
    quantiles = [found.ratio_quantiles[q] for q in QUANTILES]
    assert quantiles == sorted(quantiles)


@given(st.integers(1, 30), st.floats(1e-6, 1e6))
def test_equal_weights_are_all_effective_and_one_of_many_is_one(count: int, weight: float) -> None:
    assert effective_samples([weight] * count) == pytest.approx(1.0)
    assert effective_samples([weight] + [0.0] * (count - 1)) == pytest.approx(1 / count)
    assert math.isnan(effective_samples([0.0] * count))


@pytest.mark.parametrize("case", cases("loss_prime_rl", "mismatch_kl"))
def test_the_divergence_agrees_with_prime_rl(case: dict) -> None:
    rows = zip(case["inputs"]["logp"], case["inputs"]["logp_rollout"], strict=True)
    for (logprobs, behavior), expected in zip(rows, case["expected"]["mismatch_kl"], strict=True):
        for current, before, wanted in zip(
            logprobs, behavior, np.atleast_1d(expected), strict=True
        ):
            found = drift([sampled([0], [before])], [TokenScores([current])], 1).lag
            assert found is not None
            assert found.kl == pytest.approx(wanted, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("case", cases("rollout_correction_verl", "compute_offpolicy_metrics"))
def test_the_divergence_agrees_with_verl(case: dict) -> None:
    inputs = case["inputs"]
    trajectories, scores = [], []
    for current, behavior, mask in zip(
        inputs["logp_train"], inputs["logp_rollout"], inputs["mask"], strict=True
    ):
        made = trajectory(versions=[0] * len(mask), mask=[int(m) for m in mask], completed=0)
        trajectories.append(replace(made, behavior_logprobs=tuple(behavior)))
        scores.append(TokenScores([c for c, m in zip(current, mask, strict=True) if m]))
    found = drift(trajectories, scores, 1).lag
    assert found is not None
    assert found.kl == pytest.approx(case["expected"]["k3_kl"], rel=1e-6)


@pytest.mark.parametrize(
    "case", cases("rollout_correction_verl", "compute_rollout_correction_weights")
)
def test_the_effective_sample_size_agrees_with_verl(case: dict) -> None:
    mask, _ = padded(case["inputs"]["mask"])
    weights, _ = padded(case["expected"]["weights"])
    expected = case["expected"]["metrics"]["rollout_is_eff_sample_size"]
    assert effective_samples(weights[mask.bool()].numpy()) == pytest.approx(expected, rel=1e-5)
