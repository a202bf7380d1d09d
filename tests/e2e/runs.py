"""Small whole runs and what they reported."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from lagoon.config import RunConfig
from lagoon.metrics import Metric
from workers.resuming import FROM_THE_START, Candidates
from workers.standalone import train_standalone


def small_grpo(policy: Path, **sections: Any) -> RunConfig:
    return RunConfig.model_validate(
        {
            "model": {"path": str(policy)},
            "environment": {"name": "calculator", "num_operations": 1, "max_turns": 2},
            "method": {"name": "grpo", "num_prompts": 4, "group_size": 4},
            "budget": {"max_steps": 3},
            "evaluation": {"num_tasks": 16, "every_steps": 10},
            "rollout": {"kv_cache_gib": 0.25},
            "trainer": {"learning_rate": 5e-4},
        }
        | sections
    )


def small_es(policy: Path, **sections: Any) -> RunConfig:
    return RunConfig.model_validate(
        {
            "model": {"path": str(policy)},
            "environment": {
                "name": "calculator",
                "num_operations": 1,
                "max_turns": 2,
                "mean_wait_seconds": 0,
            },
            "method": {"name": "es", "population": 4, "num_cases": 32, "sigma": 0.01},
            "budget": {"max_steps": 2},
            "evaluation": {"num_tasks": 16, "every_steps": 10},
            "rollout": {"kv_cache_gib": 0.25},
        }
        | sections
    )


class Ran:
    """The events of a finished run."""

    def __init__(
        self, config: RunConfig, output: Path, candidates: Candidates = FROM_THE_START
    ) -> None:
        self.output = output
        self.status = train_standalone(config, output, output / "home", candidates)
        lines = (output / "events.jsonl").read_text().splitlines()
        self.events: list[dict[str, Any]] = [json.loads(line) for line in lines]

    @property
    def ended(self) -> dict[str, Any]:
        return self.events[-1]

    def values(self, metric: Metric, **labels: str) -> dict[int, float]:
        """By step; of several values of a step the last one with these labels."""
        return {
            event["step"]: point["value"]
            for event in self.events
            if event["type"] == "step"
            for point in event["points"]
            if point["name"] == metric.name and labels.items() <= point["labels"].items()
        }

    def total(self, metric: Metric) -> dict[int, float]:
        """By step, the sum over all labels."""
        found: dict[int, float] = {}
        for event in self.events:
            if event["type"] == "step":
                for point in event["points"]:
                    if point["name"] == metric.name:
                        found[event["step"]] = found.get(event["step"], 0.0) + point["value"]
        return found

    def histograms(self, metric: Metric) -> dict[int, dict[str, int]]:
        return {
            event["step"]: event["counts"]
            for event in self.events
            if event["type"] == "histogram" and event["name"] == metric.name
        }


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(next(folder.glob("*.safetensors")))


def moved(before: Path, after: Path) -> bool:
    old, new = weights(before), weights(after)
    return any(not torch.equal(old[name], new[name]) for name in new)
