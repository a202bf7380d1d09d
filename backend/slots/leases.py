"""Leases: taken with the start of an attempt, released when nothing of the attempt is left.

::

    schedule ──take──▶ held, fencing token 0 ──a credential is minted──▶ held, its token
                                                                            │
                              released ◀──lease_is_free: its processes are gone┘

An attempt without a lease gets no credential and no configuration: it cannot start anything on
slots that may be somebody else's by now.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Select, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from backend.errors import Problem
from backend.models import Attempt, Lease
from lagoon.placement import Process
from lagoon.status import RunStatus


def lease_is_free(attempt: Attempt) -> bool:
    """Whether nothing of the attempt can be running any more. The one place of this rule.

    No credential minted: no job was ever submitted, and none will be. Otherwise the workers must
    have seen that none of its processes is left.
    """
    if not RunStatus(attempt.status).is_terminal:
        return False
    return attempt.fencing_token == 0 or attempt.gone_at is not None


def take(
    session: AsyncSession,
    attempt: Attempt,
    processes: Sequence[Process],
    places: Sequence[str],
    now: datetime,
) -> None:
    """Lease each process its slots, in the transaction that starts the attempt."""
    for process, node in zip(processes, places, strict=True):
        session.add(
            Lease(
                attempt_id=attempt.id,
                process=process.name,
                node_id=node,
                cpus=process.cpus,
                gpus=process.gpus,
                fencing_token=attempt.fencing_token,
                taken_at=now,
                released_at=None,
            )
        )


async def bind(session: AsyncSession, attempt: Attempt) -> None:
    """Have the attempt's newest credential be the one that may use its slots.

    Raises a 409 problem when the attempt holds none.
    """
    held = update(Lease).where(Lease.attempt_id == attempt.id, Lease.released_at.is_(None))
    bound = await session.scalars(
        held.values(fencing_token=attempt.fencing_token).returning(Lease.id)
    )
    if not bound.all():
        raise _without_lease(attempt)


async def require(session: AsyncSession, attempt: Attempt) -> None:
    """Raise a 409 problem unless the attempt's newest credential may use slots."""
    held = select(Lease.id).where(
        Lease.attempt_id == attempt.id,
        Lease.released_at.is_(None),
        Lease.fencing_token == attempt.fencing_token,
    )
    if await session.scalar(held.limit(1)) is None:
        raise _without_lease(attempt)


async def places(session: AsyncSession, attempt_id: str) -> dict[str, str]:
    """The node of each process of an attempt, as its lease says."""
    held = select(Lease.process, Lease.node_id).where(
        Lease.attempt_id == attempt_id, Lease.released_at.is_(None)
    )
    return {row.process: row.node_id for row in await session.execute(held)}


async def release(session: AsyncSession, now: datetime) -> None:
    """Release the leases of all attempts of which nothing is left. The caller commits."""
    statement = select(Attempt).where(Attempt.id.in_(_held()))
    fresh = statement.execution_options(populate_existing=True)
    free = [attempt.id for attempt in await session.scalars(fresh) if lease_is_free(attempt)]
    if free:
        over = update(Lease).where(Lease.attempt_id.in_(free), Lease.released_at.is_(None))
        await session.execute(over.values(released_at=now))


async def refuse_while_held(session: AsyncSession, run_ids: Sequence[str]) -> None:
    """Raise a 409 problem when processes of one of the runs may still be there."""
    statement = select(Attempt).where(Attempt.run_id.in_(run_ids), Attempt.id.in_(_held()))
    held = [each for each in await session.scalars(statement) if not lease_is_free(each)]
    if held:
        raise Problem(
            409,
            "processes-left",
            f"Processes of run {held[0].run_id} are still being ended. Nothing was deleted; try "
            "again in some seconds.",
        )


def _held() -> Select[str]:
    return select(Lease.attempt_id).where(Lease.released_at.is_(None))


def _without_lease(attempt: Attempt) -> Problem:
    return Problem(
        409,
        "no-lease",
        f"Attempt {attempt.id} holds no CPUs or GPUs: it must not start. It was given none, or "
        "they were released when it ended.",
    )
