"""What the workers saw of Ray, stored for whoever judges; and judged at once."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from backend.attempts import repository
from backend.attempts.reconciliation import believed_ray_status, heard, reconcile
from backend.attempts.schemas import Observation, ObservedJob
from backend.models import Attempt, ClusterObservation, Run
from backend.runs.transitions import record
from backend.slots import nodes
from backend.text import excerpt
from lagoon.status import RunStatus
from lagoon.stopping import Measure, is_gone, measure

GONE_WORDS = "None of its processes is left; what they held is free."


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
        await _take_job(session, job, observation.boot_id, now, listening_since)


async def _take_job(
    session: AsyncSession, job: ObservedJob, boot_id: str, now: datetime, listening_since: datetime
) -> None:
    found = await repository.with_locked_run(session, job.attempt_id)
    if found is None:
        return
    run, attempt = found
    attempt.ray_status = job.ray_status
    attempt.ray_message = excerpt(job.message) if job.message else None
    attempt.ray_seen_at = now
    is_news = attempt.num_processes != job.num_processes
    attempt.num_processes = job.num_processes
    if job.num_killed:
        _note_kill(session, run, attempt, job.num_killed, now)
    if attempt.gone_at is None and _is_gone(run, attempt, boot_id, now, listening_since):
        attempt.gone_at = now
        record(session, run, attempt.number, "gone", GONE_WORDS, now, by="workers")
    elif is_news and RunStatus(attempt.status).is_terminal:
        run.cursor += 1  # its page says how many are left
    if RunStatus(attempt.status).is_active:
        await reconcile(session, run, attempt, now, listening_since)


def due_measure(run: Run, attempt: Attempt, now: datetime) -> Measure:
    """What the workers should do to end the attempt."""
    asked = run.stop_requested_at if run.desired == "stop" else None
    over = _seconds_since(attempt.marker_at or attempt.ended_at, now)
    if over is not None:
        over = abs(over)  # a clock that was set back since has not made it last longer
    return measure(_seconds_since(asked, now), over)


def _seconds_since(moment: datetime | None, now: datetime) -> float | None:
    return None if moment is None else (now - moment).total_seconds()


def _is_gone(
    run: Run, attempt: Attempt, boot_id: str, now: datetime, listening_since: datetime
) -> bool:
    is_here = bool(boot_id) and attempt.heartbeat_boot_id == boot_id
    is_over = attempt.marker is not None or RunStatus(attempt.status).is_terminal
    assert attempt.ray_status is not None  # it was just seen
    return is_gone(
        attempt.ray_status if is_over else believed_ray_status(attempt, now),
        attempt.num_processes or 0,
        heard(attempt, now, listening_since),
        same_machine=is_here,
        desired=run.desired,
        is_over=is_over,
    )


def _note_kill(
    session: AsyncSession, run: Run, attempt: Attempt, count: int, now: datetime
) -> None:
    what = "1 process that was" if count == 1 else f"{count} processes that were"
    record(session, run, attempt.number, "killed", f"Killed {what} left of it.", now, by="workers")
