"""Retention: old lines, trajectories and weights are removed, a little at a time.

::

    once a minute, in one API process:
        logs, trajectories ─▶ runs past the cap, or ended long ago
                                 └▶ a batch of the oldest ─▶ commit ─▶ the next batch … ─▶ history
        weights            ─▶ past the quota: the oldest that nobody needs (``weights.py``)
        beginnings         ─▶ of forks that have saved their own (``beginnings.py``)
        spools             ─▶ delivered to their end, and of long ago (``spools.py``)

A batch holds no lock that a driver waits for longer than it takes to delete its rows: the run's own
row is locked for the entry in its history alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from sqlalchemy import CursorResult, Select, TextClause, select, text
from sqlalchemy.ext.asyncio import AsyncSession

from backend.context import Context
from backend.models import Run, RunStorage
from backend.runs import repository
from backend.runs.transitions import record
from backend.settings import Settings
from backend.storage import beginnings, spools, weights
from backend.storage.accounting import listed, note_empty, note_expired
from backend.storage.lease import take_lease

INTERVAL_SECONDS = 60.0
BATCH_ROWS = 2000
MAX_RUNS = 50
"""Runs that one turn looks after; the rest is done in the next ones."""

Rows = Literal["log_lines", "trajectories"]

DELETE: dict[Rows, TextClause] = {
    "log_lines": text(
        "DELETE FROM log_lines WHERE run_id = :run AND n IN "
        "(SELECT n FROM log_lines WHERE run_id = :run ORDER BY n LIMIT :rows)"
    ),
    "trajectories": text(
        "DELETE FROM trajectories WHERE id IN "
        "(SELECT id FROM trajectories WHERE run_id = :run ORDER BY id LIMIT :rows)"
    ),
}


@dataclass(frozen=True, slots=True)
class _Task:
    """Rows of one run that are to go, the oldest first."""

    run_id: str
    kind: Rows
    count: int
    why: str


async def turn(context: Context) -> None:
    """One turn: what is due is removed."""
    now = context.clock()
    async with context.database.session() as session:
        tasks = await _due(session, context.settings, now)
    for task in tasks:
        if not await _remove(context, task):
            return
    beside = await beginnings.clear(context)
    await weights.keep_within_quota(context, beside)
    await spools.remove_old(context)


async def _due(session: AsyncSession, settings: Settings, now: datetime) -> list[_Task]:
    limits: tuple[tuple[Rows, int, int | None], ...] = (
        ("log_lines", settings.max_log_lines_per_run, settings.log_retention_days),
        ("trajectories", settings.max_trajectories_per_run, settings.trajectory_retention_days),
    )
    tasks: list[_Task] = []
    for kind, cap, days in limits:
        held = _held(kind)
        if days is not None:
            long_ago = held.where(Run.ended_at < now - timedelta(days=days))
            why = f"they are kept for {days:,} days after a run's end"
            rows = await session.execute(long_ago.where(RunStorage.num_held > 0))
            tasks += [_Task(run_id, kind, count, why) for run_id, count in rows]
        # A tenth more may gather first: otherwise every minute of a long run would have its own
        # entry in the history.
        over = held.where(RunStorage.num_held > cap + cap // 10)
        rows = await session.execute(over)
        why = f"the newest {cap:,} of a run are kept"
        seen = {task.run_id for task in tasks if task.kind == kind}
        tasks += [_Task(id, kind, count - cap, why) for id, count in rows if id not in seen]
    return tasks


def _held(kind: Rows) -> Select[str, int]:
    statement = select(RunStorage.run_id, RunStorage.num_held).join(
        Run, Run.id == RunStorage.run_id
    )
    return statement.where(RunStorage.kind == kind).order_by(RunStorage.run_id).limit(MAX_RUNS)


async def _remove(context: Context, task: _Task) -> bool:
    """Remove a run's rows, batch by batch, and tell; False when another process is at it."""
    done = 0
    while done < task.count:
        size = min(BATCH_ROWS, task.count - done)
        removed = await _remove_batch(context, task, size)
        if removed is None:
            return False
        done += removed
        if removed < size:
            break
    if done:
        await _tell(context, task, done)
    return True


async def _remove_batch(context: Context, task: _Task, size: int) -> int | None:
    """The rows removed: fewer than ``size`` when no more are left; None without the lease."""
    async with context.database.session() as session:
        if not await take_lease(session):
            return None
        result = await session.execute(DELETE[task.kind], {"run": task.run_id, "rows": size})
        assert isinstance(result, CursorResult)
        removed = result.rowcount
        await note_expired(session, task.run_id, task.kind, removed)
        if removed < size:
            await note_empty(session, task.run_id, task.kind)
        await session.commit()
    return removed


async def _tell(context: Context, task: _Task, count: int) -> None:
    """An entry in the run's history, in a transaction of its own: who stores events locks the run
    before its counters, so nobody who holds these may ask for that."""
    async with context.database.session() as session:
        run = await repository.locked(session, task.run_id)
        if run is not None:
            reason = f"Retention removed {listed({task.kind: count})}, the oldest: {task.why}."
            now = context.clock()
            record(session, run, None, "expired", reason, now, by="retention")
            await session.commit()
