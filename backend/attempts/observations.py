"""What the workers saw of Ray, stored for whoever judges; and judged at once."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from backend.attempts import repository
from backend.attempts.reconciliation import reconcile
from backend.attempts.schemas import Observation, ObservedJob
from backend.models import ClusterObservation
from backend.slots import nodes
from backend.text import excerpt
from lagoon.status import RunStatus


async def take(
    session: AsyncSession, observation: Observation, now: datetime, listening_since: datetime
) -> None:
    """Store what was seen, and judge the runs that it is about."""
    cluster = observation.cluster
    values = {
        "id": 1,
        "at": now,
        "ray": observation.ray,
        "cpus": cluster.cpus if cluster else None,
        "gpus": cluster.gpus if cluster else None,
    }
    changes = {name: value for name, value in values.items() if name != "id"}
    if cluster is None:  # an unreachable cluster has not shrunk
        del changes["cpus"], changes["gpus"]
    statement = insert(ClusterObservation).values(values)
    await session.execute(statement.on_conflict_do_update(index_elements=["id"], set_=changes))
    if cluster is not None:
        await nodes.take(session, cluster.nodes, now)
    for job in sorted(observation.jobs, key=lambda job: job.attempt_id):
        await _take_job(session, job, now, listening_since)


async def _take_job(
    session: AsyncSession, job: ObservedJob, now: datetime, listening_since: datetime
) -> None:
    found = await repository.with_locked_run(session, job.attempt_id)
    if found is None:
        return
    run, attempt = found
    attempt.ray_status = job.ray_status
    attempt.ray_message = excerpt(job.message) if job.message else None
    attempt.ray_seen_at = now
    if RunStatus(attempt.status).is_active:
        reconcile(session, run, attempt, now, listening_since)
