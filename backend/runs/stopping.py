"""Stopping a run: at once while nothing runs, otherwise by asking the driver, then Ray.

::

    queued, or not yet sent to the workers ──▶ stopped
      └──(processes of an attempt before are left)──▶ stopping ──▶ gone ──▶ stopped
    starting, running ──▶ stopping ──(the driver hears it, saves, ends)──▶ gone ──▶ stopped
                              ├──(later)──▶ ended by Ray, then killed ───▶ gone ──▶ stopped
                              └──(30 s later, no trace of a job)──▶ stopped

What is due when is decided in ``lagoon.stopping``; the workers see it at each look, and do it.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncSession

from backend.attempts.repository import is_left_before
from backend.errors import Problem
from backend.models import Attempt, OutboxMessage, Run
from backend.queue import SUBMIT
from backend.runs import repository
from backend.runs.transitions import move, stopped_unstarted
from lagoon.status import RunStatus

UNSUBMITTED_GRACE = timedelta(seconds=30)


async def request_stop(session: AsyncSession, run: Run, by: str, now: datetime) -> None:
    """Ask for the end of a run whose row is locked. Asking twice changes nothing.

    Raises a 409 problem when the run has ended already.
    """
    status = RunStatus(run.status)
    if status.is_terminal:
        raise Problem(409, "run-ended", f"The run is already {status}; there is nothing to stop.")
    if run.desired == "stop":
        return
    run.desired = "stop"
    run.stop_requested_at = now
    run.stop_requested_by = by
    attempt = await repository.newest_attempt(session, run.id)
    if status is RunStatus.QUEUED or await _withdraw_submission(session, attempt):
        await _stop_unstarted(session, run, attempt, now)
        return
    reason = f"Stop requested by {by}."
    move(session, run, attempt, RunStatus.STOPPING, reason, now, by=by)


async def _stop_unstarted(session: AsyncSession, run: Run, attempt: Attempt, now: datetime) -> None:
    by = run.stop_requested_by
    attempt.gone_at = now  # there never was a process
    if await is_left_before(session, attempt):
        reason = f"Stop requested by {by}. Processes of the attempt before are still being ended."
        move(session, run, attempt, RunStatus.STOPPING, reason, now, by=by)
        return
    reason = stopped_unstarted(run, attempt)
    move(session, run, attempt, RunStatus.STOPPED, reason, now, by=by)


async def conclude_unsubmitted(session: AsyncSession, now: datetime) -> None:
    """Stop the runs that were to stop before anything was heard of their job.

    Should the job begin after all, its credential is worth nothing.
    """
    unheard = (
        select(Run, Attempt)
        .join(Attempt, Attempt.run_id == Run.id)
        .where(
            Attempt.status == RunStatus.STOPPING.value,
            Attempt.submitted_at.is_(None),
            Attempt.heartbeat_at.is_(None),
            Run.stop_requested_at < now - UNSUBMITTED_GRACE,
        )
        .with_for_update(skip_locked=True)
    )
    for run, attempt in (await session.execute(unheard)).all():
        if await is_left_before(session, attempt):
            continue
        attempt.token_hash = None
        reason = f"Stopped by {run.stop_requested_by} before its job was submitted."
        move(session, run, attempt, RunStatus.STOPPED, reason, now, by="scheduler")


async def _withdraw_submission(session: AsyncSession, attempt: Attempt) -> bool:
    """True when the attempt had not been sent to the workers yet; now it never will be.

    A message that is to be sent again looks unsent, too: then the workers may have a credential.
    """
    if attempt.fencing_token:
        return False
    unsent = select(OutboxMessage.id).where(
        OutboxMessage.attempt_id == attempt.id,
        OutboxMessage.task == SUBMIT,
        OutboxMessage.sent_at.is_(None),
        OutboxMessage.num_failures == 0,
    )
    ids = list(await session.scalars(unsent.with_for_update(skip_locked=True)))
    if not ids:
        return False
    await session.execute(delete(OutboxMessage).where(OutboxMessage.id.in_(ids)))
    return True
