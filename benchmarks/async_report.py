"""What the study of asynchronous methods says: its table, its figures, which aims were missed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks import async_arms as arms
from benchmarks.async_curve import Curve
from benchmarks.frame import Report
from lagoon.statistics import mean_interval

MIN_GAIN_OVER_UNFILTERED, MIN_TIME_SAVED = 0.187, 0.471
HEADER = (
    "arm", "seeds", "success at sync's time", "success at sync's samples", "best", "at the end",
    "seconds to sync's success", "steps", "staleness, mean", "dropped groups",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Pair:
    """PACE and the arm that differs from it in its filter alone."""

    loss: str
    pace: str
    unfiltered: str


PAIRS = (
    Pair("clipped ratio", arms.PACE, arms.UNFILTERED),
    Pair("no correction", arms.PACE_PLAIN, arms.UNFILTERED_PLAIN),
)


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the aims are about, seed by seed."""

    gain: Sequence[float]
    """Of PACE over unfiltered at the seconds that sync took, relative; infinite over nothing."""
    saved: Sequence[float | None]
    """Share of sync's seconds to sync's success that PACE did not need; None where it never got
    there."""
    difference: Sequence[float]
    """Success of PACE less that of sync after as many trajectories."""

    @property
    def words(self) -> str:
        """The figures, with intervals."""
        return (
            f"PACE over unfiltered at equal wall-clock {interval(self.gain, 100, '%')} (target "
            f"+18.7 %), time saved to sync's success {self._saved_words()} (target 47.1 %), less "
            f"sync at equal samples {interval(self.difference)} (target 0)"
        )

    def _saved_words(self) -> str:
        known = [share for share in self.saved if share is not None]
        never = len(self.saved) - len(known)
        if not known:
            return "no seed reached it"
        words = interval(known, 100, "%")
        return words + (f", {never} of {len(self.saved)} never" if never else "")

    @property
    def missed(self) -> list[str]:
        """The aims that the means do not reach."""
        found = []
        if _mean(self.gain) < MIN_GAIN_OVER_UNFILTERED:
            found.append("PACE over unfiltered at equal wall-clock")
        known = [share for share in self.saved if share is not None]
        if len(known) < len(self.saved) or _mean(known) < MIN_TIME_SAVED:
            found.append("time to sync's success")
        if _mean(self.difference) < 0:
            found.append("PACE against sync at equal samples")
        return found


def report(curves: Mapping[str, Sequence[Curve]]) -> Report:
    """The table, the figures and the judgement of all curves, by arm; one for each seed."""
    sync = curves[arms.SYNC]
    level = _mean([curve.at_end for curve in sync])
    rows = [_row(name, found, sync, level) for name, found in curves.items()]
    judged = [(pair.loss, judgement(pair, curves, level)) for pair in PAIRS]
    figure = "; ".join(f"{loss}: {found.words}" for loss, found in judged)
    missed = [f"{words}, {loss}" for loss, found in judged for words in found.missed]
    return Report(HEADER, rows, f"Sync's success is {level:.3f}. {figure}", missed, arms.NOTES)


def judgement(pair: Pair, curves: Mapping[str, Sequence[Curve]], level: float) -> Judgement:
    """Of one pair. Sync's time to ``level`` is its mean, over its whole length where a seed did
    not get there itself."""
    sync, pace, unfiltered = (curves[name] for name in (arms.SYNC, pair.pace, pair.unfiltered))
    usual = _mean([curve.seconds_to(level) or curve.seconds for curve in sync])
    reached = [curve.seconds_to(level) for curve in pace]
    gain, difference = [], []
    for filtered, other, one in zip(pace, unfiltered, sync, strict=True):
        before = other.at_seconds(one.seconds)
        gain.append(filtered.at_seconds(one.seconds) / before - 1 if before else math.inf)
        difference.append(filtered.after(one.steps) - one.at_end)
    saved = [None if time is None else 1 - time / usual for time in reached]
    return Judgement(gain, saved, difference)


def _row(name: str, found: Sequence[Curve], sync: Sequence[Curve], level: float) -> list[str]:
    pairs = list(zip(found, sync, strict=True))
    reached = [one.seconds_to(level) for one in found]
    times = [f"{time:.0f}" if time is not None else "never" for time in reached]
    return [
        name,
        str(len(found)),
        interval([one.at_seconds(beside.seconds) for one, beside in pairs]),
        interval([one.after(beside.steps) for one, beside in pairs]),
        interval([one.best for one in found]),
        interval([one.at_end for one in found]),
        ", ".join(times),
        " ".join(str(one.steps) for one in found),
        " ".join(f"{one.staleness:.1f}" for one in found),
        " ".join(str(one.num_dropped) for one in found),
    ]


def interval(values: Sequence[float], scale: float = 1, unit: str = "") -> str:
    """Mean and the ends of its interval over seeds."""
    center, low, high = (scale * end for end in mean_interval(values))
    digits = 1 if unit else 3
    if not math.isfinite(center):
        return "without bound: the other succeeds at nothing"
    ends = f" [{low:.{digits}f}, {high:.{digits}f}]" if math.isfinite(low) else ""
    return f"{center:.{digits}f}{ends}{' ' + unit if unit else ''}"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
