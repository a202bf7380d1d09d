"""What a run's attempts leave in the home folder (spools, credentials, weights), and its removal.

::

    attempts/ID ──set aside──▶ attempts/.deleted/ID ──(the record is gone)──▶ removed
         ▲                            │
         └──── put back ◀─────────────┘ another folder cannot be moved, or the record stays

A folder moves as a whole or not at all, so no failure leaves a run with half of its files.
"""

from __future__ import annotations

import asyncio
import logging
import re
import shutil
import stat
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from backend.errors import Problem
from lagoon.spools import ATTEMPTS

SET_ASIDE = ".deleted"
ATTEMPT = re.compile(r"[a-z0-9]+-a[0-9]+")
"""An attempt's id, and so the name of its folder: nothing else is ever moved or removed."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Removal:
    """What became of files that were to be removed."""

    freed_bytes: int
    left_behind: tuple[str, ...]
    """The folders that could not be removed, each with the reason."""


@asynccontextmanager
async def set_aside(home: Path, attempt_ids: Iterable[str]) -> AsyncIterator[list[Path]]:
    """Set the attempts' folders aside while their record is deleted; yields where they are now.

    Attempts without a folder are passed over: they never started, or ran elsewhere. When the body
    raises, the folders go back to their places. Raises a 500 problem, with everything as it was,
    when a folder cannot be moved.
    """
    moved: list[Path] = []
    try:
        await asyncio.to_thread(_move_all, home / ATTEMPTS, list(attempt_ids), moved)
        yield moved
    except BaseException:
        await asyncio.to_thread(_put_back, moved)
        raise


async def removed(folders: Iterable[Path]) -> Removal:
    """Remove folders that were set aside. What cannot be removed is named in the answer."""
    return await asyncio.to_thread(_remove_all, list(folders))


def left_aside(home: Path) -> list[Path]:
    """The folders that were set aside and are still there."""
    found = (home / ATTEMPTS / SET_ASIDE).glob("*")
    return sorted(folder for folder in found if ATTEMPT.fullmatch(folder.name))


def _move_all(root: Path, attempt_ids: list[str], moved: list[Path]) -> None:
    for id in attempt_ids:
        if not ATTEMPT.fullmatch(id):
            raise ValueError(f"{id!r} names no attempt's folder")
        folder, aside = root / id, root / SET_ASIDE / id
        try:
            if folder.is_dir():
                aside.parent.mkdir(mode=0o700, exist_ok=True)
                folder.rename(aside)
            elif not aside.is_dir():  # it is there when a deletion was cut short
                continue
        except OSError as error:
            logger.warning("%s cannot be set aside: %s", folder, error)
            raise Problem(
                500,
                "files-not-removable",
                f"The folder {folder} cannot be moved ({error.strerror}). Nothing was deleted. "
                "Make it writable for the API and delete again.",
            ) from error
        moved.append(aside)


def _put_back(moved: list[Path]) -> None:
    for aside in moved:
        try:
            aside.rename(aside.parent.parent / aside.name)
        except OSError as error:
            logger.error("%s could not be put back to its place: %s", aside, error)


def _remove_all(folders: list[Path]) -> Removal:
    freed, left_behind = 0, []
    for folder in folders:
        try:
            size = num_bytes(folder)
            if folder.is_symlink():  # what it leads to is not ours to remove
                folder.unlink()
            else:
                shutil.rmtree(folder)
            freed += size
        except OSError as error:
            logger.warning("%s could not be removed: %s", folder, error)
            left_behind.append(f"{folder} ({error.strerror})")
    return Removal(freed, tuple(left_behind))


def num_bytes(folder: Path, *, only_unshared: bool = False) -> int:
    """Bytes of the files below ``folder``; links are not followed, and what goes meanwhile is 0.

    ``only_unshared``: without files that are linked from elsewhere, too.
    """
    if folder.is_symlink():
        return 0
    return sum(_file_bytes(path, only_unshared) for path in folder.rglob("*"))


def _file_bytes(path: Path, only_unshared: bool) -> int:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return 0
    is_counted = stat.S_ISREG(found.st_mode) and not (only_unshared and found.st_nlink > 1)
    return found.st_size if is_counted else 0
