"""The demo's two runs over seeds, beside a control whose rewards are dealt out at random.

Targets: at least 4 of 5 seeds gain 0.25 (GRPO on the calculator) and 0.15 (ES on Sudoku), within
6 and 10 minutes; every control gains less than 0.05.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.frame import RESULTS, Options, Report, run
from benchmarks.study import Cell, completed, train

BARS = {"grpo-calculator": (0.25, 360.0), "es-sudoku4": (0.15, 600.0)}
"""Gain and seconds that each preset has to reach."""
CONTROL_BAR = 0.05
HEADER = ("run", "rewards", "seed", "before", "after", "gain", "tasks", "steps", "seconds")
QUICK = {
    "grpo-calculator": (("budget.max_steps", 2), ("evaluation.num_tasks", 32)),
    "es-sudoku4": (
        ("budget.max_steps", 1),
        ("evaluation.num_tasks", 32),
        ("method.population", 8),
    ),
}
"""Settings of a quick look: it shows that both runs go, not that they learn."""
NOTES = """Greedy success on held-out tasks before and after training. The control is the same run
with the rewards of each step dealt out at random before learning from them. One run at a time,
started with `lagoon train`, with short tests of other code beside some of them. Seconds are those
from the driver's first event, when Ray is up, to its last. The weights that all runs start from
are those of `lagoon models build tiny`, whose second, short stage of teaching lowers the level on
purpose (decision 10): a part of each gain is the recovery of what the model had learned before.
Kept in `docs/results/data/demo.jsonl`; a rerun measures only what is missing."""
NOTES_QUICK = "A step or two of each run, 32 held-out tasks, no control: nothing is judged."


def measure(options: Options) -> Report:
    """Run the missing cells and judge all of them; a quick look judges nothing."""
    if options.quick:
        rows = [
            Cell(preset, 0, changes=changes).key | train(Cell(preset, 0, changes=changes))
            for preset, changes in QUICK.items()
        ]
        return Report(HEADER, [_row(row) for row in rows], "both runs finished", [], NOTES_QUICK)
    cells = [
        Cell(preset, seed, control)
        for control in ("none", "shuffled_rewards")
        for preset in BARS
        for seed in range(options.seeds)
    ]
    return report(completed("demo", cells))


def report(results: Sequence[Mapping[str, Any]]) -> Report:
    """The table, the figure and the judgement of all cells' results."""
    missed = [target for preset in BARS for target in _missed(preset, results)]
    gains = {preset: [_gain(row) for row in _of(results, preset, "none")] for preset in BARS}
    figure = "; ".join(_figure(preset, gains[preset]) for preset in BARS)
    return Report(HEADER, [_row(row) for row in results], figure, missed, NOTES)


def _figure(preset: str, gains: Sequence[float]) -> str:
    bar = BARS[preset][0]
    met, mean = sum(gain >= bar for gain in gains), sum(gains) / len(gains)
    return f"{preset}: {met} of {len(gains)} seeds gain {bar} or more (mean {mean:+.3f})"


def _of(results: Sequence[Mapping[str, Any]], preset: str, control: str) -> list[Mapping[str, Any]]:
    return [row for row in results if row["preset"] == preset and row["control"] == control]


def _gain(row: Mapping[str, Any]) -> float:
    return float(row["last"] - row["first"])


def _missed(preset: str, results: Sequence[Mapping[str, Any]]) -> list[str]:
    bar, limit = BARS[preset]
    rows, controls = _of(results, preset, "none"), _of(results, preset, "shuffled_rewards")
    met = sum(_gain(row) >= bar for row in rows)
    found = []
    if met < len(rows) - len(rows) // 5:
        found.append(f"{preset}: only {met} of {len(rows)} seeds gained {bar}")
    if slow := [row["seed"] for row in rows if row["seconds"] > limit]:
        found.append(f"{preset}: seeds {slow} took more than {limit:g} s")
    if learned := [row["seed"] for row in controls if _gain(row) >= CONTROL_BAR]:
        found.append(f"{preset}: controls {learned} gained {CONTROL_BAR} or more")
    return found


def _row(row: Mapping[str, Any]) -> list[str]:
    rewards = "shuffled" if row["control"] == "shuffled_rewards" else "real"
    numbers = (f"{row['first']:.3f}", f"{row['last']:.3f}", f"{_gain(row):+.3f}")
    counts = (str(row["num_tasks"]), str(row["steps"]), f"{row['seconds']:.0f}")
    return [row["preset"], rewards, str(row["seed"]), *numbers, *counts]


if __name__ == "__main__":
    sys.exit(run("demo", measure, default_seeds=5, results=RESULTS))
