"""A study: a grid of cells, each one training run, measured once and kept as a JSON line.

A rerun measures only the cells that are missing, so that a long study goes on over days. A kept
result counts only for what it was made from: the resolved config and the model's weights. A setting
that did not exist yet when it was made does not make it invalid.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import yaml

from benchmarks.frame import progress, versions
from lagoon.config import RunConfig
from lagoon.metrics import GENERATE_SECONDS, HELDOUT_SUCCESS, HELDOUT_TASKS
from workers.models.folders import model_folder
from workers.settings import own_home

ROOT = Path(__file__).parent.parent
DATA = ROOT / "docs" / "results" / "data"
IN_TURN: Mapping[str, Any] = {"trainer.cpus": 2, "resources.cpus_per_generator": 0}
"""Settings of a run whose generator and trainer take turns: both cores are the trainer's when it is
its turn."""


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


def completed(
    study: str,
    cells: Sequence[Cell],
    measure: Callable[[Cell], dict[str, Any]] | None = None,
    *,
    data: Path = DATA,
    where: Callable[[str], Path] | None = None,
) -> list[dict[str, Any]]:
    """The cells' results, in order, measuring those that the study's data file lacks.

    A result of the same cell that was made from another config or other weights does not count.
    ``where`` gives the folder of the model that a config names.
    """
    path = data / f"{study}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    known = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    results = []
    for number, cell in enumerate(cells, start=1):
        made_from = _made_from(resolved(cell), where or folder_of)
        found = [row for row in known if counts_for(row, cell, made_from)]
        if not found:
            progress(f"cell {number} of {len(cells)}: {cell.key}")
            found = [cell.key | {"made_from": made_from} | (measure or train)(cell)]
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(found[0]) + "\n")
        results.append(found[0])
    return results


def counts_for(row: Mapping[str, Any], cell: Cell, made_from: Mapping[str, Any]) -> bool:
    """Whether a kept result is one of this cell, made from what a run today is made from."""
    is_same_cell = all(row[name] == value for name, value in cell.key.items())
    return is_same_cell and _is_part_of(row["made_from"], made_from)


def _is_part_of(kept: Any, now: Any) -> bool:
    """Equal, leaving out the keys that ``kept`` does not have."""
    if isinstance(kept, dict) and isinstance(now, dict):
        return all(name in now and _is_part_of(value, now[name]) for name, value in kept.items())
    return bool(kept == now)


def _made_from(config: RunConfig, where: Callable[[str], Path]) -> dict[str, Any]:
    digest = blake2b(digest_size=8)
    for file in sorted(where(config.model.path).glob("*.safetensors")):
        digest.update(file.read_bytes())
    return {"config": config.model_dump(mode="json"), "weights": digest.hexdigest()}


def folder_of(model: str) -> Path:
    """The folder of the model that a config names, in the user's own home."""
    return model_folder(model, own_home(), progress)


def resolved(cell: Cell) -> RunConfig:
    """The cell's config with all defaults."""
    config = yaml.safe_load((ROOT / "presets" / f"{cell.preset}.yaml").read_text())
    config |= {"seed": cell.seed, "control": cell.control}
    for path, value in cell.changes:
        section, name = path.split(".")
        config[section] = {**config.get(section, {}), name: value}
    return RunConfig.model_validate(config)


def train(cell: Cell) -> dict[str, Any]:
    """Run the cell and summarize it. Raises ``RuntimeError`` when it does not finish."""
    return summary(events_of(cell))


def events_of(cell: Cell) -> list[dict[str, Any]]:
    """Run the cell with ``lagoon train`` in a fresh folder and read its events.

    Raises ``RuntimeError`` with the run's reason when it does not finish.
    """
    with tempfile.TemporaryDirectory(prefix="lagoon-study-") as folder:
        file = Path(folder) / "run.yaml"
        file.write_text(yaml.safe_dump(resolved(cell).model_dump(mode="json")))
        output = Path(folder) / "out"
        command = [sys.executable, "-m", "cli.main", "train", str(file), "--output", str(output)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        kept = output / "events.jsonl"
        lines = kept.read_text().splitlines() if kept.exists() else []
        events = [json.loads(line) for line in lines]
    ended = next((event for event in reversed(events) if event["type"] == "ended"), None)
    if done.returncode or ended is None or ended["outcome"] != "finished":
        reason = ended["reason"] if ended else done.stderr[-2000:]
        raise RuntimeError(f"{cell.key} did not finish: {reason}")
    return events


def summary(events: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """First and last held-out success, steps, tasks, and seconds between first and last event."""
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


def step_ends(events: Sequence[Mapping[str, Any]]) -> dict[int, float]:
    """When each training step was reported, which comes after its weights were published."""
    return {
        event["step"]: event["at"]
        for event in events
        if event["type"] == "step"
        and any(point["name"] == GENERATE_SECONDS.name for point in event["points"])
    }
