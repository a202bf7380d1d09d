"""Weights and spools in the home folder: measured, and kept within the quota.

::

    attempts/ID/checkpoints/step-40 ──set aside──▶ .step-40.expired ──(no record)──▶ removed
             ▲                                          │
             └──────────────── put back ◀───────────────┘ its record stays: something failed

Only what a run's own attempts wrote below their folders is ever measured or removed, and only on
the machine that has it. Never removed: what a run that is not over wrote, of each run the newest,
the newest that a resume would go on from, the best and the last final weights, and what a run that
waits is to begin with.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from backend.context import Context
from backend.ids import attempt_id
from backend.models import Attempt, Checkpoint, Run
from backend.runs import repository
from backend.runs.files import num_bytes
from backend.runs.resuming import is_superseded
from backend.runs.transitions import record
from backend.storage.accounting import note_expired
from backend.storage.lease import take_lease
from lagoon.sizes import in_words
from lagoon.spools import ATTEMPTS, spool_of
from lagoon.status import TERMINAL, RunStatus

logger = logging.getLogger(__name__)


def own_folder(home: Path, checkpoint: Checkpoint) -> Path | None:
    """Where the weights are, if that is where the run's own attempt keeps them."""
    path = Path(checkpoint.path)
    attempt = attempt_id(checkpoint.run_id, checkpoint.attempt)
    is_own = path.parent == home / ATTEMPTS / attempt / "checkpoints" and ".." not in path.parts
    return path if is_own and not path.is_symlink() else None


def measured(home: Path, checkpoints: Iterable[Checkpoint]) -> dict[int, int]:
    """Bytes of the weights on this machine, by the id of their record."""
    sizes = {}
    for checkpoint in checkpoints:
        folder = own_folder(home, checkpoint)
        sizes[checkpoint.id] = num_bytes(folder) if folder is not None else 0
    return sizes


def spool_bytes(home: Path, attempts: Mapping[str, Iterable[str]]) -> dict[str, int]:
    """Bytes of the spools of each run on this machine; ``attempts`` has the ids of its attempts."""
    return {
        run_id: sum(num_bytes(spool_of(home, id)) for id in ids) for run_id, ids in attempts.items()
    }


async def keep_within_quota(context: Context, beside_bytes: int) -> None:
    """Remove the oldest weights that nobody needs until the rest is within the quota, of which
    ``beside_bytes`` are taken by weights without a record."""
    quota = context.settings.checkpoint_quota_bytes
    if quota is None:
        return
    home = context.settings.home
    async with context.database.session() as session:
        if not await take_lease(session):
            return
        checkpoints = (await session.scalars(select(Checkpoint).order_by(Checkpoint.id))).all()
        known = {checkpoint.path for checkpoint in checkpoints}
        await asyncio.to_thread(_settle, home, known)
        removable = await _removable(session)
    sizes = await asyncio.to_thread(measured, home, checkpoints)
    excess = sum(sizes.values()) + beside_bytes - quota
    for checkpoint in removable:
        size = sizes.get(checkpoint.id, 0)
        if excess <= 0:
            return
        if size and await _remove(context, checkpoint, size, quota):
            excess -= size


async def _removable(session: AsyncSession) -> list[Checkpoint]:
    """What may go, the oldest first."""
    statement = (
        select(Checkpoint)
        .join(Run, Run.id == Checkpoint.run_id)
        .where(Run.status.in_(TERMINAL))
        .order_by(Checkpoint.id)
    )
    found = (await session.scalars(statement)).all()
    attempts: dict[str, list[Attempt]] = defaultdict(list)
    for attempt in await session.scalars(select(Attempt)):
        attempts[attempt.run_id].append(attempt)
    newest = {c.run_id: c.id for c in found}
    resumable = {c.run_id: c.id for c in found if not is_superseded(c, attempts[c.run_id])}
    best = {c.run_id: c.id for c in found if c.is_best}
    final = {c.run_id: c.id for c in found if c.is_final}
    waiting = select(Attempt.candidates).where(Attempt.status.not_in(TERMINAL))
    wanted = {path for paths in await session.scalars(waiting) for path in paths}
    kept = {id for ids in (newest, resumable, best, final) for id in ids.values()}
    candidates = [c for c in found if c.id not in kept and c.path not in wanted]
    return sorted(candidates, key=lambda checkpoint: (checkpoint.at, checkpoint.id))


async def _remove(context: Context, checkpoint: Checkpoint, size: int, quota: int) -> bool:
    """Remove one checkpoint; False when it is needed again, or cannot be moved."""
    folder = own_folder(context.settings.home, checkpoint)
    assert folder is not None  # it was measured
    aside = _aside(folder)
    async with context.database.session() as session:
        if not await take_lease(session):
            return False
        run = await repository.locked(session, checkpoint.run_id)
        held = await session.get(Checkpoint, checkpoint.id)
        if run is None or held is None or not RunStatus(run.status).is_terminal:
            return False
        try:
            await asyncio.to_thread(folder.rename, aside)
        except OSError as error:
            logger.warning("%s cannot be removed: %s", folder, error)
            return False
        await session.delete(held)
        await note_expired(session, run.id, "checkpoints", 1)
        reason = (
            f"Retention removed the weights of step {held.step} ({in_words(size)}): the home "
            f"folder's weights may take {in_words(quota)}."
        )
        record(session, run, held.attempt, "expired", reason, context.clock(), by="retention")
        await session.commit()
    await asyncio.to_thread(shutil.rmtree, aside, ignore_errors=True)
    return True


def _aside(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.expired")


def _settle(home: Path, known: set[str]) -> None:
    """Finish what a process left undone that died: a record that stays gets its weights back."""
    for aside in (home / ATTEMPTS).glob("*/checkpoints/.*.expired"):
        folder = aside.with_name(aside.name.removeprefix(".").removesuffix(".expired"))
        if str(folder) in known and not folder.exists():
            aside.rename(folder)
        else:
            shutil.rmtree(aside, ignore_errors=True)
