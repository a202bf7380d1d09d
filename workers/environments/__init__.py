"""The environments, one file each, in modules named like their configurations."""

from importlib import import_module

from lagoon.environments import EnvironmentConfig
from lagoon.trajectory import Split
from workers.environments.base import Environment, Message, NoSuchTask, Observation

__all__ = [
    "Environment",
    "Message",
    "NoSuchTask",
    "Observation",
    "demonstrate",
    "make_environment",
    "num_tasks",
]


def make_environment(
    config: EnvironmentConfig, split: Split, index: int, attempt: int = 0
) -> Environment:
    """A fresh episode of one task.

    The task is a function of ``config``, ``split`` and ``index`` alone. ``attempt`` tells apart
    the episodes of one task where the world's own randomness should differ (a tool's waits).
    Raises ``NoSuchTask`` when the split has no task of this difficulty.
    """
    module = _module(config)
    environment: Environment = module.make(config, split, index, attempt)
    return environment


def num_tasks(config: EnvironmentConfig, split: Split) -> int | None:
    """How many tasks a split has; None when they never end."""
    module = _module(config)
    count: int | None = module.num_tasks(config, split)
    return count


def demonstrate(config: EnvironmentConfig, split: Split, index: int) -> list[Message]:
    """A whole conversation that solves one task, to teach from."""
    module = _module(config)
    messages: list[Message] = module.demonstrate(config, split, index)
    return messages


def _module(config: EnvironmentConfig):  # type: ignore[no-untyped-def]  # a module is not a type
    name: str = type(config).model_fields["name"].default
    return import_module(f"{__name__}.{name}")
