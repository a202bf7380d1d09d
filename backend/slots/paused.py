"""Restarts that wait for their pause to be over: they are not in the queue's order yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased

from backend.models import Attempt, Run
from backend.slots.outlook import is_paused
from lagoon.placement import Process, processes_of
from lagoon.queueing import Priority
from lagoon.status import RunStatus


@dataclass(frozen=True, slots=True)
class Paused:
    """A run that joins the queue at a moment that is known."""

    run_id: str
    owner: str
    priority: Priority
    processes: Sequence[Process]
    restarts_at: datetime
    cause: str
    """Why the attempt before had failed."""


async def paused(session: AsyncSession, now: datetime) -> list[Paused]:
    """Every restart whose pause is not over, the next one first."""
    each = aliased(Attempt)
    newest = select(func.max(each.number)).where(each.run_id == Run.id).scalar_subquery()
    before = (Attempt.run_id == Run.id) & (Attempt.number == newest - 1)
    statement = (
        select(Run.id, Run.owner_id, Run.priority, Run.config, Run.not_before, Attempt.reason)
        .join(Attempt, before)
        .where(Run.status == RunStatus.QUEUED.value, is_paused(now))
        .order_by(Run.not_before, Run.id)
    )
    return [
        Paused(
            row.id,
            row.owner_id,
            row.priority,
            processes_of(row.config),
            row.not_before,
            row.reason,
        )
        for row in await session.execute(statement)
    ]
