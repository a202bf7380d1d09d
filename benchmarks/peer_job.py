"""What one side of ``benchmarks.peers`` is asked for, and what it reports: the sides are processes.

A side trains a config for some steps and says of every step when it ended and what was in it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lagoon.config import RunConfig
from lagoon.methods.grouped import GroupRelative


@dataclass(frozen=True, slots=True)
class Step:
    """One optimizer step."""

    ended_at: float
    """Unix seconds at which everything was over that belongs to it."""
    waited_seconds: float
    """Of which the trainer had nothing to train on: generation, tools and scores."""
    num_trajectories: int
    num_sampled: int
    """Tokens that the policy sampled."""
    num_prompt: int
    """Tokens of the prompts, one for each trajectory."""


@dataclass(frozen=True, slots=True)
class Job:
    """Train a model folder by a config."""

    config: RunConfig
    model_folder: Path
    rows_per_pass: int
    """Trajectories in one forward pass of a trainer that counts in rows."""

    @property
    def num_trajectories(self) -> int:
        """Of a step."""
        return self.method.num_prompts * self.method.group_size

    @property
    def method(self) -> GroupRelative:
        """The method, which compares a group's trajectories."""
        assert isinstance(self.config.method, GroupRelative)
        return self.config.method

    def write(self, path: Path) -> None:
        """As a JSON file."""
        path.write_text(
            json.dumps(
                {
                    "config": self.config.model_dump(mode="json"),
                    "model_folder": str(self.model_folder),
                    "rows_per_pass": self.rows_per_pass,
                }
            )
        )

    @classmethod
    def read(cls, path: Path) -> Job:
        """From a JSON file."""
        values: dict[str, Any] = json.loads(path.read_text())
        return cls(
            RunConfig.model_validate(values["config"]),
            Path(values["model_folder"]),
            values["rows_per_pass"],
        )


def write_steps(steps: Sequence[Step], path: Path) -> None:
    """Steps as a JSON file."""
    path.write_text(json.dumps([asdict(step) for step in steps]))


def read_steps(path: Path) -> list[Step]:
    """Steps from a JSON file."""
    return [Step(**values) for values in json.loads(path.read_text())]
