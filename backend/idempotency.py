"""Creates that may be sent twice: the first makes something, the others are answered with it."""

from __future__ import annotations

import hashlib
import json
from datetime import datetime, timedelta
from typing import Annotated, Any

from fastapi import Header
from sqlalchemy import delete, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from backend.errors import Invalid
from backend.models import IdempotencyKey
from lagoon.problems import FieldProblem

KEY_LIFETIME = timedelta(hours=24)

KeyHeader = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=200)]
"""The key that the client chose, if it chose one."""


async def claim_key(
    session: AsyncSession,
    user_id: str,
    key: str,
    request: list[Any],
    now: datetime,
    *,
    run_id: str | None = None,
    experiment_id: str | None = None,
) -> str | None:
    """Reserve a key for the id of what is about to be made; the earlier id when it is taken.

    ``request`` is all that decides what is made, as JSON values. A request that is still in
    progress with the same key is waited for. Raises ``Invalid`` when the key was used for a
    different request.
    """
    await session.execute(
        delete(IdempotencyKey).where(
            IdempotencyKey.user_id == user_id, IdempotencyKey.created_at < now - KEY_LIFETIME
        )
    )
    values = {
        "user_id": user_id,
        "key": key,
        "request_hash": _digest(request),
        "run_id": run_id,
        "experiment_id": experiment_id,
        "created_at": now,
    }
    statement = insert(IdempotencyKey).values(values).on_conflict_do_nothing()
    if await session.scalar(statement.returning(IdempotencyKey.key)) is not None:
        return None
    earlier = (
        await session.scalars(
            select(IdempotencyKey).where(
                IdempotencyKey.user_id == user_id, IdempotencyKey.key == key
            )
        )
    ).one()
    if earlier.request_hash != values["request_hash"]:
        message = "this key was used for a different request; make a new one"
        raise Invalid([FieldProblem(("Idempotency-Key",), message)], "idempotency-key-reused")
    return earlier.run_id or earlier.experiment_id


def _digest(request: list[Any]) -> bytes:
    return hashlib.sha256(json.dumps(request, sort_keys=True).encode()).digest()
