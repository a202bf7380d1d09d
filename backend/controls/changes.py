"""Changes of a running run's settings: asked for, told to its driver, and what that made of them.

::

    asked for ─▶ valid with all before it? ─ no ─▶ refused, nothing has changed
                   └ yes ─▶ pending ─▶ in the answers to the driver's events, until it says so
                                          ├─▶ applied at a version        (a marker on the curves)
                                          ├─▶ superseded by a later one before it could be seen
                                          └─▶ refused after all

An attempt is told all changes when it begins, and says of each from which version on it holds:
where an earlier attempt had said a later one, that part of the run is superseded.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from backend.errors import Invalid, Problem
from backend.models import Attempt, Run, RunChange
from backend.runs import repository
from backend.runs.transitions import record
from backend.text import first_line, without_nul
from lagoon.config import RunConfig
from lagoon.controls import (
    Change,
    Controlled,
    Refused,
    Settings,
    folded,
    in_words,
    superseded,
)
from lagoon.events import ControlsApplied
from lagoon.status import RunStatus


async def changes_of(session: AsyncSession, run_id: str, *, after: int = 0) -> Sequence[RunChange]:
    """The changes of a run with a number above ``after``, oldest first."""
    statement = select(RunChange).where(RunChange.run_id == run_id, RunChange.number > after)
    return (await session.scalars(statement.order_by(RunChange.number))).all()


async def wanted(session: AsyncSession, run: Run) -> Controlled:
    """The run's settings with all changes that were asked for and not refused."""
    known = await changes_of(session, run.id) if run.num_changes else []
    return folded(RunConfig.stored(run.config), as_changes(known))


def as_changes(rows: Sequence[RunChange]) -> list[Change]:
    """Those that a driver is to go by."""
    return [
        Change(number=row.number, settings=row.after) for row in rows if row.outcome != "refused"
    ]


async def unsaid(session: AsyncSession, run: Run, attempt: Attempt) -> list[Change]:
    """What the attempt's driver has not said anything of yet. No query while there is nothing."""
    if run.num_changes <= attempt.num_changes or RunStatus(attempt.status).is_terminal:
        return []
    return as_changes(await changes_of(session, run.id, after=attempt.num_changes))


async def request_change(
    session: AsyncSession, run: Run, settings: Settings, by: str, now: datetime
) -> None:
    """Ask for other settings of a run whose row is locked.

    Raises, with everything as it was, a 409 problem for a run that has ended or is to stop, and
    ``Invalid`` for a change that is not valid or has no effect.
    """
    status = RunStatus(run.status)
    if status.is_terminal or run.desired == "stop":
        what = f"has {status}" if status is RunStatus.FINISHED else f"is {status}"
        raise Problem(
            409,
            "run-ended",
            f"The run {what}: its settings have no effect any more. Nothing was changed; fork it "
            "to go on with other settings.",
        )
    before = await wanted(session, run)
    try:
        after = before.after(settings)
    except Refused as refused:
        raise Invalid(refused.problems, "invalid-change") from refused
    run.num_changes += 1
    run.is_paused = after.is_paused
    was = {path: before.values[path] for path in settings}
    becomes = {path: after.values[path] for path in settings}
    session.add(
        RunChange(
            run_id=run.id,
            number=run.num_changes,
            requested_at=now,
            requested_by=by,
            before=was,
            after=becomes,
            outcome=None,
            why="",
            attempt=None,
            version=None,
            applied_at=None,
        )
    )
    attempt = await repository.newest_attempt(session, run.id)
    words = f"Asked for: {in_words(was, becomes)}."
    record(session, run, attempt.number, "change", words, now, by=by)
    await session.flush()


async def note_applied(
    session: AsyncSession, run: Run, attempt: Attempt, event: ControlsApplied, now: datetime
) -> None:
    """The driver has said from which version on changes hold, or why they cannot."""
    known = {row.number: row for row in await changes_of(session, run.id)}
    numbers = [number for number in (*event.numbers, *event.refused) if number in known]
    attempt.num_changes = max([attempt.num_changes, *numbers])
    for number in sorted(set(event.refused) & set(known)):
        row = known[number]
        if row.outcome is None:
            row.outcome, row.attempt = "refused", attempt.number
            row.why = without_nul(first_line(event.refused[number]))
            words = f"Change {number} cannot be honoured: {row.why}"
            record(session, run, attempt.number, "change", words, now, by="driver")
    if event.refused:  # a pause may have been a part of one
        await session.flush()
        run.is_paused = (await wanted(session, run)).is_paused
    said = [known[number] for number in sorted(event.numbers) if number in known]
    late = [row for row in said if _is_news(row, attempt, event.version)]
    gone = superseded(as_changes(late))
    for row in late:
        _settle(session, run, attempt, row, event.version, now, is_superseded=row.number in gone)


def _is_news(row: RunChange, attempt: Attempt, version: int) -> bool:
    """Whether a change holds from an earlier version on than was known, on the newest lineage."""
    if row.outcome is None:
        return True
    is_later = row.attempt is not None and row.attempt < attempt.number
    return row.outcome == "applied" and is_later and version < (row.version or 0)


def _settle(
    session: AsyncSession,
    run: Run,
    attempt: Attempt,
    row: RunChange,
    version: int,
    now: datetime,
    *,
    is_superseded: bool,
) -> None:
    if is_superseded:
        row.outcome, row.attempt = "superseded", attempt.number
        row.why = "A later change came before it could be seen."
        row.version = row.applied_at = None
        return
    row.outcome, row.attempt = "applied", attempt.number
    row.version, row.applied_at = version, now
    words = f"From version {version} on: {in_words(row.before, row.after)}."
    record(session, run, attempt.number, "change", words, now, by=row.requested_by)
