"""Queries about attempts."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from backend.models import Attempt, Lease, Run
from backend.runs.repository import locked
from lagoon.status import RunStatus

ACTIVE = [status.value for status in RunStatus if status.is_active]


async def with_locked_run(session: AsyncSession, attempt_id: str) -> tuple[Run, Attempt] | None:
    """The attempt, read again under its run's row lock; None when there is no such attempt."""
    run_id = await session.scalar(select(Attempt.run_id).where(Attempt.id == attempt_id))
    run = await locked(session, run_id) if run_id is not None else None
    if run is None:
        return None
    statement = select(Attempt).where(Attempt.id == attempt_id)
    fresh = statement.execution_options(populate_existing=True)
    attempt = (await session.scalars(fresh)).one_or_none()
    return (run, attempt) if attempt is not None else None


async def existing(session: AsyncSession, ids: Sequence[str]) -> set[str]:
    """Those of ``ids`` that are attempts."""
    return set(await session.scalars(select(Attempt.id).where(Attempt.id.in_(ids))))


async def with_runs(session: AsyncSession, *, active: bool) -> Sequence[tuple[Run, Attempt]]:
    """Attempts with their runs, oldest first; only those to look after when asked for: active
    ones, and those that ended and hold leases until Ray says that their job is over."""
    statement = select(Run, Attempt).join(Attempt, Attempt.run_id == Run.id)
    if active:
        held = select(Lease.attempt_id).where(Lease.released_at.is_(None))
        statement = statement.where(or_(Attempt.status.in_(ACTIVE), Attempt.id.in_(held)))
    ordered = statement.order_by(Attempt.created_at, Attempt.id).limit(1000)
    return [(row.Run, row.Attempt) for row in await session.execute(ordered)]
