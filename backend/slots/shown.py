"""The queue as one viewer may see it.

Everybody sees who holds what and who waits with which needs; names and ids of runs are shown to
those who may see the runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from backend.accounts.access import Principal
from backend.models import User
from backend.runs import repository
from backend.runs.schemas import RunReference
from backend.slots.outlook import Held, Outlook, Queued, outlook
from backend.slots.schemas import LeaseOut, NodeOut, NodeShare, QueueItem, QueueOut
from lagoon.placement import DIGITS
from lagoon.queueing import named
from lagoon.status import RunStatus


async def shown(session: AsyncSession, viewer: Principal, now: datetime) -> QueueOut:
    """The queue, the leases and the nodes."""
    seen = await outlook(session, now)
    ids = {each.run.id for each in seen.held} | {each.waiting.run_id for each in seen.queue}
    names = await repository.names(session, viewer, ids)
    rows = await session.execute(select(User.id, User.username))
    owners = {row.id: row.username for row in rows}
    return QueueOut(
        items=[
            _item(position, queued, names, owners, viewer)
            for position, queued in enumerate(seen.queue, 1)
        ],
        leases=_leases(seen, names, owners),
        nodes=_nodes(seen),
    )


def _item(
    position: int,
    queued: Queued,
    names: Mapping[str, str],
    owners: Mapping[str, str],
    viewer: Principal,
) -> QueueItem:
    waiting = queued.waiting
    return QueueItem(
        position=position,
        run=_reference(waiting.run_id, names),
        owner=owners[waiting.owner],
        priority=waiting.priority,
        cpus=_sum(process.cpus for process in queued.processes),
        gpus=_sum(process.gpus for process in queued.processes),
        num_processes=len(queued.processes),
        reason=named(queued.decision.reason, names),
        queued_at=queued.created_at,
        may_change=viewer.is_admin or viewer.id == waiting.owner,
    )


def _leases(seen: Outlook, names: Mapping[str, str], owners: Mapping[str, str]) -> list[LeaseOut]:
    by_attempt: dict[str, list[Held]] = defaultdict(list)
    for each in seen.held:
        by_attempt[each.attempt.id].append(each)
    node_names = {node.id: node.name for node in seen.nodes}
    return [_lease(group, names, owners, node_names) for group in by_attempt.values()]


def _lease(
    group: Sequence[Held],
    names: Mapping[str, str],
    owners: Mapping[str, str],
    node_names: Mapping[str, str],
) -> LeaseOut:
    first = group[0]
    by_node: dict[str, list[Held]] = defaultdict(list)
    for each in group:
        by_node[each.node].append(each)
    return LeaseOut(
        run=_reference(first.run.id, names),
        owner=owners[first.run.owner_id],
        attempt=first.attempt.number,
        status=RunStatus(first.attempt.status),
        cpus=_sum(each.lease.cpus for each in group),
        gpus=_sum(each.lease.gpus for each in group),
        nodes=[
            NodeShare(
                node=node_names.get(node, "a node that is gone"),
                cpus=_sum(each.lease.cpus for each in on_it),
                gpus=_sum(each.lease.gpus for each in on_it),
            )
            for node, on_it in by_node.items()
        ],
        taken_at=first.lease.taken_at,
    )


def _nodes(seen: Outlook) -> list[NodeOut]:
    found = []
    for node in seen.nodes:
        on_it = [each.lease for each in seen.held if each.node == node.id]
        cpus, gpus = _sum(each.cpus for each in on_it), _sum(each.gpus for each in on_it)
        found.append(
            NodeOut(
                id=node.id,
                name=node.name,
                cpus=node.cpus,
                gpus=node.gpus,
                cpus_free=max(0.0, round(node.cpus - cpus, DIGITS)),
                gpus_free=max(0.0, round(node.gpus - gpus, DIGITS)),
                seen_at=node.seen_at,
            )
        )
    return found


def _reference(run_id: str, names: Mapping[str, str]) -> RunReference | None:
    return RunReference(run_id=run_id, name=names[run_id]) if run_id in names else None


def _sum(values: Iterable[float]) -> float:
    return round(sum(values), DIGITS)
