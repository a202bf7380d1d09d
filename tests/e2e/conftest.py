"""A small policy for whole runs: taught for a few steps only, so that it is there in seconds."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import ray

from lagoon.environments.calculator import Calculator
from workers.models.recipes import Lesson, Recipe, Schedule
from workers.models.tiny import build_tiny


@pytest.fixture(scope="session")
def policy_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder whose policy knows the easiest tasks, some of the time."""
    folder = tmp_path_factory.mktemp("policy")
    lessons = (Lesson(Calculator(num_operations=1, max_turns=2)),)
    schedule = Schedule(num_steps=50, batch_size=16)
    recipe = replace(Recipe(), lessons=lessons, schedule=schedule, num_eval_tasks=8)
    build_tiny(recipe, folder, progress=lambda line: None)
    return folder


@pytest.fixture
def no_ray_left() -> Iterator[None]:
    """Leaves no Ray behind, whatever a test did."""
    yield
    ray.shutdown()
