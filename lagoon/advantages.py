"""Advantages of a group of rewards, in float64 (arXiv:2402.03300 and its variants)."""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

Deviation = Literal["population", "sample", "none"]


def group_standardized(
    rewards: Sequence[float], *, deviation: Deviation = "population", epsilon: float = 1e-6
) -> list[float]:
    """``(r - mean) / (std + epsilon)``, or only centered when ``deviation`` is "none".

    Groups without spread give exactly zero: the mean of equal floats is not always exact, and
    dividing that round-off by epsilon would be a step in an arbitrary direction. A NaN reward
    stays out of the mean and the deviation and gets no advantage.
    """
    values = np.asarray(rewards, dtype=np.float64)
    scored = ~np.isnan(values)
    known = values[scored]
    if known.size == 0 or known.max() == known.min():
        return [0.0] * len(values)
    centered = np.where(scored, values - known.mean(), 0.0)
    if deviation != "none":
        centered = centered / (known.std(ddof=1 if deviation == "sample" else 0) + epsilon)
    return [float(value) for value in centered]


def has_signal(rewards: Sequence[float]) -> bool:
    """True when the rewards of a group differ, so that training on it moves the policy."""
    known = [reward for reward in rewards if not math.isnan(reward)]
    return bool(known) and min(known) != max(known)
