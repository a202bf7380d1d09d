"""Which runs start now: as many as fit on the nodes, in the order of ``lagoon.queueing``.

::

    leases of attempts that are gone ─▶ released ─▶ plan ─┬▶ start: lease + status + message,
                                                          │         one transaction
                                                          └▶ wait: position and reason are stored
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from backend.models import Run
from backend.outbox import enqueue
from backend.queue import SUBMIT
from backend.runs import repository
from backend.runs.transitions import move
from backend.slots import leases
from backend.slots.outlook import Queued, outlook
from lagoon.status import RunStatus


async def schedule(session: AsyncSession, now: datetime) -> Sequence[Run]:
    """Start the queued runs that are to start; tell the others their place and the reason.

    Only one process at a time may call this (``maintenance.py`` sees to it). The caller commits.
    Returns the runs that were started.
    """
    await leases.release(session, now)
    started = []
    position = 0
    for queued in (await outlook(session, now)).queue:
        if queued.decision.places is None:
            position += 1
            await _tell(session, queued, position)
        elif (run := await _start(session, queued, queued.decision.places, now)) is not None:
            started.append(run)
    await session.flush()
    return started


async def _start(
    session: AsyncSession, queued: Queued, places: Sequence[str], now: datetime
) -> Run | None:
    """The run, started; None when somebody is changing it: its turn comes again."""
    run = await _locked(session, queued)
    if run is None:
        return None
    attempt = await repository.newest_attempt(session, run.id)
    reason = "Waiting for the workers to submit it to Ray."
    move(session, run, attempt, RunStatus.STARTING, reason, now, by="scheduler")
    leases.take(session, attempt, queued.processes, places, now)
    enqueue(session, SUBMIT, attempt.id, now)
    return run


async def _tell(session: AsyncSession, queued: Queued, position: int) -> None:
    """Only rows whose words change are touched, and never one that is being changed.

    The reason speaks of other runs by reference: ``summaries.py`` names them for those who may see
    them.
    """
    awaited = next(iter(queued.decision.waits_for), None)
    words = position, queued.decision.reason, awaited
    if queued.told == words:
        return
    run = await _locked(session, queued)
    if run is not None:
        run.queue_position, run.reason, run.waiting_for_id = words
        run.cursor += 1


async def _locked(session: AsyncSession, queued: Queued) -> Run | None:
    still = select(Run).where(Run.id == queued.waiting.run_id, Run.status == RunStatus.QUEUED.value)
    fresh = still.with_for_update(skip_locked=True).execution_options(populate_existing=True)
    return (await session.scalars(fresh)).one_or_none()
