"""The demo's two runs over seeds, beside a control whose rewards are dealt out at random.

Targets: at least 4 of 5 seeds gain 0.25 (GRPO on the calculator) and 0.15 (ES on Sudoku), within
6 and 10 minutes; every control gains less than 0.05.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.frame import Options, Report, run
from benchmarks.study import Cell, completed

BARS = {"grpo-calculator": (0.25, 360.0), "es-sudoku4": (0.15, 600.0)}
"""Gain and seconds that each preset has to reach."""
CONTROL_BAR = 0.05
NOTES = """Greedy success on held-out tasks before and after training. The control is the same run
with the rewards of each step dealt out at random before learning from them. Each row is one run,
alone on the machine, started with `lagoon train`; seconds include starting Ray, the engine and
the trainer. Kept in `docs/results/data/demo.jsonl`; a rerun measures only what is missing."""


def measure(options: Options) -> Report:
    """Run the missing cells and judge all of them."""
    seeds = range(1 if options.quick else options.seeds)
    cells = [
        Cell(preset, seed, control)
        for control in ("none", "shuffled_rewards")
        for preset in BARS
        for seed in seeds
    ]
    results = completed("demo", cells)
    missed = [target for preset in BARS for target in _missed(preset, results)]
    gains = {preset: [_gain(row) for row in _of(results, preset, "none")] for preset in BARS}
    figure = "; ".join(_figure(preset, gains[preset]) for preset in BARS)
    header = ("run", "rewards", "seed", "before", "after", "gain", "tasks", "steps", "seconds")
    return Report(header, [_row(row) for row in results], figure, missed, NOTES)


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
    sys.exit(run("demo", measure, default_seeds=5))
