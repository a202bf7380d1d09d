"""Runs as dependencies: whoever may not see a run gets the same answer as if there were none."""

from typing import Annotated

from fastapi import Depends

from backend.accounts.access import Person
from backend.dependencies import SessionOf
from backend.errors import NotFound
from backend.models import Run
from backend.runs import repository


async def _readable(run_id: str, person: Person, session: SessionOf) -> Run:
    run = await repository.visible(session, person, run_id)
    if run is None:
        raise NotFound("run", run_id)
    return run


async def _writable(run: Annotated[Run, Depends(_readable)], session: SessionOf) -> Run:
    locked = await repository.locked(session, run.id)
    if locked is None:
        raise NotFound("run", run.id)
    return locked


ReadableRun = Annotated[Run, Depends(_readable)]
"""The run in the path, for its owner and admins."""
WritableRun = Annotated[Run, Depends(_writable)]
"""The same, with its row locked for this request."""
