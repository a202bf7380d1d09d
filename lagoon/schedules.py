"""Schedules as functions of the step alone, so that a form can draw them before the run."""

import math
from typing import Literal

Shape = Literal["constant", "linear", "cosine"]


def learning_rate_at(
    step: int, *, peak: float, shape: Shape, warmup_steps: int, num_steps: int
) -> float:
    """The learning rate of a step counted from 0: a linear rise, then the shape's fall to zero.

    The first step after the warm-up has the peak; the fall would reach zero at ``num_steps``.
    """
    if step < warmup_steps:
        return peak * (step + 1) / (warmup_steps + 1)
    if shape == "constant":
        return peak
    progress = (step - warmup_steps) / max(1, num_steps - warmup_steps)
    if shape == "linear":
        return peak * (1 - progress)
    return peak * 0.5 * (1 + math.cos(math.pi * progress))
