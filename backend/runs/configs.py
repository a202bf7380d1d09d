"""A run's configuration as it arrives: validated once, refused in words."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError
from sqlalchemy.ext.asyncio import AsyncSession

from backend.errors import Invalid
from backend.models import ClusterObservation
from backend.text import unstorable
from lagoon.clashes import Capacity, capacity_clashes
from lagoon.config import RunConfig
from lagoon.problems import FieldProblem, field_problems

SLUG = "invalid-config"


async def validated(session: AsyncSession, config: dict[str, Any]) -> RunConfig:
    """The resolved configuration.

    Raises ``Invalid`` with every problem: unknown keys with the nearest valid name, values out of
    bounds, fields that clash, and more resources than the cluster was last seen to have.
    """
    obstacle = unstorable(config)
    if obstacle is not None:
        raise Invalid([FieldProblem(("config",), f"cannot be stored: {obstacle}")], SLUG)
    try:
        resolved = RunConfig.model_validate(config)
    except ValidationError as error:
        raise Invalid(field_problems(error, RunConfig), SLUG) from error
    capacity = await _capacity(session)
    clashes = capacity_clashes(resolved, capacity) if capacity else []
    if clashes:
        raise Invalid([FieldProblem(clash.fields, clash.message) for clash in clashes], SLUG)
    return resolved


async def _capacity(session: AsyncSession) -> Capacity | None:
    """What the cluster was last seen to have; None before it was seen."""
    seen = await session.get(ClusterObservation, 1)
    if seen is None or seen.cpus is None or seen.gpus is None:
        return None
    return Capacity(seen.cpus, seen.gpus)
