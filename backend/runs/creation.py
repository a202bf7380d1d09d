"""Making a run: the run, its first attempt, its history, all in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncSession

from backend.ids import attempt_id, new_id
from backend.models import Attempt, Checkpoint, Run
from backend.runs.transitions import record
from lagoon.config import RunConfig
from lagoon.status import RunStatus


async def add_run(
    session: AsyncSession,
    *,
    name: str,
    config: RunConfig,
    experiment_id: str,
    owner_id: str,
    by: str,
    now: datetime,
    run_id: str | None = None,
    fork_of: Checkpoint | None = None,
    begins_with: str = "",
) -> Run:
    """A queued run with its first attempt. The scheduler starts it when its turn has come.

    A fork begins with another run's checkpoint, which is at ``begins_with``.
    """
    run = Run(
        id=run_id or new_id("r"),
        experiment_id=experiment_id,
        owner_id=owner_id,
        name=name,
        config=config.model_dump(mode="json"),
        method=getattr(config.method, "name"),  # noqa: B009  declared by each method
        environment=getattr(config.environment, "name"),  # noqa: B009  declared by each environment
        model=config.model.path,
        control=config.control,
        max_steps=config.budget.max_steps,
        status=RunStatus.QUEUED.value,
        reason="",
        condition="",
        condition_since=None,
        desired="run",
        waiting_for_id=None,
        traceback=None,
        stop_requested_at=None,
        stop_requested_by=None,
        not_before=None,
        parent_run_id=fork_of.run_id if fork_of else None,
        parent_step=fork_of.step if fork_of else None,
        created_at=now,
        started_at=None,
        ended_at=None,
        step=0,
        cursor=0,
        num_events=0,
        num_log_lines=0,
    )
    session.add(run)
    await session.flush()
    paths = [begins_with] if fork_of else []
    is_own = fork_of is None
    session.add(
        new_attempt(run.id, 1, now, candidates=paths, owns_candidates=is_own, takes_newest=is_own)
    )
    why = f"A fork of {fork_of.run_id} at step {fork_of.step}." if fork_of else ""
    record(session, run, 1, "created", why, now, after=RunStatus.QUEUED, by=by)
    await session.flush()
    return run


def new_attempt(
    run_id: str,
    number: int,
    now: datetime,
    *,
    candidates: Sequence[str] = (),
    owns_candidates: bool = True,
    takes_newest: bool = True,
    is_restart: bool = False,
) -> Attempt:
    """A queued attempt, which may go on from one of ``candidates`` (paths, newest first)."""
    return Attempt(
        id=attempt_id(run_id, number),
        run_id=run_id,
        number=number,
        status=RunStatus.QUEUED.value,
        reason="",
        created_at=now,
        submitted_at=None,
        submission_id=None,
        started_at=None,
        ended_at=None,
        token_hash=None,
        fencing_token=0,
        heartbeat_at=None,
        heartbeat_host=None,
        heartbeat_pid=None,
        heartbeat_boot_id=None,
        trajectories=0,
        activity=None,
        idle_seconds=None,
        ray_status=None,
        ray_message=None,
        ray_seen_at=None,
        last_step=0,
        is_restart=is_restart,
        candidates=list(candidates),
        owns_candidates=owns_candidates,
        takes_newest=takes_newest,
        resumed_step=None,
        num_changes=0,
        marker=None,
        marker_reason=None,
        marker_is_transient=False,
        marker_at=None,
        stop_heard_at=None,
        stop_saved_at=None,
        num_processes=None,
        gone_at=None,
    )
