"""Any dataset of the reasoning-gym package: one question, one answer, the dataset's own score."""

import json
from functools import lru_cache
from importlib import import_module
from random import Random
from typing import Any

from lagoon.environments.reasoning_gym import ReasoningGym
from lagoon.trajectory import Split
from workers.environments.base import Environment, Message, Observation, first_in_split

DEFAULT_OPTIONS = {"seed": 0, "size": 100_000}
"""The dataset that tasks are drawn from, unless ``dataset_options`` says otherwise."""


class MissingPackage(ImportError):
    """reasoning-gym is not installed."""


class UnknownDataset(ValueError):
    """reasoning-gym has no such dataset, or refuses its options."""


def package() -> Any:
    """The package, imported on use: it is an extra that most runs do without.

    Raises ``MissingPackage``.
    """
    try:
        return import_module(str(ReasoningGym.extra_package))
    except ImportError as error:
        raise MissingPackage(
            "the reasoning-gym package is not installed. Install it with: "
            f"{ReasoningGym.extra_command} (it needs a C compiler and Python's headers)"
        ) from error


@lru_cache(maxsize=16)
def _dataset(name: str, options_json: str) -> Any:
    """One dataset: some take half a second to open, so they are kept."""
    try:
        return package().create_dataset(name, **{**DEFAULT_OPTIONS, **json.loads(options_json)})
    except (ValueError, TypeError, AssertionError) as error:
        raise UnknownDataset(f"reasoning-gym dataset {name!r}: {error}") from error


def dataset(config: ReasoningGym) -> Any:
    """The dataset that a configuration names. Raises ``MissingPackage``, ``UnknownDataset``."""
    return _dataset(config.dataset, json.dumps(config.dataset_options, sort_keys=True))


def task(config: ReasoningGym, split: Split, index: int) -> dict[str, Any]:
    """The dataset's entry of a task; splits are parted by the text of the question.

    Raises ``NoSuchTask``, ``MissingPackage``, ``UnknownDataset``.
    """
    return _entry(config, split, f"{split} {index}")


def _entry(config: ReasoningGym, split: Split, stream: str) -> dict[str, Any]:
    """The first entry of a split in a stream of draws of its own."""
    entries = dataset(config)
    random = Random(f"reasoning_gym {config.dataset} {stream}")

    def draw() -> dict[str, Any]:
        entry: dict[str, Any] = entries[random.randrange(len(entries))]
        return entry

    return first_in_split(draw, lambda entry: str(entry["question"]), split)


class ReasoningGymEnvironment:
    """One question."""

    def __init__(self, config: ReasoningGym, entry: dict[str, Any]) -> None:
        self._config = config
        self._entry = entry

    async def start(self) -> tuple[Message, ...]:
        """The instruction and the solved examples, if any, and the question."""
        return _prompt(self._config, self._entry)

    async def step(self, text: str) -> Observation:
        """Score the answer. A scorer that trips over it scores 0, with the reason."""
        try:
            score = float(dataset(self._config).score_answer(text.strip(), self._entry))
        except Exception as error:  # a scorer may raise anything on text that nobody foresaw
            return Observation(done=True, tool_error=f"scorer: {error!r}")
        return Observation(reward=score, done=True, success=score >= self._config.success_score)


def _prompt(config: ReasoningGym, entry: dict[str, Any]) -> tuple[Message, ...]:
    system = (Message("system", config.instruction),) if config.instruction else ()
    return (*system, *_examples(config.model_dump_json()), _question(entry))


@lru_cache(maxsize=16)
def _examples(config_json: str) -> tuple[Message, ...]:
    """Solved questions of the train split, so that none is a held-out task."""
    config = ReasoningGym.model_validate_json(config_json)
    entries = [_entry(config, "train", f"example {n}") for n in range(config.num_examples)]
    return tuple(message for entry in entries for message in (_question(entry), _answer(entry)))


def _question(entry: dict[str, Any]) -> Message:
    return Message("user", str(entry["question"]))


def _answer(entry: dict[str, Any]) -> Message:
    return Message("assistant", str(entry["answer"]))


def make(config: ReasoningGym, split: Split, index: int, attempt: int) -> Environment:
    """One episode; the world has no randomness of its own."""
    return ReasoningGymEnvironment(config, task(config, split, index))


def num_tasks(config: ReasoningGym, split: Split) -> None:
    """Endless: draws from the dataset may repeat."""


def demonstrate(config: ReasoningGym, split: Split, index: int) -> list[Message]:
    """The question and the dataset's own answer."""
    entry = task(config, split, index)
    return [*_prompt(config, entry), _answer(entry)]
