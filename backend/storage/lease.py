"""The right to remove: one API process at a time has it."""

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

LOCK = 4_207_003
TAKE = text("select pg_try_advisory_xact_lock(:key)")


async def take_lease(session: AsyncSession) -> bool:
    """Take the lease until the transaction ends; False when another process has it."""
    return bool(await session.scalar(TAKE, {"key": LOCK}))
