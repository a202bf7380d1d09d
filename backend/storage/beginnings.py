"""What a fork begins with, held for it from the moment that it is made.

::

    parent's step-40 ──linked, file by file──▶ attempts/FORK-a1/checkpoints/beginning
         │                                            │
         └─▶ its run may remove it at any time        └─(the fork has saved its own)─▶ removed

A parent that still trains removes its older checkpoints by itself, and may be away from the API
while it does. Links to the same files need no word with it and no room of their own. Where the
checkpoint is not in this home folder the fork begins with the parent's, as it is.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from backend.attempts.repository import existing
from backend.context import Context
from backend.errors import Problem
from backend.ids import attempt_id
from backend.models import Attempt, Checkpoint
from backend.runs.files import num_bytes
from backend.storage.lease import take_lease
from backend.storage.weights import own_folder
from lagoon.checkpoints import MANIFEST, DamagedCheckpoint, read_manifest
from lagoon.spools import ATTEMPTS

FOLDER = "beginning"
UNKNOWN_FOR_SECONDS = 3600.0
"""A beginning of an attempt that nobody knows may be of a fork that is being made just now."""

logger = logging.getLogger(__name__)


@asynccontextmanager
async def held(home: Path, checkpoint: Checkpoint, fork_id: str) -> AsyncIterator[str]:
    """The path of the checkpoint that the fork is to begin with; it is let go when the body raises.

    Raises a 409 problem when the parent removes the checkpoint at this very moment.
    """
    source = own_folder(home, checkpoint)
    if source is None or not source.parent.is_dir():
        yield checkpoint.path
        return
    attempt = home / ATTEMPTS / attempt_id(fork_id, 1)
    target = attempt / "checkpoints" / FOLDER
    try:
        try:
            await asyncio.to_thread(_link, source, target)
        except (FileNotFoundError, DamagedCheckpoint) as error:
            raise _removed(checkpoint) from error
        yield str(target)
    except BaseException:
        await asyncio.to_thread(shutil.rmtree, attempt, ignore_errors=True)
        raise


async def clear(context: Context) -> int:
    """Remove the beginnings that no attempt will begin with any more.

    Returns the bytes that the others hold alone, their parents' checkpoints being gone.
    """
    root = context.settings.home / ATTEMPTS
    found = await asyncio.to_thread(lambda: sorted(root.glob(f"*-a1/checkpoints/{FOLDER}")))
    if not found:
        return 0
    by_attempt = {folder.parents[1].name: folder for folder in found}
    async with context.database.session() as session:
        if not await take_lease(session):
            return 0
        known = await existing(session, list(by_attempt))
        wanted = await _wanted(session)
    now, left_bytes = context.clock().timestamp(), 0
    for id, folder in by_attempt.items():
        is_over = (
            str(folder) not in wanted if id in known else _age(folder, now) > UNKNOWN_FOR_SECONDS
        )
        if is_over:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        else:
            left_bytes += await asyncio.to_thread(num_bytes, folder, only_unshared=True)
    return left_bytes


def own_bytes(home: Path, attempts: Mapping[str, Iterable[str]]) -> dict[str, int]:
    """Bytes that the beginnings of runs hold alone, their parents' being gone; ``attempts`` has the
    ids of each run's attempts."""
    return {
        run_id: sum(num_bytes(_folder(home, id), only_unshared=True) for id in ids)
        for run_id, ids in attempts.items()
    }


def _folder(home: Path, attempt: str) -> Path:
    return home / ATTEMPTS / attempt / "checkpoints" / FOLDER


async def _wanted(session: AsyncSession) -> set[str]:
    """Paths that forks without a checkpoint of their own begin with, or would when resumed."""
    has_own = select(Checkpoint.id).where(Checkpoint.run_id == Attempt.run_id).exists()
    statement = select(Attempt.candidates).where(Attempt.owns_candidates.is_(False), ~has_own)
    return {path for paths in await session.scalars(statement) for path in paths}


def _link(source: Path, target: Path) -> None:
    """The files that the manifest names, and last the manifest itself."""
    target.parents[1].mkdir(mode=0o700, parents=True)
    target.mkdir(parents=True)
    for name in [*read_manifest(source).files, MANIFEST]:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        _link_file(source / name, target / name)


def _link_file(source: Path, target: Path) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except FileNotFoundError:
        raise
    except OSError as error:  # a file system without links, or a limit on their number
        logger.info("%s is copied, as it cannot be linked: %s", source, error)
        shutil.copy2(source, target)


def _age(folder: Path, now: float) -> float:
    try:
        return now - folder.stat().st_mtime
    except OSError:
        return 0.0


def _removed(checkpoint: Checkpoint) -> Problem:
    return Problem(
        409,
        "checkpoint-removed",
        f"The checkpoint of step {checkpoint.step} was removed by its run at this moment, to keep "
        "the newest and the best. Nothing was changed; choose a newer one.",
    )
