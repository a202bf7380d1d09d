"""The whole queue as it stands: nodes, leases, waiting runs, and what is decided about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Row, Select, and_, not_, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from backend.models import Attempt, ClusterNode, Lease, Run
from backend.slots import nodes
from lagoon import queueing
from lagoon.placement import Node, Process, processes_of
from lagoon.queueing import Decision, Waiting
from lagoon.recovery import MAX_DELAY_SECONDS
from lagoon.status import RunStatus

LONGEST_PAUSE = timedelta(seconds=MAX_DELAY_SECONDS)
"""Before a restart."""


@dataclass(frozen=True, slots=True)
class Queued:
    """A queued run: what is known of it, what is decided, and what its row says so far."""

    waiting: Waiting
    decision: Decision
    created_at: datetime
    told: tuple[int | None, str, str | None]
    """Position, reason and awaited run as they are stored."""

    @property
    def processes(self) -> Sequence[Process]:
        """What it asks for."""
        return self.waiting.processes


@dataclass(frozen=True, slots=True)
class Held:
    """A lease with the run it serves; ``node`` is the one its slots are counted on now."""

    lease: Lease
    attempt: Attempt
    run: Run
    node: str


@dataclass(frozen=True, slots=True)
class Outlook:
    """Everything that the queue is decided by, and the decisions in its order."""

    nodes: Sequence[ClusterNode]
    held: Sequence[Held]
    queue: Sequence[Queued]


async def outlook(session: AsyncSession, now: datetime) -> Outlook:
    """The queue now. Nothing is changed."""
    present = await nodes.present(session, now)
    held = await _held(session, present)
    rows = {row.id: row for row in await session.execute(_waiting_runs(now))}
    decisions = queueing.plan(
        [Node(node.id, node.cpus, node.gpus) for node in present],
        [_lease(each) for each in held],
        waiting := [_waiting(row) for row in rows.values()],
        await nodes.absence(session),
    )
    known = {each.run_id: each for each in waiting}
    return Outlook(
        present,
        held,
        [
            Queued(known[each.run_id], each, rows[each.run_id].created_at, _told(rows[each.run_id]))
            for each in decisions
        ],
    )


def is_paused(now: datetime) -> ColumnElement[bool]:
    """A run that waits for the pause before its restart; none is longer than the longest, unless
    the clock was set back since."""
    return and_(Run.not_before > now, Run.not_before <= now + LONGEST_PAUSE)


def _waiting_runs(now: datetime) -> Select[Any]:
    """Only what the queue needs: configurations are long, and the queue is gone through often.

    A restart joins it when its pause is over; until then its own reason says why it waits.
    """
    return select(
        Run.id,
        Run.owner_id,
        Run.priority,
        Run.queue_number,
        Run.created_at,
        Run.queue_position,
        Run.reason,
        Run.waiting_for_id,
        Run.config["rollout"]["num_generators"].as_integer().label("num_generators"),
        Run.config["resources"].label("resources"),
        Run.config["trainer"].label("trainer"),
    ).where(
        Run.status == RunStatus.QUEUED.value,
        or_(Run.not_before.is_(None), not_(is_paused(now))),
    )


def _waiting(row: Row[tuple[object, ...]]) -> Waiting:
    config = {
        "rollout": {"num_generators": row.num_generators},
        "resources": row.resources,
        "trainer": row.trainer,
    }
    return Waiting(row.id, row.owner_id, row.priority, row.queue_number, processes_of(config))


def _told(row: Row[tuple[object, ...]]) -> tuple[int | None, str, str | None]:
    return row.queue_position, row.reason, row.waiting_for_id


async def _held(session: AsyncSession, present: Sequence[ClusterNode]) -> Sequence[Held]:
    """The leases that are held. A node that came back under another id is the same machine."""
    names = await nodes.names(session)
    by_name = {node.name: node.id for node in reversed(present)}
    ids = {node.id for node in present}
    statement = (
        select(Lease, Attempt, Run)
        .join(Attempt, Attempt.id == Lease.attempt_id)
        .join(Run, Run.id == Attempt.run_id)
        .where(Lease.released_at.is_(None))
        .order_by(Lease.id)
    )
    found = []
    for lease, attempt, run in (await session.execute(statement)).all():
        heir = by_name.get(names.get(lease.node_id, ""), lease.node_id)
        found.append(Held(lease, attempt, run, lease.node_id if lease.node_id in ids else heir))
    return found


def _lease(held: Held) -> queueing.Lease:
    lease = held.lease
    return queueing.Lease(
        held.run.id,
        held.run.owner_id,
        held.node,
        lease.cpus,
        lease.gpus,
        RunStatus(held.attempt.status).is_terminal,
    )
