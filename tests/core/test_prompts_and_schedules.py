import pytest

from lagoon.prompts import task_index
from lagoon.schedules import learning_rate_at
from lagoon.statistics import gain_interval, wilson_interval


def test_every_epoch_of_a_finite_task_set_is_a_permutation_of_it() -> None:
    order = [task_index(3, position, 10) for position in range(20)]
    assert sorted(order[:10]) == list(range(10))
    assert sorted(order[10:]) == list(range(10))
    assert order[:10] != order[10:]


def test_the_order_depends_on_the_seed_and_the_position_alone() -> None:
    assert task_index(3, 17, None) == task_index(3, 17, None)
    assert task_index(3, 17, None) != task_index(4, 17, None)


@pytest.mark.parametrize("shape", ["constant", "linear", "cosine"])
def test_the_learning_rate_rises_to_its_peak_and_falls_to_zero(shape: str) -> None:
    def at(step: int) -> float:
        return learning_rate_at(step, peak=1.0, shape=shape, warmup_steps=4, num_steps=20)  # type: ignore[arg-type]

    assert [at(step) for step in range(5)] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert at(20) == pytest.approx(1.0 if shape == "constant" else 0.0)
    assert at(12) == pytest.approx(1.0 if shape == "constant" else 0.5)


def test_the_wilson_interval_holds_the_rate_and_narrows_with_trials() -> None:
    low, high = wilson_interval(30, 100)
    assert (low, high) == (pytest.approx(0.2189, abs=1e-4), pytest.approx(0.3958, abs=1e-4))
    assert wilson_interval(0, 0) == (0.0, 1.0)
    assert wilson_interval(0, 10)[0] == 0.0
    assert wilson_interval(10, 10)[1] == pytest.approx(1.0)


def test_the_interval_of_a_gain_is_newcombes() -> None:
    # The published example of the method: 56 of 70 against 48 of 80.
    low, high = gain_interval((48, 80), (56, 70))
    assert (low, high) == (pytest.approx(0.0524, abs=1e-4), pytest.approx(0.3339, abs=1e-4))
    assert gain_interval((56, 70), (48, 80)) == (pytest.approx(-high), pytest.approx(-low))
    assert gain_interval((0, 0), (0, 0)) == (-1.0, 1.0)
