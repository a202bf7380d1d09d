"""The nodes of the cluster, as the workers last saw them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from backend.attempts.schemas import ObservedNode
from backend.models import ClusterNode
from lagoon.queueing import NEVER_SEEN
from lagoon.truth import OBSERVATION_SECONDS

LONG_AGO = "Ray was last seen more than a minute ago; nothing starts before it is seen again."


async def take(session: AsyncSession, nodes: Sequence[ObservedNode], now: datetime) -> None:
    """Store the nodes of one look at Ray; those that are not among them are gone."""
    for node in sorted(nodes, key=lambda node: node.id):
        values = {**node.model_dump(), "seen_at": now}
        changes = {name: value for name, value in values.items() if name != "id"}
        statement = insert(ClusterNode).values(values)
        await session.execute(statement.on_conflict_do_update(index_elements=["id"], set_=changes))


async def present(session: AsyncSession, now: datetime) -> Sequence[ClusterNode]:
    """The nodes of the newest look at Ray, if that was lately."""
    newest = select(func.max(ClusterNode.seen_at)).scalar_subquery()
    oldest = now - timedelta(seconds=OBSERVATION_SECONDS)
    statement = (
        select(ClusterNode)
        .where(ClusterNode.seen_at == newest, ClusterNode.seen_at > oldest)
        .order_by(ClusterNode.name, ClusterNode.id)
    )
    return (await session.scalars(statement.execution_options(populate_existing=True))).all()


async def names(session: AsyncSession) -> dict[str, str]:
    """The names of all nodes that were ever seen, by id."""
    rows = await session.execute(select(ClusterNode.id, ClusterNode.name))
    return {row.id: row.name for row in rows}


async def absence(session: AsyncSession) -> str:
    """Why there are no nodes, in words."""
    was_seen = await session.scalar(select(ClusterNode.id).limit(1))
    return NEVER_SEEN if was_seen is None else LONG_AGO
