"""What a driver left in its spool when it died, brought by the workers that see its folder.

::

    is it gone, or has it lost its credential to the next attempt?
        no  ─▶ 409: it may send the rest itself
        yes ─▶ the next attempt has a credential?
                 no  ─▶ counts as if the driver had said it, but that nobody was heard
                 yes ─▶ kept under the attempt, for the record alone

Batches have the numbers that their driver gave them, so that what it had sent is not stored twice.
Nothing of it is a sign of life, and nothing moves a run that has ended.

Once the next attempt has a credential, it is settled what that one goes on from
(``runs/resuming.py``), and a checkpoint of an earlier one is not made known any more: an attempt
that went on from it would go on from updates which those between may have replaced. For the same
reason points are left out of an attempt of which nobody knows where on the lineage it began.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from backend.attempts.reconciliation import believed_ray_status
from backend.attempts.repository import with_locked_run
from backend.controls import changes as controls
from backend.errors import NotFound, Problem
from backend.events import driver
from backend.events.ingest import note_checkpoints, of_type, store_once, store_records
from backend.models import Attempt, Run
from lagoon.events import (
    ControlsApplied,
    Event,
    EventBatch,
    HeartbeatLogged,
    HistogramLogged,
    ResumedLogged,
    RunEnded,
    StatusLogged,
    StepLogged,
)
from lagoon.status import OVER_FOR_RAY, RunStatus


async def ingest_left(
    session: AsyncSession, attempt_id: str, batch: EventBatch, now: datetime
) -> int:
    """Store a batch of a dead driver, unless it is stored; the number of its newest then.

    The caller commits. Raises a 409 problem while the driver may be alive, and on a gap.
    """
    found = await with_locked_run(session, attempt_id)
    if found is None:
        raise NotFound("attempt", attempt_id)
    run, attempt = found
    if not _is_dead(attempt, now):
        raise Problem(
            409,
            "attempt-not-gone",
            f"The driver of attempt {attempt_id} may be alive: it sends its events itself. Nothing "
            "of the batch was stored.",
        )
    is_settled = await _is_settled(session, attempt)
    store = _store_record if is_settled else _store_last_words
    return await store_once(
        session, attempt, batch, lambda: store(session, run, attempt, batch.events, now)
    )


def _is_dead(attempt: Attempt, now: datetime) -> bool:
    """Whether nothing of the attempt is left, as far as the workers can see, or it may say nothing
    any more: the next attempt may begin beside processes that are still being ended.

    While it is active that is their last look's word, which comes long before a silence counts. One
    that was never heard may still be started once more, with numbers that begin anew.
    """
    if RunStatus(attempt.status).is_active and attempt.heartbeat_at is None:
        return False
    is_replaced = attempt.token_hash is None and RunStatus(attempt.status).is_terminal
    if is_replaced or attempt.gone_at is not None:
        return True
    return believed_ray_status(attempt, now) in OVER_FOR_RAY and attempt.num_processes == 0


async def _is_settled(session: AsyncSession, attempt: Attempt) -> bool:
    """Whether a later attempt has got a credential: from then on it may have begun."""
    later = select(Attempt.id).where(
        Attempt.run_id == attempt.run_id,
        Attempt.number > attempt.number,
        Attempt.fencing_token > 0,
    )
    return await session.scalar(later.limit(1)) is not None


async def _store_last_words(
    session: AsyncSession, run: Run, attempt: Attempt, events: Sequence[Event], now: datetime
) -> None:
    driver.refuse_fenced_out(attempt, of_type(events, HeartbeatLogged))
    was_active = RunStatus(attempt.status).is_active
    await store_records(session, run, attempt, events, now)
    await note_checkpoints(session, run, attempt, events, now)
    for event in events:
        if isinstance(event, ResumedLogged):
            driver.note_resumed(session, run, attempt, event, now)
        elif isinstance(event, StatusLogged) and was_active:
            driver.note_phase(session, run, attempt, event, now)
        elif isinstance(event, StatusLogged):
            driver.note_begun(session, run, attempt, event, now)
        elif isinstance(event, ControlsApplied):
            await controls.note_applied(session, run, attempt, event, now)
    driver.note_progress(run, attempt, of_type(events, StepLogged), heartbeats=())
    for ended in of_type(events, RunEnded):
        await driver.conclude(session, run, attempt, ended, now)


async def _store_record(
    session: AsyncSession, run: Run, attempt: Attempt, events: Sequence[Event], now: datetime
) -> None:
    driver.refuse_fenced_out(attempt, of_type(events, HeartbeatLogged))
    if attempt.number > 1 and attempt.resumed_step is None:
        events = [e for e in events if not isinstance(e, StepLogged | HistogramLogged)]
    await store_records(session, run, attempt, events, now)
    for ended in of_type(events, RunEnded):
        await driver.conclude(session, run, attempt, ended, now)
