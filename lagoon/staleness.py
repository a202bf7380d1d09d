"""One staleness account for all methods, and the admission rule that bounds it.

For token t of trajectory i, sampled at version b, in a trajectory completed when the trainer was
at c, trained on at v::

    generation = c - b        waiting = v - c        total = v - b = generation + waiting
    worst[i] = v - min_t b
    span[i] = number of distinct b in the trajectory

Histograms hold exact integer counts: one per trained token, one per trajectory for ``worst`` and
``span``. A span of 1 is a trajectory that no publish fell into.
Tokens whose version is unknown are counted as missing, never as zero. Tokens that a mask gave
weight 0 count as trained, and once more under ``masked``.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

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
    masked: dict[int, int] = field(default_factory=dict)
    """The part of ``total`` that a mask gave weight 0."""

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


def quantile(histogram: Mapping[int, int], share: float) -> float:
    """The smallest value that at least ``share`` of the counts do not exceed; NaN when empty."""
    count = sum(histogram.values())
    below = 0
    for value, times in sorted(histogram.items()):
        below += times
        if below >= share * count:
            return value
    return float("nan")


def staleness_account(
    trajectories: Sequence[Trajectory],
    trained_version: int,
    masked: Sequence[Sequence[bool]] | None = None,
) -> StalenessAccount:
    """Account for ``trajectories`` trained on at ``trained_version``.

    ``masked`` says of each trajectory's sampled tokens whether a mask gave them weight 0; None when
    there is no mask, and an empty entry when there was none for that trajectory.
    """
    generation: Counter[int] = Counter()
    waiting: Counter[int] = Counter()
    total: Counter[int] = Counter()
    worst: Counter[int] = Counter()
    span: Counter[int] = Counter()
    without_weight: Counter[int] = Counter()
    missing = 0
    for trajectory, is_masked in zip(trajectories, masked or _unmasked(trajectories), strict=True):
        sampled = _sampled_versions(trajectory)
        known = [version for version in sampled if version is not None]
        missing += len(sampled) - len(known)
        completed = trajectory.completed_version
        for version in known:
            generation[completed - version] += 1
            total[trained_version - version] += 1
        if is_masked:
            without_weight += _ages(sampled, is_masked, trained_version)
        if known:
            waiting[trained_version - completed] += len(known)
            worst[trained_version - min(known)] += 1
            span[len(set(known))] += 1
    return StalenessAccount(
        generation=_in_order(generation),
        waiting=_in_order(waiting),
        total=_in_order(total),
        worst=_in_order(worst),
        span=_in_order(span),
        missing_tokens=missing,
        masked=_in_order(without_weight),
    )


def _in_order(counts: Counter[int]) -> dict[int, int]:
    return dict(sorted(counts.items()))


def _unmasked(trajectories: Sequence[Trajectory]) -> list[tuple[bool, ...]]:
    return [()] * len(trajectories)


def _sampled_versions(trajectory: Trajectory) -> list[int | None]:
    return [
        version
        for version, is_action in zip(trajectory.versions, trajectory.action_mask, strict=True)
        if is_action
    ]


def _ages(
    versions: Sequence[int | None], chosen: Sequence[bool], trained_version: int
) -> Counter[int]:
    """The ages of the ``chosen`` tokens whose version is known."""
    return Counter(
        trained_version - version
        for version, is_chosen in zip(versions, chosen, strict=True)
        if is_chosen and version is not None
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
