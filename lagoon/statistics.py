"""Intervals for success rates, for what they gained, and for means over seeds."""

import math
import statistics
from collections.abc import Sequence

STUDENT_95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
)  # fmt: skip
"""The 97.5 % quantiles of Student's t for 1 to 20 degrees of freedom."""


def wilson_interval(successes: int, trials: int, z: float = 1.959964) -> tuple[float, float]:
    """The Wilson score interval (95 % by default) of a success rate; (0, 1) without trials."""
    if trials == 0:
        return 0.0, 1.0
    rate = successes / trials
    denominator = 1 + z * z / trials
    center = (rate + z * z / (2 * trials)) / denominator
    half = z * math.sqrt(rate * (1 - rate) / trials + z * z / (4 * trials**2)) / denominator
    return max(0.0, center - half), min(1.0, center + half)


def gain_interval(
    before: tuple[int, int], after: tuple[int, int], z: float = 1.959964
) -> tuple[float, float]:
    """The interval (95 % by default) of ``after`` less ``before``, each (successes, trials).

    Newcombe's, from the Wilson intervals of both, for independent samples. Where both are the same
    tasks it is wider than a paired one, as long as what succeeded before tends to succeed after.
    """
    rates = [successes / trials if trials else 0.0 for successes, trials in (before, after)]
    (low_before, high_before), (low_after, high_after) = (
        wilson_interval(*counts, z) for counts in (before, after)
    )
    gain = rates[1] - rates[0]
    low = gain - math.hypot(rates[1] - low_after, high_before - rates[0])
    high = gain + math.hypot(high_after - rates[1], rates[0] - low_before)
    return max(-1.0, low), min(1.0, high)


def mean_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """The mean of independent repetitions, such as seeds, and the ends of its 95 % interval after
    Student; infinite ends for a single value. Raises ``ValueError`` without any."""
    if not values:
        raise ValueError("no values: they have no mean")
    center = statistics.fmean(values)
    freedom = len(values) - 1
    if not freedom:
        return center, -math.inf, math.inf
    quantile = STUDENT_95[min(freedom, len(STUDENT_95)) - 1]
    half = quantile * statistics.stdev(values) / math.sqrt(len(values))
    return center, center - half, center + half
