"""A study: a grid of cells, each one training run, measured once and kept as a JSON line.

A rerun measures only the cells that are missing, so that a long study goes on over days.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.frame import progress, versions
from lagoon.metrics import HELDOUT_SUCCESS, HELDOUT_TASKS

ROOT = Path(__file__).parent.parent
DATA = ROOT / "docs" / "results" / "data"


@dataclass(frozen=True, slots=True)
class Cell:
    """One training run of a study."""

    preset: str
    seed: int
    control: str = "none"
    changes: tuple[tuple[str, Any], ...] = ()
    """Settings that differ from the preset, by dotted path."""

    @property
    def key(self) -> dict[str, Any]:
        """What identifies the cell in the data file."""
        return {
            "preset": self.preset,
            "seed": self.seed,
            "control": self.control,
            "changes": dict(self.changes),
        }


def completed(study: str, cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """The cells' results, in order, measuring those that the study's data file lacks."""
    path = DATA / f"{study}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    known = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    results = []
    for number, cell in enumerate(cells, start=1):
        found = [row for row in known if {key: row[key] for key in cell.key} == cell.key]
        if not found:
            progress(f"cell {number} of {len(cells)}: {cell.key}")
            found = [cell.key | train(cell)]
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(found[0]) + "\n")
        results.append(found[0])
    return results


def train(cell: Cell) -> dict[str, Any]:
    """Run the cell with ``lagoon train`` in a fresh folder and read its events.

    Raises ``RuntimeError`` with the run's reason when it does not finish.
    """
    config = yaml.safe_load((ROOT / "presets" / f"{cell.preset}.yaml").read_text())
    config |= {"seed": cell.seed, "control": cell.control}
    for path, value in cell.changes:
        section, name = path.split(".")
        config[section] = {**config.get(section, {}), name: value}
    with tempfile.TemporaryDirectory(prefix="lagoon-study-") as folder:
        file = Path(folder) / "run.yaml"
        file.write_text(yaml.safe_dump(config))
        output = Path(folder) / "out"
        command = [sys.executable, "-m", "cli.main", "train", str(file), "--output", str(output)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        events = [json.loads(line) for line in (output / "events.jsonl").read_text().splitlines()]
    ended = next((event for event in reversed(events) if event["type"] == "ended"), None)
    if done.returncode or ended is None or ended["outcome"] != "finished":
        reason = ended["reason"] if ended else done.stderr[-2000:]
        raise RuntimeError(f"{cell.key} did not finish: {reason}")
    return summary(events)


def summary(events: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """First and last held-out success, steps, tasks and wall-clock of a run's events."""
    success = points(events, HELDOUT_SUCCESS.name)
    return {
        "first": success[0][1],
        "last": success[-1][1],
        "best": max(value for _, value in success),
        "steps": success[-1][0],
        "num_tasks": int(points(events, HELDOUT_TASKS.name)[0][1]),
        "seconds": round(events[-1]["at"] - events[0]["at"], 1),
        "curve": success,
        "versions": versions(),
    }


def points(events: Sequence[Mapping[str, Any]], name: str) -> list[tuple[int, float]]:
    """A metric's (step, value) pairs in the order they were logged."""
    return [
        (event["step"], float(point["value"]))
        for event in events
        if event["type"] == "step"
        for point in event["points"]
        if point["name"] == name
    ]
