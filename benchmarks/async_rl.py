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

Cells of one seed are run one after the other before those of the next, each seed in another order,
so that a machine that slows down does not always slow the same arm.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from benchmarks import async_arms as arms
from benchmarks.async_curve import Curve
from benchmarks.async_picture import draw
from benchmarks.async_report import report
from benchmarks.frame import RESULTS, Options, Report, run
from benchmarks.study import ROOT, Cell, completed

FIRST_SEED = 1
"""Seed 0 was begun on a slower machine and not finished there: its seven cells are in the data file
and in no table, for the arms of a seed are read at the seconds of one of them."""
PICTURE = ROOT / "docs" / "images" / "async-curves.png"
SWEEP_HEADER = (
    "arm", "learning rate", "correction", "seeds", "success at the end", "best", "mean lag",
)  # fmt: skip
SEARCH_HEADER = (
    "regime", "arm", "steps", "success before", "best", "at the end", "lag near the end",
)  # fmt: skip
LONG_HEADER = (
    "run", "steps", "seconds", "success before", "best", "lowest after it", "after", "masked share",
)  # fmt: skip
SWEEP_NOTES = """One run of each, on validation tasks and a seed that the study does not use: every
learning rate for every arm, and the other corrections for the bounded arm at 2e-4. Sync has the 40
steps of the study, the others 90 s, in which they train on about as much. An arm of the study has
the settings with the best success at the end, the mean of its last two evaluations of 128 tasks,
whose standard error is 0.03 to 0.04: settings closer than that were chosen by chance. The mean lag
is that of trained tokens over all steps. Within 90 s it grows to a fraction of what it is when the
study reads its arms: a rate that suffers from more of it was not found out."""
SEARCH_NOTES = """One run of each, on validation tasks and a seed that the study does not use, with
the study's settings but for those named. A success is the mean of two evaluations of 128 tasks,
whose standard error is 0.03 to 0.04. Lag is the mean staleness of trained tokens in a step near the
end."""
LONG_NOTES = """One run, with batches of 32 trajectories so that it ends within the hour, at the
learning rate chosen for batches of 128, and with the preset's bound of 4 on the staleness that a
start decides, which is ours. A success is the mean of two evaluations of 256 tasks, whose standard
error is about 0.02. Collapse is an end below half of the best success."""


def study(options: Options) -> Report:
    """Run the missing cells of the study and judge all of them."""
    seeds = range(FIRST_SEED, FIRST_SEED + (1 if options.quick else options.seeds))
    names = arms.QUICK_ARMS if options.quick else (*arms.ARMS, *arms.ADDED)
    order = [(name, seed) for seed in seeds for name in arms.in_turn(seed) if name in names]
    cells = [arms.cell(name, seed, quick=options.quick) for name, seed in order]
    curves: dict[str, list[Curve]] = {name: [] for name in names}
    for (name, _), curve in zip(order, _measured("async_rl", cells, options), strict=True):
        curves[name].append(curve)
    if options.quick:
        rows = [
            [name, str(found[0].steps), _share(found[0].at_end)] for name, found in curves.items()
        ]
        return Report(("arm", "steps", "success"), rows, "they train; nothing is judged", [])
    if options.write:
        shown = {name: curves[name] for name in arms.ARMS}
        draw(shown, "Calculator with waits of 0.3 s, tuned learning rates", PICTURE)
    return report(curves)


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
    return Report(SWEEP_HEADER, rows, "what was tried; nothing is judged", [], SWEEP_NOTES)


def search(options: Options) -> Report:
    """Where does training on everything suffer?"""
    searched = arms.searched(quick=options.quick)
    curves = _measured("async_rl-search", [cell for _, _, cell in searched], options)
    rows = [
        (
            regime,
            name,
            str(curve.steps),
            _share(curve.first),
            _share(curve.best),
            _share(curve.at_end),
            f"{curve.staleness_curve[-1][1]:.1f}",
        )
        for (regime, name, _), curve in zip(searched, curves, strict=True)
    ]
    figure = "what was tried; nothing is judged"
    return Report(SEARCH_HEADER, rows, figure, [], SEARCH_NOTES)


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
        _share(curve.lowest_after_best),
        _share(curve.at_end),
        _share(curve.masked),
    )
    figure = f"sao trained {curve.steps} steps and ended at {curve.at_end:.3f}"
    return Report(LONG_HEADER, [row], figure, missed, LONG_NOTES)


def _measured(name: str, cells: Sequence[Cell], options: Options) -> list[Curve]:
    if options.quick:
        return [Curve.of(arms.measure(cell)) for cell in cells]
    return [Curve.of(row) for row in completed(name, cells, arms.measure)]


def _share(value: float) -> str:
    return f"{value:.3f}"


if __name__ == "__main__":
    parts = {"study": study, "sweep": sweep, "search": search, "long": long}
    sys.exit(run("async_rl", parts, default_seeds=3, results=RESULTS))
