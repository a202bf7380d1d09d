"""Messages to the workers: written in the transaction that needs them, sent after it commits.

A transaction that rolls back takes its messages with it; a message is sent at least once, so the
workers' tasks are idempotent.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime, timedelta

from sqlalchemy import delete, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from backend.models import Attempt, OutboxMessage
from backend.queue import SUBMIT, TaskQueue
from lagoon.status import TERMINAL, RunStatus

BATCH = 50
MAX_BACKOFF = timedelta(seconds=30)
SUBMIT_PATIENCE = timedelta(seconds=120)

logger = logging.getLogger(__name__)


def enqueue(session: AsyncSession, task: str, attempt_id: str, now: datetime) -> None:
    """Have ``task`` sent with the attempt's id once the transaction has committed."""
    session.add(
        OutboxMessage(
            task=task,
            attempt_id=attempt_id,
            args=[attempt_id],
            created_at=now,
            available_at=now,
            sent_at=None,
            num_failures=0,
            last_error=None,
        )
    )


async def send_due(session: AsyncSession, queue: TaskQueue, now: datetime) -> int:
    """Send the messages that are due, commit, and return how many were sent.

    While the broker is away, messages stay and are tried again, less and less often. What was
    meant for an attempt that has ended meanwhile is dropped.
    """
    ended = select(Attempt.id).where(Attempt.status.in_(TERMINAL))
    await session.execute(
        delete(OutboxMessage).where(
            OutboxMessage.sent_at.is_(None), OutboxMessage.attempt_id.in_(ended)
        )
    )
    due = or_(
        OutboxMessage.available_at <= now,
        OutboxMessage.available_at > now + MAX_BACKOFF,  # the clock was set back since
    )
    statement = (
        select(OutboxMessage)
        .where(OutboxMessage.sent_at.is_(None), due)
        .order_by(OutboxMessage.id)
        .limit(BATCH)
        .with_for_update(skip_locked=True)
    )
    num_sent = 0
    for message in await session.scalars(statement):
        if not await _send(queue, message, now):
            break
        num_sent += 1
    await session.commit()
    return num_sent


async def remind(session: AsyncSession, now: datetime) -> None:
    """Have submissions sent again that left no trace: the broker may have lost them.

    The task is idempotent, and it is not repeated once anything was heard of the attempt.
    """
    unheard = select(Attempt.id).where(
        Attempt.status == RunStatus.STARTING.value,
        Attempt.submitted_at.is_(None),
        Attempt.heartbeat_at.is_(None),
    )
    await session.execute(
        update(OutboxMessage)
        .where(
            OutboxMessage.task == SUBMIT,
            or_(
                OutboxMessage.sent_at < now - SUBMIT_PATIENCE,
                OutboxMessage.sent_at > now + SUBMIT_PATIENCE,  # the clock was set back since
            ),
            OutboxMessage.attempt_id.in_(unheard),
        )
        .values(sent_at=None, available_at=now)
    )


async def _send(queue: TaskQueue, message: OutboxMessage, now: datetime) -> bool:
    try:
        await asyncio.to_thread(queue.send, message.task, message.args)
    except Exception as error:  # whatever a broker's client raises: the message stays
        message.num_failures += 1
        message.last_error = f"{type(error).__name__}: {error}"
        backoff = timedelta(seconds=min(2**message.num_failures, MAX_BACKOFF.total_seconds()))
        message.available_at = now + backoff
        logger.warning("%s %s could not be sent: %s", message.task, message.args, error)
        return False
    message.sent_at = now
    return True
