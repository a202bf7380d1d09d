"""The queue as one viewer may see it.

Everybody sees who holds what and who waits with which needs; names and ids of runs are shown to
those who may see the runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from backend.accounts.access import Principal
from backend.models import User
from backend.runs import repository
from backend.runs.schemas import RunReference
from backend.slots.outlook import Held, Outlook, Queued, outlook
from backend.slots.paused import Paused, paused
from backend.slots.schemas import LeaseOut, NodeOut, NodeShare, PausedItem, QueueItem, QueueOut
from lagoon.placement import DIGITS
from lagoon.queueing import Waiting, named
from lagoon.status import RunStatus


async def shown(session: AsyncSession, viewer: Principal, now: datetime) -> QueueOut:
    """The queue, the leases and the nodes."""
    seen, pausing = await outlook(session, now), await paused(session, now)
    ids = {each.run.id for each in seen.held} | {each.waiting.run_id for each in seen.queue}
    ids |= {each.run_id for each in pausing}
    names = await repository.names(session, viewer, ids)
    rows = await session.execute(select(User.id, User.username))
    owners = {row.id: row.username for row in rows}
    return QueueOut(
        items=[
            _item(position, queued, names, owners, viewer)
            for position, queued in enumerate(seen.queue, 1)
        ],
        paused=[_paused(each, names, owners, viewer) for each in pausing],
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
    return QueueItem(
        **_asking(queued.waiting, names, owners, viewer),
        position=position,
        reason=named(queued.decision.reason, names),
        queued_at=queued.created_at,
    )


def _paused(
    pausing: Paused, names: Mapping[str, str], owners: Mapping[str, str], viewer: Principal
) -> PausedItem:
    return PausedItem(
        **_asking(pausing, names, owners, viewer),
        restarts_at=pausing.restarts_at,
        reason=pausing.cause if pausing.run_id in names else "",
    )


def _asking(
    run: Waiting | Paused, names: Mapping[str, str], owners: Mapping[str, str], viewer: Principal
) -> dict[str, Any]:
    return {
        "run": _reference(run.run_id, names),
        "owner": owners[run.owner],
        "priority": run.priority,
        "cpus": _sum(process.cpus for process in run.processes),
        "gpus": _sum(process.gpus for process in run.processes),
        "num_processes": len(run.processes),
        "may_change": viewer.is_admin or viewer.id == run.owner,
    }


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
