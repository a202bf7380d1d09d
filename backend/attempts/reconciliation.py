"""What an active run is, by all of its sources together, looked at again and again.

::

    heartbeat_at ─┐ silence, since it was heard or since this API listens
    ray_status ───┼─▶ lagoon.truth.judge ─▶ over: move the run   alive: note its condition
    stop asked? ──┘

The driver's end marker does not come by here: it decides at once, when it is stored
(``events/driver.py``), by the same table.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from backend.attempts.repository import ACTIVE
from backend.models import Attempt, Run
from backend.runs.resuming import fail
from backend.runs.transitions import move, record
from backend.text import first_line
from lagoon.status import RayStatus, RunStatus
from lagoon.truth import Heartbeat, Verdict, heartbeat, judge

SUBMISSION_GRACE = timedelta(seconds=15)
"""A job that was just submitted need not be in Ray's list yet."""
OBSERVATION_LASTS = timedelta(seconds=60)
"""What was seen of Ray longer ago says nothing any more."""


async def reconcile_all(session: AsyncSession, now: datetime, listening_since: datetime) -> None:
    """Judge every active attempt whose run nobody else is changing. The caller commits."""
    statement = (
        select(Run, Attempt)
        .join(Attempt, Attempt.run_id == Run.id)
        .where(Attempt.status.in_(ACTIVE))
        .order_by(Attempt.id)
        .with_for_update(skip_locked=True)
    )
    for run, attempt in (await session.execute(statement)).all():
        await reconcile(session, run, attempt, now, listening_since)


async def reconcile(
    session: AsyncSession, run: Run, attempt: Attempt, now: datetime, listening_since: datetime
) -> None:
    """Judge one active attempt. The caller holds the run's row lock."""
    verdict = judge(
        heard(attempt, now, listening_since),
        believed_ray_status(attempt, now),
        None,
        "run" if run.stop_requested_at is None else "stop",
    )
    if verdict.outcome is not None:
        await _conclude(session, run, attempt, verdict, now)
    elif verdict.condition != run.condition:
        run.condition = verdict.condition
        run.condition_since = now if verdict.condition else None
        words = verdict.reason or "Its driver is heard, and Ray agrees."
        record(session, run, attempt.number, "condition", words, now, by="reconciler")


def heard(attempt: Attempt, now: datetime, listening_since: datetime) -> Heartbeat:
    """How long the driver has been silent. No silence is counted in which nobody listened."""
    if attempt.heartbeat_at is None:
        return "never"
    return heartbeat((now - max(attempt.heartbeat_at, listening_since)).total_seconds())


def believed_ray_status(attempt: Attempt, now: datetime) -> RayStatus:
    """What Ray was last seen to say, as far as it is evidence."""
    if attempt.ray_seen_at is None or now - attempt.ray_seen_at > OBSERVATION_LASTS:
        return "unreachable"
    status: RayStatus = attempt.ray_status  # type: ignore[assignment]  # one of them, or not seen
    submitted = attempt.submitted_at
    if status == "missing" and (submitted is None or now - submitted <= SUBMISSION_GRACE):
        return "pending"
    return status


async def _conclude(
    session: AsyncSession, run: Run, attempt: Attempt, verdict: Verdict, now: datetime
) -> None:
    assert verdict.outcome is not None  # the caller saw it
    reason = verdict.reason
    if attempt.ray_message and verdict.outcome is RunStatus.FAILED:
        reason = f"{reason} Ray says: {first_line(attempt.ray_message)}"
        run.traceback = run.traceback or attempt.ray_message
    if verdict.outcome is RunStatus.FAILED:
        # Its driver could not say why: it was killed, or its machine is gone.
        await fail(session, run, attempt, reason, now, is_transient=True, by="reconciler")
        return
    move(session, run, attempt, verdict.outcome, reason, now, by="reconciler")
