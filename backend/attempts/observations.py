"""What becomes of a run when its Ray job was looked at.

The decision itself is the core's (``lagoon.status.concluded``); here it is only asked when there is
evidence: a job that Ray does not know says nothing while it may not have been submitted yet, or
while its driver is heard.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from backend.attempts import repository
from backend.attempts.schemas import Observation, ObservedJob
from backend.models import Attempt, ClusterObservation
from backend.runs.transitions import move
from backend.text import excerpt, first_line
from lagoon.status import RunStatus, concluded

SUBMISSION_GRACE = timedelta(seconds=15)
HEARTBEAT_FRESH = timedelta(seconds=15)


async def take(session: AsyncSession, observation: Observation, now: datetime) -> None:
    """Store what was seen, and conclude the runs that it decides."""
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
    for job in sorted(observation.jobs, key=lambda job: job.attempt_id):
        await _take_job(session, job, now)


async def _take_job(session: AsyncSession, job: ObservedJob, now: datetime) -> None:
    found = await repository.with_locked_run(session, job.attempt_id)
    if found is None:
        return
    run, attempt = found
    attempt.ray_status = job.ray_status
    attempt.ray_message = excerpt(job.message) if job.message else None
    attempt.ray_seen_at = now
    if RunStatus(attempt.status).is_terminal or not _is_evidence(job, attempt, now):
        return
    conclusion = concluded(
        RunStatus(run.status), job.ray_status, None, run.stop_requested_at is not None
    )
    if conclusion is None:
        return
    status, reason = conclusion
    if job.message and status is RunStatus.FAILED:
        reason = f"{reason} Ray says: {first_line(job.message)}"
        run.traceback = run.traceback or excerpt(job.message)
    move(session, run, attempt, status, reason, now, by="observation")


def _is_evidence(job: ObservedJob, attempt: Attempt, now: datetime) -> bool:
    if job.ray_status != "missing":
        return True
    if attempt.submitted_at is None:
        return False
    is_heard = attempt.heartbeat_at is not None and now - attempt.heartbeat_at < HEARTBEAT_FRESH
    return now - attempt.submitted_at > SUBMISSION_GRACE and not is_heard
