"""A small policy for whole runs: taught for a few steps only, so that it is there in seconds."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import ray
from transformers import AutoModelForCausalLM, AutoTokenizer

from lagoon.environments.calculator import Calculator
from workers.chat import Chat
from workers.models.recipes import Recipe, Schedule, Stage
from workers.models.tiny import build_tiny, level

EASIEST = Calculator(num_operations=1, max_turns=2, mean_wait_seconds=0)
KNOWN_ENOUGH = 0.2
"""Share of sampled episodes that succeed: enough for a reward to learn from, far from all."""


@pytest.fixture(scope="session")
def policy_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder whose policy knows the easiest tasks, some of the time.

    Success comes within few steps of teaching, and at which ones depends on the recipe: the
    shortest teaching that reaches it is taken.
    """
    for num_steps in range(20, 160, 4):
        folder = tmp_path_factory.mktemp("policy")
        recipe = replace(
            Recipe(),
            schedule=Schedule((Stage(num_steps, ((EASIEST,),)),)),
            num_eval_tasks=8,
        )
        build_tiny(recipe, folder, progress=lambda line: None)
        model = AutoModelForCausalLM.from_pretrained(folder)
        chat = Chat(AutoTokenizer.from_pretrained(folder))
        if level(model, chat, EASIEST, 64)["sampled"] >= KNOWN_ENOUGH:
            return folder
    raise AssertionError("no teaching reached the easiest tasks")


@pytest.fixture
def no_ray_left() -> Iterator[None]:
    """Leaves no Ray behind, whatever a test did."""
    yield
    ray.shutdown()
