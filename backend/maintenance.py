"""The API's own periodic work: judging and scheduling runs, and sending the outbox.

::

    every half second, in every API process:
        try to take the lease (an advisory lock of one transaction) ── taken? skip this turn
            reconcile, conclude, schedule, remind, sweep ──▶ commit ──▶ send what is due ──▶ commit

    every minute: retention (``storage/retention.py``), under a lease of its own

Each turn takes its lease anew, so that a process that dies leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from backend.accounts import throttle
from backend.accounts.bootstrap import ensure_admin
from backend.attempts import repository
from backend.attempts.reconciliation import reconcile_all
from backend.context import Context
from backend.outbox import remind, send_due
from backend.runs import files
from backend.runs.scheduling import schedule
from backend.runs.stopping import conclude_unsubmitted
from backend.storage import retention

INTERVAL_SECONDS = 0.5
FAILURE_PAUSE_SECONDS = 5.0
SCHEDULER_LOCK = 4_207_002

TAKE_LEASE = text("select pg_try_advisory_xact_lock(:key)")

logger = logging.getLogger(__name__)


async def turn(context: Context) -> bool:
    """One turn of the periodic work; False when another process holds the lease."""
    context.listening_since = min(context.listening_since, context.clock())
    async with context.database.session() as session:
        if not await session.scalar(TAKE_LEASE, {"key": SCHEDULER_LOCK}):
            return False
        now = context.clock()
        await reconcile_all(session, now, context.listening_since)
        await conclude_unsubmitted(session, now)
        await schedule(session, now)
        await remind(session, now)
        await throttle.sweep(session, now)
        await session.commit()
    async with context.database.session() as session:
        await send_due(session, context.queue, context.clock())
    return True


async def finish_deletions(context: Context) -> None:
    """Remove the files of runs whose deletion was cut short after their record was gone."""
    folders = files.left_aside(context.settings.home)
    async with context.database.session() as session:
        kept = await repository.existing(session, [folder.name for folder in folders])
    await files.removed(folder for folder in folders if folder.name not in kept)


async def _forever(
    context: Context, work: Callable[[Context], Awaitable[object]], interval_seconds: float
) -> None:
    """Take turns of ``work`` until cancelled."""
    while True:
        try:
            await work(context)
            pause = interval_seconds
        except OperationalError as error:
            logger.warning("the database does not answer: %s", type(error.orig).__name__)
            pause = FAILURE_PAUSE_SECONDS
        except Exception:  # the loop outlives whatever a turn meets
            logger.exception("periodic work failed; trying again in %s s", FAILURE_PAUSE_SECONDS)
            pause = FAILURE_PAUSE_SECONDS
        await asyncio.sleep(pause)


def _first_turn_then_others() -> Callable[[Context], Awaitable[object]]:
    """Turns, of which the first one that has a database does what is done once: the first account
    is made, and deletions are finished."""
    has_begun = False

    async def work(context: Context) -> None:
        nonlocal has_begun
        if not has_begun:
            await ensure_admin(context)
            await finish_deletions(context)
            has_begun = True
        await turn(context)

    return work


@contextlib.asynccontextmanager
async def running(context: Context) -> AsyncIterator[None]:
    """Do the periodic work for as long as the context lasts."""
    works = (
        (_first_turn_then_others(), INTERVAL_SECONDS),
        (retention.turn, retention.INTERVAL_SECONDS),
    )
    tasks = [
        asyncio.create_task(_forever(context, work, seconds), name="maintenance")
        for work, seconds in works
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
