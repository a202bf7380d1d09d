"""The one place where a run's status changes. The caller holds the run's row lock."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncSession

from backend.models import Attempt, Run, RunEvent
from backend.text import without_nul
from lagoon.status import RunStatus, moved


def move(
    session: AsyncSession,
    run: Run,
    attempt: Attempt,
    target: RunStatus,
    reason: str,
    now: datetime,
    *,
    by: str | None = None,
) -> None:
    """Bring a run and its attempt to ``target`` and write it into the run's history.

    Raises ``IllegalTransition`` when the status table has no such move.
    """
    before = RunStatus(run.status)
    moved(before, target)
    reason = without_nul(reason)
    for row in (run, attempt):
        _set(row, target, reason, now)
    if not target.is_active:
        run.condition, run.condition_since = "", None
    run.waiting_for_id, run.queue_position = None, None
    record(session, run, attempt.number, "status", reason, now, before=before, after=target, by=by)


def stopped_unstarted(run: Run, attempt: Attempt) -> str:
    """Why a run has stopped whose attempt had not started: nothing was lost by it."""
    again = " again" if attempt.number > 1 else ""
    return f"Stopped by {run.stop_requested_by} before it started{again}."


def end_attempt(attempt: Attempt, outcome: RunStatus, reason: str, now: datetime) -> None:
    """End an attempt whose run goes on with another. Its driver may write nothing from now on."""
    _set(attempt, outcome, without_nul(reason), now)
    attempt.token_hash = None


def _set(row: Run | Attempt, target: RunStatus, reason: str, now: datetime) -> None:
    row.status = target.value
    row.reason = reason
    if target is RunStatus.RUNNING and row.started_at is None:
        row.started_at = now
    if target.is_terminal:
        row.ended_at = now


def record(
    session: AsyncSession,
    run: Run,
    attempt: int | None,
    kind: str,
    reason: str,
    now: datetime,
    *,
    before: RunStatus | None = None,
    after: RunStatus | None = None,
    by: str | None = None,
) -> None:
    """Add an entry to the run's history; its readers' cursors move on."""
    run.num_events += 1
    run.cursor += 1
    session.add(
        RunEvent(
            run_id=run.id,
            n=run.num_events,
            at=now,
            attempt=attempt,
            kind=kind,
            from_status=before,
            to_status=after,
            reason=without_nul(reason),
            by=by,
        )
    )
