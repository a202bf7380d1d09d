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

import sys
from collections.abc import Sequence

from benchmarks import async_arms as arms
from benchmarks.async_curve import Curve
from benchmarks.async_picture import draw
from benchmarks.async_report import report
from benchmarks.frame import RESULTS, Options, Report, run
from benchmarks.study import ROOT, Cell, completed

PICTURE = ROOT / "docs" / "images" / "async-curves.png"
SWEEP_HEADER = ("arm", "learning rate", "correction", "seeds", "success at the end", "best", "lag")
SEARCH_HEADER = ("regime", "arm", "steps", "success before", "best", "at the end", "lag")
LONG_HEADER = ("run", "steps", "seconds", "success before", "best", "after", "masked share")


def study(options: Options) -> Report:
    """Run the missing cells of the study and judge all of them."""
    cells = [
        arms.cell(name, seed, quick=options.quick)
        for seed in range(1 if options.quick else options.seeds)
        for name in arms.ARMS
    ]
    measured = _by_arm(_measured("async_rl", cells, options), len(arms.ARMS))
    curves = dict(zip(arms.ARMS, measured, strict=True))
    if options.write:
        draw(curves, "Calculator with waits of 0.3 s, tuned learning rates", PICTURE)
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
    return Report(SWEEP_HEADER, rows, "what was tried; nothing is judged", [], arms.SWEEP_NOTES)


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
    return Report(SEARCH_HEADER, rows, figure, [], arms.SEARCH_NOTES)


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


def _share(value: float) -> str:
    return f"{value:.3f}"


if __name__ == "__main__":
    parts = {"study": study, "sweep": sweep, "search": search, "long": long}
    sys.exit(run("async_rl", parts, default_seeds=3, results=RESULTS))
