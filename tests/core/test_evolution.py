import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lagoon.evolution import member_seeds, noise_seed, tensor_id, z_scores
from lagoon.methods.es import ES

GOLDEN = Path(__file__).parent.parent / "golden"
NORMALISATION = json.loads((GOLDEN / "es_reward_normalisation.json").read_text())["cases"]
AT_SCALE = json.loads((GOLDEN / "es_at_scale.json").read_text())["cases"]


@pytest.mark.parametrize("case", [*NORMALISATION, *AT_SCALE])
def test_z_scores_agree_with_the_published_codes(case: dict) -> None:
    inputs, expected = case["inputs"], case["expected"]
    compared = case.get("compare", "weights")
    wanted = expected[compared]
    # The peer's mean of equal rewards is off by a rounding, which its division by eps inflates.
    is_rounding = case["note"].startswith("allequal")
    ours = z_scores(inputs["rewards"], inputs["eps"])
    assert ours == pytest.approx(wanted, rel=1e-9, abs=1e-6 if is_rounding else 1e-12)


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=40), st.floats(0.1, 10), st.floats(-5, 5))
def test_scaling_and_shifting_all_fitness_leaves_the_update_unchanged(
    fitness: list[float], scale: float, shift: float
) -> None:
    if max(fitness) - min(fitness) < 1e-2:
        return
    moved = [scale * value + shift for value in fitness]
    before, after = ES().coefficients(fitness, 5e-4), ES().coefficients(moved, 5e-4)
    assert after == pytest.approx(before, rel=1e-4, abs=1e-9)


def test_equal_fitness_gives_an_update_of_exactly_zero() -> None:
    assert ES().coefficients([0.1] * 30, 5e-4) == [0.0] * 30


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_fitness_that_is_not_finite_makes_no_coefficients(value: float) -> None:
    with pytest.raises(ValueError, match="the fitness of member 2 is"):
        ES().coefficients([0.1, 0.2, value, 0.4], 5e-4)


def test_member_seeds_are_distinct_and_depend_on_seed_and_generation_alone() -> None:
    seeds = member_seeds(7, 3, 500)
    assert len(set(seeds)) == 500
    assert seeds == member_seeds(7, 3, 500)
    assert seeds != member_seeds(7, 4, 500)
    assert seeds != member_seeds(8, 3, 500)
    assert all(0 <= seed < 2**30 for seed in seeds)


def test_noise_is_keyed_by_tensor_unless_the_reference_is_asked_for() -> None:
    assert noise_seed(5, "a") != noise_seed(5, "b")
    assert noise_seed(5, "a", "reference_compatible") == 5
    assert noise_seed(0, "a") == tensor_id("a")


def test_sigma_and_alpha_are_constant() -> None:
    method = ES(sigma=2e-3, alpha=1e-3)
    assert {method.sigma_at(g, 10) for g in range(10)} == {2e-3}
    assert {method.alpha_at(g, 10) for g in range(10)} == {1e-3}
