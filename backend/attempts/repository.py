"""Queries about attempts."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import ColumnElement, and_, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from backend.models import Attempt, Run
from backend.runs.repository import locked
from lagoon.status import ACTIVE, TERMINAL


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


async def is_left_before(session: AsyncSession, attempt: Attempt) -> bool:
    """Whether processes of earlier attempts at the same run may still be there.

    One without a credential never had any (``slots.leases.lease_is_free``).
    """
    statement = select(Attempt.id).where(
        Attempt.run_id == attempt.run_id,
        Attempt.number < attempt.number,
        Attempt.fencing_token > 0,
        _is_left(),
    )
    return await session.scalar(statement.limit(1)) is not None


async def with_runs(session: AsyncSession, *, active: bool) -> Sequence[tuple[Run, Attempt]]:
    """Attempts with their runs, oldest first; when asked for only those that are active, or whose
    processes nobody has seen gone since they ended."""
    statement = select(Run, Attempt).join(Attempt, Attempt.run_id == Run.id)
    if active:
        statement = statement.where(or_(Attempt.status.in_(ACTIVE), _is_left()))
    ordered = statement.order_by(Attempt.created_at, Attempt.id).limit(1000)
    return [(row.Run, row.Attempt) for row in await session.execute(ordered)]


def _is_left() -> ColumnElement[bool]:
    """An attempt that is over, and that nobody has seen gone."""
    return and_(Attempt.status.in_(TERMINAL), Attempt.gone_at.is_(None))
