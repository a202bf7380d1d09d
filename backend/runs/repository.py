"""Queries about runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Select, delete, select, tuple_
from sqlalchemy.ext.asyncio import AsyncSession

from backend.accounts.access import Principal
from backend.models import (
    Attempt,
    Checkpoint,
    LogLine,
    MetricSeries,
    Run,
    RunEvent,
    histograms,
    metric_points,
)

Position = tuple[datetime, str]
MAX_HISTORY = 1000
NEWEST_FIRST = (Run.created_at.desc(), Run.id.desc())


def _visible(statement: Select[Any], viewer: Principal) -> Select[Any]:
    return statement if viewer.is_admin else statement.where(Run.owner_id == viewer.id)


async def visible(session: AsyncSession, viewer: Principal, id: str) -> Run | None:
    """The run, if the viewer may see it."""
    statement = _visible(select(Run).where(Run.id == id), viewer)
    return (await session.scalars(statement)).one_or_none()


async def names(session: AsyncSession, viewer: Principal, ids: Iterable[str]) -> dict[str, str]:
    """The names of those of the runs that the viewer may see, by id."""
    statement = _visible(select(Run).where(Run.id.in_(list(ids))), viewer)
    rows = await session.execute(statement.with_only_columns(Run.id, Run.name))
    return {row.id: row.name for row in rows}


async def locked(session: AsyncSession, id: str) -> Run | None:
    """The run, with its row locked until the transaction ends: nobody else changes it."""
    statement = select(Run).where(Run.id == id).with_for_update()
    fresh = statement.execution_options(populate_existing=True)
    return (await session.scalars(fresh)).one_or_none()


async def page(
    session: AsyncSession,
    viewer: Principal,
    *,
    experiment_id: str | None,
    status: str | None,
    limit: int,
    after: Position | None,
) -> Sequence[Run]:
    """Up to ``limit`` runs, newest first, after a position."""
    statement = _visible(select(Run), viewer)
    if experiment_id is not None:
        statement = statement.where(Run.experiment_id == experiment_id)
    if status is not None:
        statement = statement.where(Run.status == status)
    if after is not None:
        statement = statement.where(tuple_(Run.created_at, Run.id) < tuple_(*after))
    return (await session.scalars(statement.order_by(*NEWEST_FIRST).limit(limit))).all()


async def of_experiment(session: AsyncSession, experiment_id: str, limit: int) -> Sequence[Run]:
    """The newest runs of an experiment."""
    statement = select(Run).where(Run.experiment_id == experiment_id)
    return (await session.scalars(statement.order_by(*NEWEST_FIRST).limit(limit))).all()


async def attempts(session: AsyncSession, run_id: str) -> Sequence[Attempt]:
    """The run's attempts, in order."""
    statement = select(Attempt).where(Attempt.run_id == run_id).order_by(Attempt.number)
    return (await session.scalars(statement)).all()


async def attempt_ids(session: AsyncSession, run_ids: Sequence[str]) -> Sequence[str]:
    """The ids of all attempts at the runs."""
    statement = select(Attempt.id).where(Attempt.run_id.in_(run_ids)).order_by(Attempt.id)
    return (await session.scalars(statement)).all()


async def newest_attempt(session: AsyncSession, run_id: str) -> Attempt:
    """The attempt that counts. Read it under the run's lock to change it."""
    statement = select(Attempt).where(Attempt.run_id == run_id)
    newest = statement.order_by(Attempt.number.desc()).limit(1)
    return (await session.scalars(newest.execution_options(populate_existing=True))).one()


async def checkpoints(session: AsyncSession, run_id: str) -> Sequence[Checkpoint]:
    """Saved weights, oldest first."""
    statement = select(Checkpoint).where(Checkpoint.run_id == run_id).order_by(Checkpoint.id)
    return (await session.scalars(statement)).all()


async def history(session: AsyncSession, run_id: str) -> Sequence[RunEvent]:
    """What happened to the run, in order; of a very long history the newest part."""
    statement = select(RunEvent).where(RunEvent.run_id == run_id)
    newest = statement.order_by(RunEvent.n.desc()).limit(MAX_HISTORY)
    return (await session.scalars(newest)).all()[::-1]


async def log_lines(
    session: AsyncSession, run_id: str, after: int | None, limit: int
) -> Sequence[LogLine]:
    """Up to ``limit`` lines after number ``after``, or the last ones; in order."""
    statement = select(LogLine).where(LogLine.run_id == run_id).limit(limit)
    if after is not None:
        statement = statement.where(LogLine.n > after).order_by(LogLine.n)
        return (await session.scalars(statement)).all()
    tail = (await session.scalars(statement.order_by(LogLine.n.desc()))).all()
    return tail[::-1]


async def remove(session: AsyncSession, run_id: str) -> None:
    """Delete a run with everything that belongs to it."""
    series = select(MetricSeries.id).where(MetricSeries.run_id == run_id).scalar_subquery()
    for table in (metric_points, histograms):
        await session.execute(delete(table).where(table.c.series_id.in_(series)))
    await session.execute(delete(Run).where(Run.id == run_id))
