"""Builders of plain test data."""

from collections.abc import Sequence
from typing import Any

from lagoon.config import RunConfig
from lagoon.methods.pace import Pace
from lagoon.pace import PaceSettings
from lagoon.trajectory import Trajectory


def trajectory(
    *,
    versions: Sequence[int | None] = (0,),
    completed: int = 0,
    mask: Sequence[int] | None = None,
    reward: float = 1.0,
    trajectory_id: str = "t",
) -> Trajectory:
    count = len(versions)
    return Trajectory(
        trajectory_id=trajectory_id,
        prompt_id="p",
        split="train",
        token_ids=tuple(range(count)),
        action_mask=tuple(mask) if mask is not None else (1,) * count,
        behavior_logprobs=(-1.0,) * count,
        versions=tuple(versions),
        completed_version=completed,
        reward=reward,
        success=reward > 0,
    )


def grpo_config(**sections: Any) -> RunConfig:
    return RunConfig.model_validate(
        {
            "environment": {"name": "calculator", "mean_wait_seconds": 0},
            "method": {"name": "grpo", "num_prompts": 2, "group_size": 2},
            "budget": {"max_steps": 3},
            "evaluation": {"num_tasks": 4, "every_steps": 2},
        }
        | sections
    )


def es_config(**sections: Any) -> RunConfig:
    return RunConfig.model_validate(
        {
            "environment": {"name": "sudoku4"},
            "method": {"name": "es", "population": 4, "num_cases": 3},
            "budget": {"max_steps": 3},
            "evaluation": {"num_tasks": 4, "every_steps": 2},
        }
        | sections
    )


def pace_settings(batch: int, target: int, **given: Any) -> PaceSettings:
    """Those of the method, but for what is given."""
    own = {name: Pace.model_fields[name].default for name in ("gamma", "smoothing", "excess")}
    return PaceSettings(batch, target, **(own | given))
