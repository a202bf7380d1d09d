"""Live control over HTTP."""

from __future__ import annotations

from fastapi import APIRouter
from sqlalchemy.ext.asyncio import AsyncSession

from backend.accounts.access import Person
from backend.controls.changes import changes_of, request_change, wanted
from backend.controls.schemas import ChangeBody, ChangeOut, Controls, State
from backend.dependencies import Now, SessionOf
from backend.idempotency import KeyHeader, claim_key
from backend.models import Run, RunChange
from backend.runs.access import ReadableRun, WritableRun
from lagoon.controls import in_words
from lagoon.status import RunStatus

router = APIRouter(tags=["controls"])


@router.get("/runs/{run_id}/controls")
async def read_controls(run: ReadableRun, session: SessionOf) -> Controls:
    """What may be changed of the run while it goes on, as it is wanted now, and what was changed:
    by whom, when, and from which policy version on it holds."""
    return await _controls(session, run)


@router.post("/runs/{run_id}/controls", status_code=202)
async def change_run(
    body: ChangeBody,
    run: WritableRun,
    person: Person,
    session: SessionOf,
    now: Now,
    idempotency_key: KeyHeader = None,
) -> Controls:
    """Change settings of a run that goes on, or that waits to; pause it, or lift its pause.

    The driver puts it into effect before its next batch and says at which version. The same
    ``Idempotency-Key`` makes one change, however often it is sent.
    """
    if idempotency_key is not None:
        asked = ["change", run.id, body.settings]
        earlier = await claim_key(session, person.id, idempotency_key, asked, now, run_id=run.id)
        if earlier is not None:
            return await _controls(session, run)
    await request_change(session, run, body.settings, person.username, now)
    changed = await _controls(session, run)
    await session.commit()
    return changed


async def _controls(session: AsyncSession, run: Run) -> Controls:
    rows = await changes_of(session, run.id)
    present = await wanted(session, run)
    return Controls(values=present.values, changes=[_shown(row, run) for row in rows])


def _shown(row: RunChange, run: Run) -> ChangeOut:
    unheard: State = "never" if run.status == RunStatus.FINISHED else "pending"
    return ChangeOut(
        number=row.number,
        requested_at=row.requested_at,
        requested_by=row.requested_by,
        before=row.before,
        after=row.after,
        words=in_words(row.before, row.after),
        state=row.outcome or unheard,
        why=row.why,
        attempt=row.attempt,
        version=row.version,
        applied_at=row.applied_at,
    )
