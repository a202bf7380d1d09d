"""Parameters of the reasoning-gym environment."""

from typing import Literal

from pydantic import Field, JsonValue

from lagoon.environments.base import EnvironmentConfig


class ReasoningGym(EnvironmentConfig):
    """Any dataset of the reasoning-gym package: one question, one answer, its own scorer."""

    title = "Reasoning Gym"
    extra_package = "reasoning_gym"
    extra_command = "make reasoning-gym"

    name: Literal["reasoning_gym"] = "reasoning_gym"

    dataset: str = "basic_arithmetic"
    """Name of the dataset in reasoning-gym."""
    dataset_options: dict[str, JsonValue] = Field(default_factory=dict)
    """Options passed to the dataset as they are."""
    instruction: str = "Answer with the result only."
    """System message put before every question."""
    num_examples: int = Field(0, ge=0, le=16)
    """Solved questions of the train split shown as earlier turns before every question, always the
    same ones. They show a small model the form of an answer, and lengthen every prompt."""
    success_score: float = Field(1.0, gt=0, le=1)
    """Score from which an answer counts as a success."""
    max_turns: Literal[1] = 1
    """Always one: the answer."""
    max_tokens_per_turn: int = Field(64, ge=1, le=65536)
    """Sampled tokens after which the answer is cut."""
