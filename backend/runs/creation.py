"""Making a run: the run, its first attempt, its history, all in one transaction."""

from __future__ import annotations

import hashlib
import json
from datetime import datetime, timedelta

from sqlalchemy import delete, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from backend.errors import Invalid
from backend.ids import attempt_id, new_id
from backend.models import Attempt, IdempotencyKey, Run
from backend.runs.schemas import NewRun
from backend.runs.transitions import record
from lagoon.config import RunConfig
from lagoon.problems import FieldProblem
from lagoon.status import RunStatus

KEY_LIFETIME = timedelta(hours=24)


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
) -> Run:
    """A queued run with its first attempt. The scheduler starts it when the machine is free."""
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
        waiting_for_id=None,
        traceback=None,
        stop_requested_at=None,
        stop_requested_by=None,
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
    session.add(_first_attempt(run.id, now))
    record(session, run, 1, "created", "", now, after=RunStatus.QUEUED, by=by)
    await session.flush()
    return run


def _first_attempt(run_id: str, now: datetime) -> Attempt:
    return Attempt(
        id=attempt_id(run_id, 1),
        run_id=run_id,
        number=1,
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
        ray_status=None,
        ray_message=None,
        ray_seen_at=None,
    )


async def claim_key(
    session: AsyncSession, user_id: str, key: str, body: NewRun, run_id: str, now: datetime
) -> str | None:
    """Reserve an idempotency key for ``run_id``; the id of the earlier run when it is taken.

    A request that is still in progress with the same key is waited for. Raises ``Invalid`` when
    the key was used for a different request.
    """
    await session.execute(
        delete(IdempotencyKey).where(
            IdempotencyKey.user_id == user_id, IdempotencyKey.created_at < now - KEY_LIFETIME
        )
    )
    values = {
        "user_id": user_id,
        "key": key,
        "request_hash": _digest(body),
        "run_id": run_id,
        "created_at": now,
    }
    statement = insert(IdempotencyKey).values(values).on_conflict_do_nothing()
    if await session.scalar(statement.returning(IdempotencyKey.run_id)) is not None:
        return None
    earlier = (
        await session.scalars(
            select(IdempotencyKey).where(
                IdempotencyKey.user_id == user_id, IdempotencyKey.key == key
            )
        )
    ).one()
    if earlier.request_hash != values["request_hash"]:
        message = "this key was used for a different request; make a new one for a new run"
        raise Invalid([FieldProblem(("Idempotency-Key",), message)], "idempotency-key-reused")
    return earlier.run_id


def _digest(body: NewRun) -> bytes:
    text = json.dumps([body.name, body.experiment_id, body.config], sort_keys=True)
    return hashlib.sha256(text.encode()).digest()
