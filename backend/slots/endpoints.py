"""The queue over HTTP. A queued run leaves it by the ordinary stop."""

from __future__ import annotations

from fastapi import APIRouter

from backend.accounts.access import Person
from backend.dependencies import Now, SessionOf
from backend.runs import summaries
from backend.runs.access import WritableRun
from backend.runs.schemas import RunDetail
from backend.slots.changes import move_run, set_priority
from backend.slots.schemas import Move, PriorityChange, QueueOut
from backend.slots.shown import shown

router = APIRouter(tags=["queue"])


@router.get("/queue")
async def read_queue(person: Person, session: SessionOf, now: Now) -> QueueOut:
    """Who waits, in order and with the reason; who restarts when; who holds what; what the nodes
    have."""
    return await shown(session, person, now)


@router.post("/queue/moves")
async def move_queued_run(body: Move, person: Person, session: SessionOf, now: Now) -> QueueOut:
    """Put a queued run before or after another one of the same owner and priority."""
    await move_run(session, body, person, now)
    await session.flush()
    moved = await shown(session, person, now)
    await session.commit()
    return moved


@router.patch("/runs/{run_id}/priority")
async def change_priority(
    body: PriorityChange, run: WritableRun, person: Person, session: SessionOf, now: Now
) -> RunDetail:
    """Change a queued run's priority. Only an admin may go above normal."""
    await set_priority(session, run, body.priority, person, now)
    await session.flush()
    changed = await summaries.detailed(session, person, run)
    await session.commit()
    return changed
