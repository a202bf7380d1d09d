"""What the trainer tells of a step: sums over tokens, and what it found of each of them."""

from __future__ import annotations

from dataclasses import dataclass

from lagoon.drift import TokenScores
from lagoon.metrics import Metric

Sums = dict[Metric, tuple[float, float]]
"""(sum, count) of each metric."""


@dataclass(frozen=True, slots=True)
class StepReport:
    """One optimizer step, without tensors: it goes from the trainer's process to the driver's."""

    sums: dict[str, tuple[float, float]]
    """(sum, count) by metric name."""
    scores: tuple[TokenScores, ...]
    """Of each sample, in the order in which they were given."""


def add(sums: Sums, more: Sums) -> None:
    """Add ``more`` to ``sums``."""
    for metric, (value, count) in more.items():
        before = sums.get(metric, (0.0, 0.0))
        sums[metric] = (before[0] + value, before[1] + count)
