"""What endpoints ask for: the settings, the time, and one session for the request."""

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Annotated

from fastapi import Depends, Request
from sqlalchemy.ext.asyncio import AsyncSession

from backend.context import Context


def _context(request: Request) -> Context:
    context = request.app.state.context
    assert isinstance(context, Context)
    return context


ContextOf = Annotated[Context, Depends(_context)]


async def _session(context: ContextOf) -> AsyncIterator[AsyncSession]:
    """One transaction: what the endpoint does not commit is rolled back."""
    async with context.database.session() as session:
        yield session


def _now(context: ContextOf) -> datetime:
    return context.clock()


SessionOf = Annotated[AsyncSession, Depends(_session)]
Now = Annotated[datetime, Depends(_now)]
