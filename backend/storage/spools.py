"""Spools that are of no more use: all of them has arrived, and their attempt ended long ago.

What is in one is in the database as well, so that nothing is lost and no history has an entry of
it. A spool that is not delivered to its end stays, however old it is.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from datetime import timedelta
from pathlib import Path

from sqlalchemy import select

from backend.context import Context
from backend.models import Attempt
from backend.runs.files import ATTEMPT
from lagoon.spools import attempts_with_spools, spool_of

KEPT_DAYS = 7
"""Days after its attempt's end for which a spool stays, for whoever looks into what was sent; fewer
where logs are kept for fewer."""

logger = logging.getLogger(__name__)


async def remove_old(context: Context) -> None:
    """Remove the spools on this machine that are due."""
    settings = context.settings
    found = await asyncio.to_thread(attempts_with_spools, settings.home, delivered=True)
    if not found:
        return
    days = min(KEPT_DAYS, settings.log_retention_days or KEPT_DAYS)
    limit = context.clock() - timedelta(days=days)
    async with context.database.session() as session:
        old = set(await session.scalars(select(Attempt.id).where(Attempt.ended_at < limit)))
    due = [spool_of(settings.home, id) for id in found if id in old and ATTEMPT.fullmatch(id)]
    await asyncio.to_thread(_remove, due)


def _remove(spools: list[Path]) -> None:
    for spool in spools:
        try:
            if not spool.is_symlink():  # what it leads to is not ours to remove
                shutil.rmtree(spool)
        except OSError as error:
            logger.warning("the spool %s could not be removed: %s", spool, error)
