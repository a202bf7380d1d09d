"""The ratio that has a target, and the one that has none."""

import pytest

from benchmarks.async_tokens import Measured, report
from benchmarks.peer_arms import Stretch
from benchmarks.throughput import Compared


@pytest.mark.parametrize(("generator_seconds", "is_missed"), [(1.0, False), (1.25, True)])
def test_only_generators_without_a_trainer_are_judged(generator_seconds, is_missed):
    training = Stretch(
        num_steps=2,
        seconds=2.0,
        waited_seconds=0.5,
        num_trajectories=8,
        num_sampled=1000,
        num_prompt=40,
    )
    found = report(Measured([Compared(1000, generator_seconds, (1.0,))], [training]))
    assert bool(found.missed) == is_missed
    assert found.rows[-1][:2] == ("÷ bare vLLM", "0.500")
    assert found.figure.endswith("0.50 with it at work")
