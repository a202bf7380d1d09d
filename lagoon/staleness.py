"""One staleness account for all methods, and the admission rule that bounds it.

For token t of trajectory i, sampled at version b, in a trajectory completed when the trainer was
at c, trained on at v::

    generation = c - b        waiting = v - c        total = v - b = generation + waiting
    worst[i] = v - min_t b
    span[i] = number of distinct b in the trajectory

Histograms hold exact integer counts: one per trained token, one per trajectory for ``worst`` and
``span``. A span of 1 is a trajectory that no publish fell into.
Tokens whose version is unknown are counted as missing, never as zero.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from lagoon.trajectory import Trajectory


@dataclass(frozen=True, slots=True)
class StalenessAccount:
    """The staleness of everything one update trained on."""

    generation: dict[int, int]
    waiting: dict[int, int]
    total: dict[int, int]
    worst: dict[int, int]
    span: dict[int, int]
    missing_tokens: int
    """Trained tokens without a known version."""

    @property
    def num_tokens(self) -> int:
        """Trained tokens with a known version."""
        return sum(self.total.values())

    @property
    def coverage(self) -> float:
        """Share of the trained tokens whose version is known; 1 when nothing was trained."""
        trained = self.num_tokens + self.missing_tokens
        return self.num_tokens / trained if trained else 1.0


def mean(histogram: dict[int, int]) -> float:
    """Mean of an integer histogram; NaN when it is empty."""
    count = sum(histogram.values())
    if not count:
        return float("nan")
    return sum(value * times for value, times in histogram.items()) / count


def staleness_account(trajectories: Iterable[Trajectory], trained_version: int) -> StalenessAccount:
    """Account for ``trajectories`` trained on at ``trained_version``."""
    generation: Counter[int] = Counter()
    waiting: Counter[int] = Counter()
    total: Counter[int] = Counter()
    worst: Counter[int] = Counter()
    span: Counter[int] = Counter()
    missing = 0
    for trajectory in trajectories:
        sampled = [
            version
            for version, is_action in zip(trajectory.versions, trajectory.action_mask, strict=True)
            if is_action
        ]
        known = [version for version in sampled if version is not None]
        missing += len(sampled) - len(known)
        completed = trajectory.completed_version
        for version in known:
            generation[completed - version] += 1
            total[trained_version - version] += 1
        if known:
            waiting[trained_version - completed] += len(known)
            worst[trained_version - min(known)] += 1
            span[len(set(known))] += 1
    return StalenessAccount(
        dict(sorted(generation.items())),
        dict(sorted(waiting.items())),
        dict(sorted(total.items())),
        dict(sorted(worst.items())),
        dict(sorted(span.items())),
        missing,
    )


def admissible(version: int, started: int, *, max_staleness: int, batch_size: int) -> int:
    """How many more groups may start now and still be fresh when trained on.

    Group ``i`` is consumed, first in first out, by the update that turns version
    ``i // batch_size`` into the next. Starting it at ``version`` keeps its staleness within
    bounds exactly when ``i < (version + max_staleness + 1) * batch_size``. ``started`` counts
    the groups started and not dropped. A bound of 0 is synchronous training. A group that later
    ones overtake is consumed later, and may exceed the bound.
    """
    return max(0, (version + max_staleness + 1) * batch_size - started)
