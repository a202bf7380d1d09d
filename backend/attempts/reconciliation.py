"""What an active run is, by all of its sources together, looked at again and again.

::

    heartbeat_at ─┐ silence, since it was heard or since this API listens
    ray_status ───┤
    marker ───────┼─▶ lagoon.truth.judge ─▶ over: move the run   alive: note its condition
    desired ──────┤
    gone_at ──────┘ of this attempt, and of those before it

The driver's end marker is judged as soon as it is stored (``events/driver.py``), and once more when
the processes of a run that was asked to stop are gone.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from backend.attempts.repository import is_left_before
from backend.clock import not_after
from backend.models import Attempt, Run
from backend.runs.resuming import fail
from backend.runs.transitions import move, record, stopped_unstarted
from backend.text import first_line
from lagoon.config import DEFAULT_STALL_SECONDS
from lagoon.stalls import idle_words, standstill
from lagoon.status import ACTIVE, RayStatus, RunStatus
from lagoon.truth import OBSERVATION_SECONDS, Heartbeat, Verdict, heartbeat, judge

SUBMISSION_GRACE = timedelta(seconds=15)
"""A job that was just submitted need not be in Ray's list yet."""
KILLED = "exit code 137"
"""How Ray's message ends when a job's process was killed: 128 and the number of SIGKILL."""


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
    attempt.heartbeat_at = not_after(attempt.heartbeat_at, now)
    attempt.submitted_at = not_after(attempt.submitted_at, now)
    run.stop_requested_at = not_after(run.stop_requested_at, now)
    if attempt.marker is not None:
        await settle_marked(session, run, attempt, now)
        return
    stalled = _stalled_words(run, attempt)
    verdict = judge(
        heard(attempt, now, listening_since),
        believed_ray_status(attempt, now),
        None,
        run.desired,
        gone=attempt.gone_at is not None,
        earlier_left=await _earlier_left(session, run, attempt),
        stalled=bool(stalled),
    )
    if verdict.outcome is not None:
        await _conclude(session, run, attempt, verdict, now)
    elif verdict.condition != run.condition:
        run.condition = verdict.condition
        run.condition_since = now if verdict.condition else None
        words = verdict.reason or "Its driver is heard, and Ray agrees."
        words = stalled if verdict.condition == "stalled" else words
        record(session, run, attempt.number, "condition", words, now, by="reconciler")


async def settle_marked(session: AsyncSession, run: Run, attempt: Attempt, now: datetime) -> bool:
    """End an active attempt by its end marker, if that is enough; whether it was."""
    ray, gone = believed_ray_status(attempt, now), attempt.gone_at is not None
    earlier = await _earlier_left(session, run, attempt)
    verdict = judge("fresh", ray, attempt.marker, run.desired, gone=gone, earlier_left=earlier)
    if verdict.outcome is None:
        return False
    reason = f"{attempt.marker_reason or ''} {verdict.reason}".strip()
    if verdict.outcome is RunStatus.FAILED:
        transient = attempt.marker_is_transient
        await fail(session, run, attempt, reason, now, is_transient=transient, by="driver")
        return True
    if verdict.outcome is RunStatus.STOPPED:
        reason = _why_stopped(run, attempt, reason)
    move(session, run, attempt, verdict.outcome, reason, now, by="driver")
    return True


async def _earlier_left(session: AsyncSession, run: Run, attempt: Attempt) -> bool:
    """Asked only of runs that are to stop: for all others it decides nothing."""
    return run.desired == "stop" and await is_left_before(session, attempt)


def _why_stopped(run: Run, attempt: Attempt, said: str) -> str:
    """Where nobody asked here, only the driver knows: who sent it a signal is not known."""
    if run.desired != "stop":
        return said or "The driver stopped and did not say why; nobody had asked Lagoon for it."
    words = f"Stopped on request by {run.stop_requested_by}."
    is_loss = run.step > 0 and attempt.stop_saved_at is None
    return words + (" It saved no weights after that; earlier ones are safe." if is_loss else "")


def _stalled_words(run: Run, attempt: Attempt) -> str:
    """What the driver waits for, by its last word, when that is worth a word; else empty."""
    activity = attempt.activity
    if activity is None or attempt.idle_seconds is None:
        return ""
    limit = run.config["budget"].get("stall_seconds", DEFAULT_STALL_SECONDS)
    is_still = standstill(attempt.idle_seconds, activity, limit) != ""
    return idle_words(activity, attempt.idle_seconds) if is_still else ""


def heard(attempt: Attempt, now: datetime, listening_since: datetime) -> Heartbeat:
    """How long the driver has been silent. No silence is counted in which nobody listened."""
    if attempt.heartbeat_at is None:
        return "never"
    return heartbeat((now - max(attempt.heartbeat_at, listening_since)).total_seconds())


def believed_ray_status(attempt: Attempt, now: datetime) -> RayStatus:
    """What Ray was last seen to say, as far as it is evidence."""
    status, seen, submitted = attempt.ray_status, attempt.ray_seen_at, attempt.submitted_at
    if status is None or seen is None or now - seen > timedelta(seconds=OBSERVATION_SECONDS):
        return "unreachable"
    if status == "missing" and (submitted is None or now - submitted <= SUBMISSION_GRACE):
        return "pending"
    return status


def _cause(ray_message: str) -> str:
    """Ray's first line, without the log that it announces, and with what a kill's code means."""
    words = first_line(ray_message).partition(", last available logs")[0]
    if words.endswith(KILLED):
        return f"{words} (killed: by somebody, or because its machine was out of memory)."
    return words


async def _conclude(
    session: AsyncSession, run: Run, attempt: Attempt, verdict: Verdict, now: datetime
) -> None:
    assert verdict.outcome is not None  # the caller saw it
    reason = verdict.reason
    if run.desired == "stop" and attempt.fencing_token == 0:
        reason = stopped_unstarted(run, attempt)
    if attempt.ray_message and verdict.outcome is RunStatus.FAILED:
        reason = f"{reason} Ray says: {_cause(attempt.ray_message)}"
        run.traceback = run.traceback or attempt.ray_message
    if verdict.outcome is RunStatus.FAILED:
        # Its driver could not say why: it was killed, or its machine is gone.
        await fail(session, run, attempt, reason, now, is_transient=True, by="reconciler")
        return
    move(session, run, attempt, verdict.outcome, reason, now, by="reconciler")
