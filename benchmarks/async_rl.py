"""Methods of asynchronous training beside synchronous GRPO, on the calculator with a slow tool.

::

    validation tasks, other seeds ─▶ sweep: every arm, the same settings tried ─▶ one setting each
                                                                                      │
    fresh tasks, seeds 0, 1, ... ─▶ study: every arm with its setting ◀───────────────┘
                                        ├─▶ success when sync has ended (equal wall-clock)
                                        ├─▶ success after as many trajectories as sync trained on
                                        └─▶ seconds to the success that sync has reached

Targets, from the papers: PACE beats unfiltered asynchronous training by 18.7 % at equal wall-clock,
reaches sync's final success in 47.1 % less time, and loses nothing at equal samples; SAO trains
1,000 steps without collapse.

Time is training time: an evaluation that training waits for is left out, for every arm. Cells of
one seed are run one after the other before those of the next, so that a machine that slows down
slows all arms alike.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence

from benchmarks import async_arms as arms
from benchmarks.async_curve import Curve
from benchmarks.frame import RESULTS, Options, Report, run
from benchmarks.study import Cell, completed
from lagoon.statistics import mean_interval

MIN_GAIN_OVER_UNFILTERED, MIN_TIME_SAVED = 0.187, 0.471
HEADER = (
    "arm", "seeds", "success at sync's time", "success at sync's samples", "best",
    "seconds to sync's success", "steps", "staleness, mean", "dropped groups",
)  # fmt: skip
SWEEP_HEADER = ("arm", "learning rate", "correction", "seeds", "success at the end", "best", "lag")
LONG_HEADER = ("run", "steps", "seconds", "success before", "best", "after", "masked share")


def study(options: Options) -> Report:
    """Run the missing cells of the study and judge all of them."""
    cells = [
        arms.cell(name, seed, quick=options.quick)
        for seed in range(1 if options.quick else options.seeds)
        for name in arms.ARMS
    ]
    curves = _measured("async_rl", cells, options)
    return report(dict(zip(arms.ARMS, _by_arm(curves, len(arms.ARMS)), strict=True)))


def sweep(options: Options) -> Report:
    """The same settings tried for every arm, on validation tasks and a seed of their own."""
    tried = arms.tried(quick=options.quick)
    curves = _measured("async_rl-sweep", [one.cell for one in tried], options)
    rows = [
        (
            one.arm,
            f"{one.learning_rate:g}",
            one.correction,
            "1",
            _share(curve.at_end),
            _share(curve.best),
            f"{curve.staleness:.1f}",
        )
        for one, curve in zip(tried, curves, strict=True)
    ]
    return Report(SWEEP_HEADER, rows, "what was tried; nothing is judged", [], arms.SWEEP_NOTES)


def long(options: Options) -> Report:
    """SAO over 1,000 steps: does it collapse?"""
    (curve,) = _measured("async_rl-long", [arms.long_cell(quick=options.quick)], options)
    kept = curve.at_end >= curve.best / 2
    missed = [] if kept else [f"sao ended at {curve.at_end:.3f} after a best of {curve.best:.3f}"]
    row = (
        "sao",
        str(curve.steps),
        f"{curve.seconds:.0f}",
        _share(curve.first),
        _share(curve.best),
        _share(curve.at_end),
        _share(curve.masked),
    )
    figure = f"sao trained {curve.steps} steps and ended at {curve.at_end:.3f}"
    return Report(LONG_HEADER, [row], figure, missed, arms.LONG_NOTES)


def _measured(name: str, cells: Sequence[Cell], options: Options) -> list[Curve]:
    if options.quick:
        return [Curve.of(arms.measure(cell)) for cell in cells]
    return [Curve.of(row) for row in completed(name, cells, arms.measure)]


def _by_arm(curves: Sequence[Curve], num_arms: int) -> list[list[Curve]]:
    """Curves of cells in the order of seeds, by arm."""
    return [list(curves[at::num_arms]) for at in range(num_arms)]


def report(curves: Mapping[str, Sequence[Curve]]) -> Report:
    """The table, the figures and the judgement of all curves, by arm; one for each seed."""
    sync = curves[arms.SYNC]
    seconds = [curve.seconds for curve in sync]
    level = sum(curve.at_end for curve in sync) / len(sync)
    steps = sync[0].steps
    rows = [_row(name, found, seconds, steps, level) for name, found in curves.items()]
    gain = _gain(curves[arms.PACE], curves[arms.UNFILTERED], seconds)
    saved = _saved(curves[arms.PACE], sync, level)
    loss = [one.after(steps) - other.at_end for one, other in _pairs(curves[arms.PACE], sync)]
    figure = (
        f"PACE over unfiltered at equal wall-clock {_interval(gain, 100, '%')} (target +18.7 %); "
        f"time saved to sync's success of {level:.3f}: {_saved_words(saved)} (target 47.1 %); "
        f"PACE less sync at equal samples {_interval(loss)} (target 0)"
    )
    return Report(HEADER, rows, figure, _missed(gain, saved, loss), arms.NOTES)


def _row(
    name: str, found: Sequence[Curve], seconds: Sequence[float], steps: int, level: float
) -> list[str]:
    at_time = [one.at_seconds(limit) for one, limit in zip(found, seconds, strict=True)]
    reached = [one.seconds_to(level) for one in found]
    times = [f"{time:.0f}" if time is not None else "never" for time in reached]
    return [
        name,
        str(len(found)),
        _interval(at_time),
        _interval([one.after(steps) for one in found]),
        _interval([one.best for one in found]),
        ", ".join(times),
        " ".join(str(one.steps) for one in found),
        " ".join(f"{one.staleness:.1f}" for one in found),
        " ".join(str(one.num_dropped) for one in found),
    ]


def _pairs(one: Sequence[Curve], other: Sequence[Curve]) -> list[tuple[Curve, Curve]]:
    """Curves of the same seed."""
    return list(zip(one, other, strict=True))


def _gain(
    pace: Sequence[Curve], unfiltered: Sequence[Curve], seconds: Sequence[float]
) -> list[float]:
    """Relative gain of each seed at the seconds that sync took; infinite over nothing."""
    found = []
    for (one, other), limit in zip(_pairs(pace, unfiltered), seconds, strict=True):
        before = other.at_seconds(limit)
        found.append(one.at_seconds(limit) / before - 1 if before else math.inf)
    return found


def _saved(pace: Sequence[Curve], sync: Sequence[Curve], level: float) -> list[float | None]:
    """Share of sync's time to ``level`` that each seed did not need; None for one that never got
    there. Sync's time is its mean, over its whole length where a seed did not get there itself."""
    needed = [curve.seconds_to(level) or curve.seconds for curve in sync]
    usual = sum(needed) / len(needed)
    reached = [curve.seconds_to(level) for curve in pace]
    return [None if time is None else 1 - time / usual for time in reached]


def _saved_words(saved: Sequence[float | None]) -> str:
    known = [share for share in saved if share is not None]
    never = len(saved) - len(known)
    if not known:
        return "no seed reached it"
    return _interval(known, 100, "%") + (f", {never} of {len(saved)} never" if never else "")


def _missed(
    gain: Sequence[float], saved: Sequence[float | None], loss: Sequence[float]
) -> list[str]:
    found = []
    if sum(gain) / len(gain) < MIN_GAIN_OVER_UNFILTERED:
        found.append("PACE over unfiltered at equal wall-clock")
    known = [share for share in saved if share is not None]
    if len(known) < len(saved) or sum(known) / len(known) < MIN_TIME_SAVED:
        found.append("time to sync's success")
    if sum(loss) / len(loss) < 0:
        found.append("PACE against sync at equal samples")
    return found


def _share(value: float) -> str:
    return f"{value:.3f}"


def _interval(values: Sequence[float], scale: float = 1, unit: str = "") -> str:
    """Mean and the ends of its interval over seeds."""
    center, low, high = (scale * end for end in mean_interval(values))
    digits = 1 if unit else 3
    if not math.isfinite(center):
        return "without bound: the other succeeds at nothing"
    ends = f" [{low:.{digits}f}, {high:.{digits}f}]" if math.isfinite(low) else ""
    return f"{center:.{digits}f}{ends}{' ' + unit if unit else ''}"


if __name__ == "__main__":
    parts = {"study": study, "sweep": sweep, "long": long}
    sys.exit(run("async_rl", parts, default_seeds=3, results=RESULTS))
