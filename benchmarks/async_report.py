"""What the study of asynchronous methods says: its table, its figures, which aims were missed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks import async_arms as arms
from benchmarks.async_curve import Axis, Curve
from benchmarks.frame import Report
from lagoon.statistics import mean_interval

MIN_GAIN_OVER_UNFILTERED, MIN_TIME_SAVED = 0.187, 0.471
HEADER = (
    "arm", "seeds", "success at sync's training time", "at sync's wall-clock",
    "at sync's samples", "seconds to sync's success", "s a step", "staleness then", "dropped",
)  # fmt: skip
NOTES = """Greedy success on 256 held-out tasks that no setting was chosen on. A value is the mean
of two evaluations in a row, on a straight line between them where an arm is read between two; in
brackets is the 95 % interval after Student over seeds. It says nothing of other tasks: one
evaluation of 256 has a standard error of 0.03, the same tasks for all. An arm is read at the
seconds that sync took on the same seed, at the trajectories that it trained on (a step of every
arm trains 128), and at the seconds after which it first had the success that sync ended with.
Training time leaves out what publishing waited for evaluations, which sync's generators stand
still for and the others' do not; wall-clock has it and everything else, and asynchronous arms are
evaluated more often in the same time: the truth lies between. One run at a time; each seed begins
with another arm. Dropped are groups, for `sao` trajectories, of the whole run; staleness is the
mean of trained tokens in policy versions at about sync's training time. `sao` trains its critic
alone in its first ten steps, and has its preset's bound of 4, which is ours. Learning rates and
the correction are those of the sweep. PACE leaves the loss as it is: it is compared with
unfiltered training under two losses. What the paper's loss corrects is not known; the pair without
correction was added when its sweep had shown that the clipped ratio hides what staleness does
here. The sweep gave PACE half of the other's rate there, so that pair differs in more than its
filter; the same with one rate is judged beside it. PACE is the preset's, which measures drift
once, when an update first sees a group. The last two arms were added when the others had been
read, and have no sweep of their own: unfiltered training at the rate of PACE, and PACE that
measures drift anew at every version. Generator and trainer have one core each, and what plays the
episodes beside the engine takes of both; for sync, whose phases take turns, the trainer has
both."""


@dataclass(frozen=True, slots=True)
class Pair:
    """PACE and unfiltered training with the same loss, each at the rate that the sweep gave it."""

    loss: str
    pace: str
    unfiltered: str
    at_one_rate: str = ""
    """Unfiltered training at the rate of PACE, where the sweep gave it another."""


PAIRS = (
    Pair("clipped ratio", arms.PACE, arms.UNFILTERED),
    Pair("no correction", arms.PACE_PLAIN, arms.UNFILTERED_PLAIN, arms.UNFILTERED_SLOW),
)


@dataclass(frozen=True, slots=True)
class Aim:
    """One aim, judged: ``margins`` are by how much each seed exceeds it."""

    name: str
    figure: str
    margins: Sequence[float]

    @property
    def verdict(self) -> str:
        """Whether the mean reaches the aim, and whether that is beyond chance."""
        center, low, high = mean_interval(self.margins)
        reached = "reached" if center >= 0 else "missed"
        return reached if low > 0 or high < 0 else f"{reached}, within the interval"

    @property
    def words(self) -> str:
        """Name, figure and verdict."""
        return f"{self.name} {self.figure}: {self.verdict}"


def report(curves: Mapping[str, Sequence[Curve]]) -> Report:
    """The table, the figures and the judgement of all curves, by arm; one for each seed."""
    sync = curves[arms.SYNC]
    rows = [_row(name, found, sync) for name, found in curves.items()]
    judged = [(pair.loss, aims(pair, curves)) for pair in PAIRS]
    figure = ". ".join(
        f"With {loss}: " + "; ".join(aim.words for aim in found) for loss, found in judged
    )
    missed = [
        f"{aim.name}, {loss}"
        for loss, found in judged
        for aim in found
        if aim.verdict.startswith("missed")
    ]
    return Report(HEADER, rows, figure, missed, NOTES)


def aims(pair: Pair, curves: Mapping[str, Sequence[Curve]]) -> list[Aim]:
    """The aims for one pair, each seed beside the sync run of the same seed."""
    sync, pace = curves[arms.SYNC], curves[pair.pace]
    samples = [
        value - one.at_end for value, one in zip(_at_sync(pace, sync, "step"), sync, strict=True)
    ]
    saved = [_saved(one, beside) for one, beside in zip(pace, sync, strict=True)]
    title = "PACE over unfiltered at equal training time (aim +18.7 %)"
    others = [(title, pair.unfiltered)]
    if pair.at_one_rate:
        others.append((f"{title}, at one learning rate", pair.at_one_rate))
    return [
        *(_gain_aim(words, pace, curves[other], sync) for words, other in others),
        Aim(
            "time saved to sync's success (aim 47.1 %)",
            _saved_words(saved),
            [share - MIN_TIME_SAVED for share in saved if share is not None]
            if None not in saved
            else [-1.0] * len(saved),  # one that never got there misses the aim for all
        ),
        Aim("PACE less sync at equal samples (aim 0)", interval(samples), samples),
    ]


def _gain_aim(
    title: str, pace: Sequence[Curve], other: Sequence[Curve], sync: Sequence[Curve]
) -> Aim:
    """Success over that of unfiltered training, when sync has ended."""
    filtered, unfiltered = (_at_sync(found, sync, "seconds") for found in (pace, other))
    walls = [_at_sync(found, sync, "wall_seconds") for found in (pace, other)]
    pairs = list(zip(filtered, unfiltered, strict=True))
    wanted = 1 + MIN_GAIN_OVER_UNFILTERED
    return Aim(
        title,
        f"{_gain(filtered, unfiltered)}, {interval([a - b for a, b in pairs])} by difference "
        f"(at equal wall-clock {_gain(*walls)})",
        [a - wanted * b if a else -wanted for a, b in pairs],  # nothing is no gain over nothing
    )


def _at_sync(found: Sequence[Curve], sync: Sequence[Curve], axis: Axis) -> list[float]:
    """Success of each seed where the sync run of the same seed ended."""
    return [one.at(axis, beside.end(axis)) for one, beside in zip(found, sync, strict=True)]


def _gain(ours: Sequence[float], others: Sequence[float]) -> str:
    """How much more the means over seeds are; a mean of ratios would be decided by the smallest."""
    if not sum(others):
        return "no ratio: the other succeeds at nothing"
    return f"{100 * (sum(ours) / sum(others) - 1):+.1f} %"


def _saved(pace: Curve, sync: Curve) -> float | None:
    """Share of sync's training time to the success it ended with that PACE did not need."""
    needed, taken = sync.reaches("seconds", sync.at_end), pace.reaches("seconds", sync.at_end)
    return None if taken is None or not needed else 1 - taken / needed


def _saved_words(saved: Sequence[float | None]) -> str:
    known = [share for share in saved if share is not None]
    if len(known) == len(saved):
        return interval(known, 100, " %")
    shares = ", ".join("never" if share is None else f"{100 * share:.0f} %" for share in saved)
    return f"by seed {shares}"


def _row(name: str, found: Sequence[Curve], sync: Sequence[Curve]) -> list[str]:
    pairs = list(zip(found, sync, strict=True))
    reached = [one.reaches("seconds", beside.at_end) for one, beside in pairs]
    paces = [one.end("seconds") / one.end("step") for one in found]
    return [
        name,
        str(len(found)),
        interval(_at_sync(found, sync, "seconds")),
        interval(_at_sync(found, sync, "wall_seconds")),
        interval(_at_sync(found, sync, "step")),
        ", ".join("never" if at is None else f"{at:.0f}" for at in reached),
        f"{sum(paces) / len(paces):.1f}",
        " ".join(f"{_lag(one, beside.end('seconds')):.1f}" for one, beside in pairs),
        " ".join(str(one.num_dropped) for one in found),
    ]


def _lag(curve: Curve, seconds: float) -> float:
    """Staleness of what was trained on last until then, as far as it is kept."""
    steps = curve.end("step") * seconds / curve.end("seconds")
    return [lag for step, lag in curve.staleness_curve if step <= max(1, steps)][-1]


def interval(values: Sequence[float], scale: float = 1, unit: str = "") -> str:
    """Mean and the ends of its interval over seeds."""
    center, low, high = (scale * end for end in mean_interval(values))
    digits = 1 if unit else 3
    ends = f" [{low:.{digits}f}, {high:.{digits}f}]" if math.isfinite(low) else ""
    return f"{center:.{digits}f}{ends}{unit}"
