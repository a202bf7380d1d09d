"""What the driver says of itself: alive, in a phase, ended."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncSession

from backend.attempts.reconciliation import believed_ray_status
from backend.models import Attempt, Run
from backend.runs.resuming import fail
from backend.runs.transitions import move, record
from backend.text import excerpt, first_line, without_nul
from lagoon.events import HeartbeatLogged, ResumedLogged, RunEnded, StatusLogged, StepLogged
from lagoon.status import RunStatus
from lagoon.truth import judge


def note_progress(
    run: Run,
    attempt: Attempt,
    steps: Sequence[StepLogged],
    heartbeats: Sequence[HeartbeatLogged],
) -> None:
    """Remember the newest step, and where the driver lives."""
    reported = [*(event.step for event in steps), *(event.step for event in heartbeats)]
    run.step = max([run.step, *reported])
    attempt.last_step = max([attempt.last_step, *reported])
    if heartbeats:
        newest = heartbeats[-1]
        attempt.heartbeat_host = without_nul(newest.host)
        attempt.heartbeat_pid = newest.pid


def note_phase(
    session: AsyncSession, run: Run, attempt: Attempt, event: StatusLogged, now: datetime
) -> None:
    """A starting run whose driver says so is running; the newest phase is the reason shown."""
    message = first_line(event.message)
    if event.phase == "running" and attempt.resumed_step is None and attempt.number > 1:
        begins = ResumedLogged(at=event.at, step=0, path="")
        note_resumed(session, run, attempt, begins, now)
    if event.phase == "running" and run.status == RunStatus.STARTING:
        move(session, run, attempt, RunStatus.RUNNING, message, now, by="driver")
        return
    record(session, run, attempt.number, "phase", message, now, by="driver")
    if event.phase == run.status:
        run.reason = without_nul(message)


def note_resumed(
    session: AsyncSession, run: Run, attempt: Attempt, event: ResumedLogged, now: datetime
) -> None:
    """The attempt goes on from a checkpoint: what was done after it is superseded."""
    attempt.resumed_step = event.step
    words = [f"Goes on from step {event.step}."]
    if run.step > event.step:
        words.append(f"Steps {event.step + 1} to {run.step} are superseded.")
    if event.refused:
        words.append(f"Not from a newer checkpoint: {'; '.join(event.refused)}.")
    run.step = event.step
    record(session, run, attempt.number, "resumed", " ".join(words), now, by="driver")


async def conclude(
    session: AsyncSession, run: Run, attempt: Attempt, event: RunEnded, now: datetime
) -> None:
    """The driver's last word decides, unless the run had ended before."""
    reason = first_line(event.reason)
    if RunStatus(run.status).is_terminal or RunStatus(attempt.status).is_terminal:
        late = f"The driver ended as {event.outcome} after the run had ended. {reason}"
        record(session, run, attempt.number, "late", late, now, by="driver")
        return
    if event.traceback is not None:
        run.traceback = excerpt(event.traceback)
    verdict = judge(
        "fresh",
        believed_ray_status(attempt, now),
        event.outcome,
        "run" if run.stop_requested_at is None else "stop",
    )
    assert verdict.outcome is not None  # a marker always decides
    reason = f"{reason} {verdict.reason}".strip()
    if verdict.outcome is RunStatus.FAILED:
        transient = event.is_transient
        await fail(session, run, attempt, reason, now, is_transient=transient, by="driver")
        return
    if verdict.outcome is RunStatus.STOPPED:
        by = run.stop_requested_by
        # Where nobody asked here, only the driver knows: who sent it a signal is not known.
        said = reason or "The driver stopped and did not say why; nobody had asked Lagoon for it."
        reason = f"Stopped on request by {by}." if by else said
    move(session, run, attempt, verdict.outcome, reason, now, by="driver")
