import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lagoon.pace import Candidate, PaceSettings, PaceState, candidate, decide, percentiles
from lagoon.rejections import rejection, rejection_points
from tests.builders import pace_settings, trajectory

CANDIDATES = st.builds(
    Candidate,
    generation=st.floats(0, 5),
    waiting=st.integers(0, 5),
    drift=st.sampled_from([0.0, 0.1, 0.2, 0.5, math.inf]),
    num_tokens=st.integers(1, 50),
    success=st.booleans(),
)
POOLS = st.lists(st.lists(CANDIDATES, min_size=1, max_size=2), max_size=8)


def one(
    *, waiting: int = 0, generation: float = 0.0, drift: float = 0.0, tokens: int = 10
) -> Candidate:
    return Candidate(generation, waiting, drift, tokens, success=True)


def alone(*candidates: Candidate) -> list[list[Candidate]]:
    return [[found] for found in candidates]


HARD = PaceState(rate=1.0)
"""A rate that asks for everything: the budget is then what the next batch leaves."""


def full(batch: int = 1, gamma: float = 4.0) -> PaceSettings:
    """Settings whose rate is the one carried over."""
    return pace_settings(batch, batch, gamma=gamma, smoothing=0.999999)


# -- faithfulness checks (methods.md 2) ------------------------------------------------------------


@given(st.lists(st.integers(0, 5), min_size=1, max_size=6), st.integers(0, 4), st.integers(0, 4))
def test_check_1_total_is_generation_plus_waiting(born: list[int], later: int, waited: int) -> None:
    completed = max(born) + later
    version = completed + waited
    made = trajectory(versions=born, completed=completed)
    found = candidate(made, made.behavior_logprobs, version)
    total = sum(version - one for one in born) / len(born)
    assert found.staleness == pytest.approx(total, abs=1e-12)


@given(st.lists(st.integers(0, 8), max_size=40), st.sampled_from(["of_pool", "of_target"]))
def test_check_2_a_pool_that_never_passes_its_target_loses_nothing(
    occupancies: list[int], excess: str
) -> None:
    state, chosen = PaceState(), pace_settings(2, 8, excess=excess)
    for occupancy in occupancies:
        state, choice = decide(chosen, state, alone(*[one(waiting=3)] * occupancy))
        assert choice.reject == ()
        assert choice.train == (tuple(range(2)) if occupancy >= 2 else ())
    assert state == PaceState()


@given(st.lists(st.integers(0, 9), min_size=2, max_size=10), st.floats(0.1, 8))
def test_check_3_a_policy_that_does_not_move_is_ranked_by_age(
    waits: list[int], gamma: float
) -> None:
    """Learning rate 0: engine and trainer still differ, within their noise."""
    noise, version = 1e-6, 20
    pool = []
    for wait in waits:
        made = trajectory(versions=[version - wait - 2, version - wait], completed=version - wait)
        logprobs = [logprob + 0.5e-6 for logprob in made.behavior_logprobs]
        pool.append([candidate(made, logprobs, version, noise=noise)])
    assert all(group[0].drift == 0 for group in pool)
    _, choice = decide(full(gamma=gamma), HARD, pool)
    assert choice.scores == tuple(waits)
    oldest_first = sorted(range(len(waits)), key=lambda position: -waits[position])
    assert list(choice.reject) == oldest_first[: len(waits) - 1]
    assert set(choice.reasons) <= {"rejected_waiting"}


def test_check_4_crossing_versions_without_drift_goes_behind_any_waiting() -> None:
    crossed = candidate(trajectory(versions=[0, 1, 2, 3, 4], completed=5), [-1.0] * 5, 5, noise=0.0)
    assert (crossed.generation, crossed.drift) == (3.0, 0.0)
    pool = alone(one(waiting=1, drift=0.3), crossed, one(waiting=1, drift=0.1))
    _, choice = decide(full(), HARD, pool)
    assert choice.scores[1] == 0
    assert choice.reject == (0, 2)


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 12), st.sampled_from([0.0, 0.5, 0.9]))
@settings(max_examples=25)
def test_check_5_under_constant_over_supply_the_pool_settles_near_its_target(
    batch: int, surplus: int, slack: int, smoothing: float
) -> None:
    chosen = pace_settings(batch, batch + slack, smoothing=smoothing)
    state, ready, unfiltered, seen = PaceState(), 0, 0, []
    for _ in range(400):
        ready, unfiltered = ready + batch + surplus, unfiltered + surplus
        state, choice = decide(chosen, state, alone(*[one()] * ready))
        seen.append(ready)
        ready -= len(choice.reject) + len(choice.train)
    band = [occupancy - (chosen.target + surplus) for occupancy in seen[200:]]
    assert max(map(abs, band)) <= 2
    assert unfiltered == 400 * surplus


def spearman(left: list[float], right: list[float]) -> float:
    ranks = [np.argsort(np.argsort(values)) for values in (left, right)]
    return float(np.corrcoef(*ranks)[0, 1])


def test_check_6_rejection_depends_less_on_length_than_by_age_alone() -> None:
    """Long rollouts cross more versions; how far the policy drifted has nothing to do with it."""
    random = np.random.default_rng(0)
    pool = []
    for _ in range(300):
        tokens = int(random.integers(10, 200))
        pool.append(
            one(
                generation=tokens / 20,
                waiting=int(random.integers(0, 4)),
                drift=float(random.exponential()),
                tokens=tokens,
            )
        )
    found = {}
    for gamma in (0.0, 4.0):
        _, choice = decide(full(150, gamma=gamma), HARD, alone(*pool))
        lengths = [float(candidate.num_tokens) for candidate in pool]
        gone = [float(position in set(choice.reject)) for position in range(300)]
        found[gamma] = abs(spearman(lengths, gone))
    assert found[4.0] < 0.5 * found[0.0]


# -- the state machine -----------------------------------------------------------------------------


@given(
    st.lists(POOLS, min_size=1, max_size=4),
    st.integers(1, 4),
    st.integers(0, 4),
    st.sampled_from([0.0, 0.5, 0.9]),
    st.sampled_from(["of_pool", "of_target"]),
)
@settings(max_examples=40)
def test_the_budget_is_kept_and_the_next_batch_is_never_touched(
    pools: list, batch: int, slack: int, smoothing: float, excess: str
) -> None:
    chosen = pace_settings(batch, batch + slack, smoothing=smoothing, excess=excess)
    state, due, spent = PaceState(), 0.0, 0
    for pool in pools:
        before = state
        state, choice = decide(chosen, state, pool)
        assert 0 <= choice.rate <= 1
        if len(pool) < batch:
            assert (state, choice.train, choice.reject) == (before, (), ())
            continue
        due, spent = due + choice.rate * len(pool), spent + len(choice.reject)
        assert spent <= due + 1e-9
        assert len(choice.train) == batch
        assert not set(choice.train) & set(choice.reject)
        assert list(choice.train) == sorted(choice.train)
        assert len(choice.reasons) == len(choice.reject)
        kept = [s for p, s in enumerate(choice.scores) if p not in choice.reject]
        worst_kept = max(kept)
        assert all(choice.scores[position] >= worst_kept for position in choice.reject)


def test_the_fraction_of_a_group_is_carried_to_the_next_update() -> None:
    state, rejected = PaceState(rate=0.1), []
    for _ in range(10):
        state, choice = decide(pace_settings(1, 3, smoothing=0.999999), state, alone(*[one()] * 4))
        rejected.append(len(choice.reject))
    assert rejected == [0, 0, 1, 0, 1, 0, 0, 1, 0, 1]  # 0.4 of a group each time


def test_groups_go_as_a_whole_by_their_mean_score() -> None:
    pool = [[one(waiting=1), one(waiting=5)], [one(waiting=2), one(waiting=3)], [one(), one()]]
    _, choice = decide(full(), HARD, pool)
    assert choice.scores == (3.0, 2.5, 0.0)
    assert (choice.reject, choice.train) == ((0, 1), (2,))


def test_ties_are_rejected_oldest_first_and_the_oldest_of_the_rest_is_trained_on() -> None:
    _, choice = decide(
        pace_settings(1, 1, smoothing=0.999999), PaceState(rate=0.5), alone(*[one(waiting=2)] * 4)
    )
    assert choice.reject == (0, 1)
    assert choice.train == (2,)


@given(st.lists(st.sampled_from([0.0, 0.1, 0.2, 0.3, math.inf]), max_size=12))
def test_percentiles_are_shares_ties_share_the_lowest_and_no_drift_is_zero(
    drifts: list[float],
) -> None:
    found = percentiles(drifts)
    for drift, percentile in zip(drifts, found, strict=True):
        assert 0 <= percentile <= 1
        assert percentile == (
            sum(other < drift for other in drifts) / max(1, len(drifts) - 1) if drift else 0.0
        )


def test_gamma_sharpens_towards_the_worst_drifter_and_zero_is_age_alone() -> None:
    pool = alone(*[one(generation=2, drift=drift) for drift in (0.1, 0.2, 0.3)])
    _, by_age = decide(full(gamma=0), PaceState(), pool)
    _, plain = decide(full(gamma=1), PaceState(), pool)
    _, sharp = decide(full(gamma=200), PaceState(), pool)
    assert by_age.scores == (2, 2, 2)
    assert plain.scores == (0, 1, 2)
    assert sharp.scores == pytest.approx((0, 0, 2))


def test_only_older_tokens_drift_and_what_is_missing_is_left_out() -> None:
    made = replace(
        trajectory(versions=[1, 2, None, 1, 3], mask=[1, 1, 1, 1, 1], completed=3),
        behavior_logprobs=(-1.0, -1.0, -1.0, math.nan, -1.0),
    )
    found = candidate(made, [-1.5, -0.9, -9.0, -9.0, -9.0], 3)
    assert found.drift == pytest.approx((0.5 + 0.1) / 2)
    assert found.generation == pytest.approx((2 + 1 + 2 + 0) / 4)
    unknown = replace(made, behavior_logprobs=(math.nan,) * 5)
    assert candidate(unknown, [-1.0] * 5, 3).drift == math.inf
    with pytest.raises(ValueError, match="no token of t has a known policy version"):
        candidate(trajectory(versions=[None, None]), [-1.0, -1.0], 3)


def test_drift_within_a_few_times_the_noise_is_none() -> None:
    made = trajectory(versions=[0, 0], completed=0)
    assert candidate(made, [-1.02, -1.02], 1, noise=0.01).drift == 0.0
    assert candidate(made, [-1.04, -1.04], 1, noise=0.01).drift == pytest.approx(0.04)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"target": 3}, "a target of 3 is below the batch of 4"),
        ({"gamma": -0.1}, "gamma is -0.1"),
        ({"smoothing": 1.0}, "smoothing of 1.0"),
    ],
)
def test_settings_that_cannot_work_are_refused(wrong: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pace_settings(**({"batch": 4, "target": 8} | wrong))


# -- what was rejected -----------------------------------------------------------------------------


def test_what_was_rejected_is_told_by_reason_length_outcome_and_cost() -> None:
    pool = [
        [Candidate(4.0, 0, 0.9, 100, success=False)],
        [Candidate(0.0, 3, 0.0, 10, success=True)],
        [Candidate(1.0, 0, 0.1, 20, success=True)],
        [Candidate(0.0, 0, 0.0, 30, success=True)],
    ]
    _, choice = decide(full(2), HARD, pool)
    assert choice.reject == (0, 1)
    assert choice.reasons == ("rejected_drift", "rejected_waiting")
    found = rejection(pool, choice, 2)
    assert (found.rejected.tokens_each, found.rejected.success) == (55.0, 0.5)
    assert (found.kept.tokens_each, found.kept.success) == (25.0, 1.0)
    assert found.trained.staleness == pytest.approx(20 / 50)
    assert found.without.staleness == pytest.approx((400 + 30) / 110)
    assert found.delay_steps == 1.0
    points = {(p.name, *p.labels.values()): p.value for p in rejection_points(choice, found)}
    assert points["pool/rejected", "rejected_drift"] == 1
    assert points["pool/effective_staleness", "rejected"] == pytest.approx(3.5)
    assert points["pool/rejection_rate", "smoothed"] == pytest.approx(1.0, abs=1e-3)
    assert points["pool/response_tokens", "rejected"] == 55.0
    assert points["pool/response_tokens", "kept"] == 25.0
    assert (points["pool/success", "rejected"], points["pool/success", "kept"]) == (0.5, 1.0)
    assert points["pool/staleness_if_kept",] == pytest.approx((400 + 30) / 110)
    assert points["pool/delay_if_kept",] == 1.0


def test_a_step_without_rejection_reports_none_and_no_figures_of_nothing() -> None:
    pool = alone(one(), one())
    _, choice = decide(pace_settings(1, 2), PaceState(), pool)
    points = rejection_points(choice, rejection(pool, choice, 1))
    rejected = {p.labels["reason"]: p.value for p in points if p.name == "pool/rejected"}
    assert rejected == {"rejected_waiting": 0, "rejected_drift": 0}
    assert {p.labels["fate"] for p in points if "fate" in p.labels} == {"kept"}
    assert not any(math.isnan(p.value) for p in points)
