"""Store a batch of events exactly once.

::

    lock the run ─▶ lock the writer's cursor ─▶ already stored? answer, change nothing
                                             ─▶ a gap?          409, the number expected
                                             ─▶ next in line    store all of it, advance, commit

Everything happens in one transaction under the run's row lock, where the run's own cursor is
advanced too: whoever has read up to a cursor has seen every batch up to it. What is stored of a
driver that is alive is here; what one leaves that dies, in ``leftovers.py``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import TypeVar

import psycopg
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from backend.attempts.repository import with_locked_run
from backend.controls import changes as controls
from backend.errors import NoCredentials, NotFound, Problem
from backend.events import driver, metrics, records
from backend.events.schemas import Accepted
from backend.models import Attempt, IngestCursor, Run
from backend.storage import accounting
from backend.text import without_nul
from lagoon.events import (
    CheckpointLogged,
    ControlsApplied,
    Event,
    EventBatch,
    HeartbeatLogged,
    HistogramLogged,
    LogLogged,
    ResumedLogged,
    RunEnded,
    StatusLogged,
    StepLogged,
    TelemetryDropped,
    TrajectoryLogged,
)
from lagoon.status import RunStatus

T = TypeVar("T")
MAX_UNIX_SECONDS = 253_402_300_799
"""The end of the year 9999."""


async def ingest(
    session: AsyncSession, attempt_id: str, fencing_token: int, batch: EventBatch, now: datetime
) -> Accepted:
    """Store ``batch``, unless it is stored. The caller commits.

    Raises a 409 problem on a gap, a 401 problem when the caller's token was replaced meanwhile, and
    a 422 problem when a value does not fit into the database.
    """
    found = await with_locked_run(session, attempt_id)
    if found is None:
        raise NotFound("attempt", attempt_id)
    run, attempt = found
    if attempt.fencing_token != fencing_token:
        raise NoCredentials("A newer driver has taken over this attempt.")
    was_over = RunStatus(attempt.status).is_terminal  # it is heard after its end
    last = await store_once(
        session, attempt, batch, lambda: _store(session, run, attempt, batch.events, now)
    )
    return Accepted(
        accepted_number=last,
        stop_requested=run.desired == "stop" or was_over,
        changes=await controls.unsaid(session, run, attempt),
    )


async def store_once(
    session: AsyncSession,
    attempt: Attempt,
    batch: EventBatch,
    store: Callable[[], Awaitable[None]],
) -> int:
    """Have ``batch`` stored, unless it is; the number of the writer's newest batch then.

    The caller holds the run's row lock. Raises what ``ingest`` raises of a batch.
    """
    cursor = await _cursor(session, attempt.id, without_nul(batch.writer))
    if batch.number > cursor.last_number:
        _refuse_gap(batch, cursor.last_number + 1)
        _refuse_impossible_times(batch)
        try:
            await store()
        except psycopg.DataError as error:
            raise _unstorable() from error
        cursor.last_number = batch.number
    return cursor.last_number


async def store_records(
    session: AsyncSession, run: Run, attempt: Attempt, events: Sequence[Event], now: datetime
) -> None:
    """Store what is kept under the attempt, whatever has become of it; its readers learn of it."""
    run.cursor += 1
    await metrics.store_points(session, run, attempt, of_type(events, StepLogged))
    await metrics.store_histograms(session, run, attempt, of_type(events, HistogramLogged))
    records.store_trajectories(session, run, attempt, of_type(events, TrajectoryLogged))
    await records.store_log(session, run, attempt, of_type(events, LogLogged))
    await accounting.note_stored(session, run, events)
    for dropped in of_type(events, TelemetryDropped):
        await accounting.note_dropped(session, run, attempt, dropped, now)


async def note_checkpoints(
    session: AsyncSession, run: Run, attempt: Attempt, events: Sequence[Event], now: datetime
) -> None:
    """Remember the weights that were saved: another attempt may go on from them."""
    checkpoints = of_type(events, CheckpointLogged)
    await records.store_checkpoints(session, run, attempt, checkpoints)
    if any(event.is_final for event in checkpoints):
        driver.note_saved(session, run, attempt, now)


async def _store(
    session: AsyncSession, run: Run, attempt: Attempt, events: Sequence[Event], now: datetime
) -> None:
    heartbeats = of_type(events, HeartbeatLogged)
    driver.refuse_fenced_out(attempt, heartbeats)
    attempt.heartbeat_at = now
    await store_records(session, run, attempt, events, now)
    await note_checkpoints(session, run, attempt, events, now)
    for event in events:
        if isinstance(event, ResumedLogged):
            driver.note_resumed(session, run, attempt, event, now)
        elif isinstance(event, StatusLogged):
            driver.note_phase(session, run, attempt, event, now)
        elif isinstance(event, ControlsApplied):
            await controls.note_applied(session, run, attempt, event, now)
    driver.note_progress(run, attempt, of_type(events, StepLogged), heartbeats)
    for ended in of_type(events, RunEnded):
        await driver.conclude(session, run, attempt, ended, now)


def of_type(events: Sequence[Event], kind: type[T]) -> list[T]:
    """The events of one kind, in order."""
    return [event for event in events if isinstance(event, kind)]


async def _cursor(session: AsyncSession, attempt_id: str, writer: str) -> IngestCursor:
    statement = select(IngestCursor).where(
        IngestCursor.attempt_id == attempt_id, IngestCursor.writer == writer
    )
    cursor = (await session.scalars(statement.with_for_update())).one_or_none()
    if cursor is None:  # nobody else can make it: the run's row is locked
        cursor = IngestCursor(attempt_id=attempt_id, writer=writer, last_number=0)
        session.add(cursor)
    return cursor


def _refuse_gap(batch: EventBatch, expected: int) -> None:
    if batch.number != expected:
        raise Problem(
            409,
            "batch-gap",
            f"Writer {batch.writer!r} sent batch {batch.number}, but the next one is {expected}. "
            "Nothing of it was stored; send the missing batches first.",
            expected_number=expected,
        )


def _refuse_impossible_times(batch: EventBatch) -> None:
    if not all(0 <= event.at <= MAX_UNIX_SECONDS for event in batch.events):
        raise Problem(
            422,
            "invalid-events",
            "An event's time `at` must be in Unix seconds, between 1970 and 9999. Nothing of the "
            "batch was stored.",
        )


def _unstorable() -> Problem:
    return Problem(
        422,
        "invalid-events",
        "A number in the batch does not fit into 64 bits. Nothing of the batch was stored.",
    )
