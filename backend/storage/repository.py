"""What runs take, put together from counters in the database and files in the home folder."""

from __future__ import annotations

import asyncio
import shutil
from collections import defaultdict
from pathlib import Path

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from backend.accounts.access import Principal
from backend.models import Attempt, Checkpoint, Run, RunStorage, User
from backend.settings import Settings
from backend.storage import beginnings, weights
from backend.storage.schemas import HomeSizes, RunSizes

FIELDS = {
    "trajectories": "trajectory_bytes",
    "log_lines": "log_bytes",
    "points": "metric_bytes",
    "histograms": "metric_bytes",
}


async def sizes(session: AsyncSession, viewer: Principal, home: Path) -> list[RunSizes]:
    """Every run that the viewer may see, the largest first."""
    statement = select(Run.id, Run.name, Run.status, User.username).join(
        User, User.id == Run.owner_id
    )
    if not viewer.is_admin:
        statement = statement.where(Run.owner_id == viewer.id)
    runs = {
        row.id: RunSizes(run_id=row.id, name=row.name, owner=row.username, status=row.status)
        for row in await session.execute(statement)
    }
    for held in await session.scalars(select(RunStorage)):
        field = FIELDS.get(held.kind)
        if field is not None and held.run_id in runs:
            run = runs[held.run_id]
            setattr(run, field, getattr(run, field) + held.held_bytes)
    await _add_files(session, runs, home)
    return sorted(runs.values(), key=lambda run: (-run.total_bytes, run.run_id))


async def home_sizes(session: AsyncSession, settings: Settings) -> HomeSizes:
    """The database, the disk that the home folder is on, and the quota."""
    database = await session.scalar(select(func.pg_database_size(func.current_database())))
    disk = await asyncio.to_thread(shutil.disk_usage, settings.home)
    return HomeSizes(
        database_bytes=database or 0,
        disk_free_bytes=disk.free,
        disk_total_bytes=disk.total,
        checkpoint_quota_bytes=settings.checkpoint_quota_bytes,
    )


async def _add_files(session: AsyncSession, runs: dict[str, RunSizes], home: Path) -> None:
    """Weights and spools, as far as they are on this machine."""
    checkpoints = [c for c in await session.scalars(select(Checkpoint)) if c.run_id in runs]
    attempts: dict[str, list[str]] = defaultdict(list)
    for id, run_id in await session.execute(select(Attempt.id, Attempt.run_id)):
        if run_id in runs:
            attempts[run_id].append(id)
    by_checkpoint = await asyncio.to_thread(weights.measured, home, checkpoints)
    for checkpoint in checkpoints:
        runs[checkpoint.run_id].checkpoint_bytes += by_checkpoint[checkpoint.id]
    for run_id, size in (await asyncio.to_thread(weights.spool_bytes, home, attempts)).items():
        runs[run_id].spool_bytes = size
    for run_id, size in (await asyncio.to_thread(beginnings.own_bytes, home, attempts)).items():
        runs[run_id].checkpoint_bytes += size
