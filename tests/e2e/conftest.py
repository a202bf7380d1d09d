"""A small policy for whole runs: taught for a few steps only, so that it is there in seconds."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import ray

from workers.models.teaching import Schedule
from workers.models.tiny import Recipe, build_tiny


@pytest.fixture(scope="session")
def policy_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder whose policy writes well-formed turns and is usually wrong."""
    folder = tmp_path_factory.mktemp("policy")
    recipe = replace(Recipe(), schedule=Schedule(40, 16, 3e-3), num_eval_tasks=8)
    build_tiny(recipe, folder, progress=lambda line: None)
    return folder


@pytest.fixture
def no_ray_left() -> Iterator[None]:
    """Leaves no Ray behind, whatever a test did."""
    yield
    ray.shutdown()
