"""Which run is next: until there is a queue, one run is active and the others wait for it."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from backend.models import Run
from backend.outbox import enqueue
from backend.queue import SUBMIT
from backend.runs import repository
from backend.runs.transitions import move
from lagoon.status import RunStatus

ACTIVE = [status.value for status in RunStatus if status.is_active]


async def schedule(session: AsyncSession, now: datetime) -> Run | None:
    """Start the oldest queued run when none is active; tell the others what they wait for.

    Only one process at a time may call this (``maintenance.py`` sees to it). The caller commits.
    Returns the run that was started.
    """
    active = await session.scalar(
        select(Run).where(Run.status.in_(ACTIVE)).order_by(Run.created_at, Run.id).limit(1)
    )
    started = None
    if active is None:
        active = started = await _start_oldest(session, now)
    if active is not None:
        await _tell_the_others(session, active)
    return started


async def _start_oldest(session: AsyncSession, now: datetime) -> Run | None:
    may_start = or_(Run.not_before.is_(None), Run.not_before <= now)
    oldest = select(Run).where(Run.status == RunStatus.QUEUED.value, may_start)
    run = await session.scalar(
        oldest.order_by(Run.created_at, Run.id).limit(1).with_for_update(skip_locked=True)
    )
    if run is None:
        return None
    attempt = await repository.newest_attempt(session, run.id)
    reason = "Waiting for the workers to submit it to Ray."
    move(session, run, attempt, RunStatus.STARTING, reason, now, by="scheduler")
    enqueue(session, SUBMIT, attempt.id, now)
    await session.flush()
    return run


async def _tell_the_others(session: AsyncSession, active: Run) -> None:
    """Only rows whose reason changes are touched, and never one that is being changed.

    The reason does not name the run: ``summaries.py`` does, for those who may see it.
    """
    reason = f"Waiting for another run, which is {active.status}."
    is_news = or_(Run.reason != reason, Run.waiting_for_id.is_distinct_from(active.id))
    # A restart says why it waits by itself.
    waiting = select(Run).where(
        Run.status == RunStatus.QUEUED.value, Run.not_before.is_(None), is_news
    )
    for run in await session.scalars(waiting.with_for_update(skip_locked=True)):
        run.reason = reason
        run.waiting_for_id = active.id
        run.cursor += 1
