"""Storage over HTTP."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from backend.accounts.access import Person
from backend.dependencies import ContextOf, SessionOf
from backend.storage import repository
from backend.storage.schemas import Sizes, StorageOut

router = APIRouter(tags=["storage"])


@router.get("/storage")
async def read_storage(
    person: Person,
    session: SessionOf,
    context: ContextOf,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> StorageOut:
    """What runs take, by kind: a member's own, for an admin all, with the home as a whole."""
    settings = context.settings
    found = await repository.sizes(session, person, settings.home)
    fields = list(Sizes.model_fields)
    return StorageOut(
        num_runs=len(found),
        total=Sizes(**{name: sum(getattr(run, name) for run in found) for name in fields}),
        runs=found[:limit],
        home=await repository.home_sizes(session, settings) if person.is_admin else None,
    )
