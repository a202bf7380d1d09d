"""What the driver says of itself: alive, in a phase, ended."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncSession

from backend.attempts.reconciliation import settle_marked
from backend.errors import Problem
from backend.models import Attempt, Run
from backend.runs.transitions import move, record
from backend.text import excerpt, first_line, without_nul
from lagoon.events import HeartbeatLogged, ResumedLogged, RunEnded, StatusLogged, StepLogged
from lagoon.status import RunStatus


def refuse_fenced_out(attempt: Attempt, heartbeats: Sequence[HeartbeatLogged]) -> None:
    """Raise a 409 problem when a heartbeat is of a driver that a newer one has replaced.

    Its credential is worth nothing already; this is for one that found the newer one's in its file.
    """
    for heartbeat in heartbeats:
        if heartbeat.fencing_token not in (None, attempt.fencing_token):
            raise Problem(
                409,
                "fenced-out",
                f"A newer driver (fencing token {attempt.fencing_token}) has taken over from this "
                f"one ({heartbeat.fencing_token}). Nothing of the batch was stored.",
            )


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
        attempt.heartbeat_boot_id = without_nul(newest.boot_id) or None
        attempt.trajectories = newest.trajectories
        attempt.activity, attempt.idle_seconds = newest.activity, newest.idle_seconds


def note_phase(
    session: AsyncSession, run: Run, attempt: Attempt, event: StatusLogged, now: datetime
) -> None:
    """A starting run whose driver says so is running; the newest phase is the reason shown."""
    message = first_line(event.message)
    note_begun(session, run, attempt, event, now)
    if event.phase == "stopping" and run.desired == "stop" and attempt.stop_heard_at is None:
        attempt.stop_heard_at = now
        record(session, run, attempt.number, "stop_heard", message, now, by="driver")
        run.reason = without_nul(message)
        return
    if event.phase == "running" and run.status == RunStatus.STARTING:
        move(session, run, attempt, RunStatus.RUNNING, message, now, by="driver")
        return
    record(session, run, attempt.number, "phase", message, now, by="driver")
    if event.phase == run.status:
        run.reason = without_nul(message)


def note_begun(
    session: AsyncSession, run: Run, attempt: Attempt, event: StatusLogged, now: datetime
) -> None:
    """An attempt after the first that runs, and has not said from where, has begun anew."""
    if event.phase == "running" and attempt.resumed_step is None and attempt.number > 1:
        begins = ResumedLogged(at=event.at, step=0, path="")
        note_resumed(session, run, attempt, begins, now)


def note_resumed(
    session: AsyncSession, run: Run, attempt: Attempt, event: ResumedLogged, now: datetime
) -> None:
    """The attempt goes on from a checkpoint: what was done after it is superseded."""
    attempt.resumed_step = event.step
    words = [f"Goes on from step {event.step}." if event.step else "Begins anew."]
    if run.step > event.step:
        words.append(f"Steps {event.step + 1} to {run.step} are superseded.")
    if event.refused:
        words.append(f"Not from a newer checkpoint: {'; '.join(event.refused)}.")
    run.step = event.step
    record(session, run, attempt.number, "resumed", " ".join(words), now, by="driver")


def note_saved(session: AsyncSession, run: Run, attempt: Attempt, now: datetime) -> None:
    """The last weights were saved; after a request to stop, that is one of its steps."""
    if run.desired == "stop" and attempt.stop_saved_at is None:
        attempt.stop_saved_at = now
        record(session, run, attempt.number, "stop_saved", "Saved its weights.", now, by="driver")


async def conclude(
    session: AsyncSession, run: Run, attempt: Attempt, event: RunEnded, now: datetime
) -> None:
    """The driver's last word decides, unless the run had ended before.

    A stop that was asked for is over only when the processes are gone, too: the word is kept.
    """
    reason = first_line(event.reason)
    if RunStatus(run.status).is_terminal or RunStatus(attempt.status).is_terminal:
        late = f"Its driver's last word, {event.outcome}, came when it was over. {reason}".strip()
        record(session, run, attempt.number, "late", late, now, by="driver")
        return
    if event.traceback is not None:
        run.traceback = excerpt(event.traceback)
    attempt.marker, attempt.marker_reason, attempt.marker_at = event.outcome, reason, now
    attempt.marker_is_transient = event.is_transient
    if not await settle_marked(session, run, attempt, now):
        words = "Its driver has ended; its processes have not been seen gone yet."
        record(session, run, attempt.number, "driver_ended", words, now, by="driver")
        run.reason = words
