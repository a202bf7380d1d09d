"""Which held-out tasks a run is evaluated on: different ones, the same for the same environment."""

from __future__ import annotations

import asyncio
import itertools
import traceback
from collections.abc import Callable

from lagoon.environments import EnvironmentConfig
from lagoon.trajectory import Split
from workers.environments import make_environment
from workers.environments.base import Environment, Message
from workers.failures import RunFailed

MIN_PATIENCE = 1000
"""Draws in a row that bring nothing new, after which a split is taken to be exhausted; or ten times
the tasks asked for, so that all of a small split are found."""


async def heldout_indices(
    config: EnvironmentConfig,
    num_tasks: int,
    available: int | None,
    environments: Callable[[EnvironmentConfig, Split, int], Environment] = make_environment,
    *,
    skip: int = 0,
) -> list[int]:
    """The first ``num_tasks`` indices of the held-out split whose tasks differ, after the first
    ``skip``.

    ``available`` is the size of the split, None when its indices never end: those are independent
    draws, which repeat. Tasks are told apart by the messages that the model sees first. Raises
    ``RunFailed`` when there are fewer different tasks, with both numbers, or when the environment
    raises.
    """
    wanted = skip + num_tasks
    patience = max(MIN_PATIENCE, 10 * wanted)
    found: dict[tuple[Message, ...], int] = {}
    newest = 0
    for index in itertools.count() if available is None else range(available):
        newest = max(newest, found.setdefault(await _opening(environments, config, index), index))
        if len(found) == wanted:
            return list(found.values())[skip:]
        if index - newest >= patience:
            break
        await asyncio.sleep(0)  # drawing can take milliseconds: heartbeats and stops come between
    asked = f"evaluation.num_tasks asks for {num_tasks} held-out tasks"
    if skip:
        asked += f" after the first {skip} (evaluation.skip_tasks)"
    raise RunFailed(
        f"{asked}, but the environment has only {len(found)} different ones: ask for at most "
        f"{max(0, len(found) - skip)}, or make the tasks harder."
    )


async def _opening(
    environments: Callable[[EnvironmentConfig, Split, int], Environment],
    config: EnvironmentConfig,
    index: int,
) -> tuple[Message, ...]:
    try:
        return await environments(config, "heldout", index).start()
    except Exception as error:  # an environment may raise anything
        message = f"The environment raised an error: {type(error).__name__}: {error}"
        raise RunFailed(message, traceback.format_exc()) from error
