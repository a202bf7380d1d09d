"""What people may change about the queue: a run's priority, and its place among its owner's runs.

Between users fair share decides, so a move is one among the runs of one owner and one priority. It
deals out their queue numbers anew: no other run is touched.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from backend.accounts.access import Principal
from backend.errors import Forbidden, NotFound, Problem
from backend.models import Run
from backend.runs import repository
from backend.runs.transitions import record
from backend.slots.schemas import Move
from lagoon.queueing import PRIORITIES, Priority
from lagoon.status import RunStatus

HIGHEST_OF_MEMBERS: Priority = "normal"


async def set_priority(
    session: AsyncSession, run: Run, priority: Priority, by: Principal, now: datetime
) -> None:
    """Give a queued run, whose row is locked, another priority.

    Raises a 403 problem when a member asks for more than normal, and 409 when it does not wait.
    """
    limit = PRIORITIES.index(HIGHEST_OF_MEMBERS)
    if PRIORITIES.index(priority) > limit and not by.is_admin:
        raise Forbidden(
            f"Only an admin may give a run the priority {priority}; yours is {run.priority}, as it "
            "was."
        )
    _require_queued(run)
    if run.priority == priority:
        return
    words = f"Priority {priority}; it was {run.priority}."
    run.priority = priority
    record(session, run, None, "priority", words, now, by=by.username)


async def move_run(session: AsyncSession, move: Move, viewer: Principal, now: datetime) -> None:
    """Put a queued run before or after another one of its owner.

    Raises a 404 problem for runs that the viewer cannot see, and 409 where a move would do nothing.
    """
    for id in (move.run_id, move.other_id):
        if await repository.visible(session, viewer, id) is None:
            raise NotFound("run", id)
    line = await _locked_line(session, move.run_id)
    runs = {run.id: run for run in line}
    moved = runs.get(move.run_id) or await _seen(session, move.run_id)
    other = runs.get(move.other_id) or await _seen(session, move.other_id)
    _require_neighbours(moved, other)
    order = [id for id in runs if id != moved.id]
    order.insert(order.index(other.id) + (move.before is None), moved.id)
    numbers = [run.queue_number for run in line]
    if order == list(runs):
        return
    for id, number in zip(order, numbers, strict=True):
        runs[id].queue_number = number
    where = "before" if move.before else "after"
    record(session, moved, None, "moved", f"Moved {where} {other.id}.", now, by=viewer.username)


async def _locked_line(session: AsyncSession, run_id: str) -> list[Run]:
    """The queued runs of the run's owner and priority, in their order, locked."""
    mine = select(Run.owner_id, Run.priority).where(Run.id == run_id).subquery()
    statement = (
        select(Run)
        .join(mine, (mine.c.owner_id == Run.owner_id) & (mine.c.priority == Run.priority))
        .where(Run.status == RunStatus.QUEUED.value)
        .order_by(Run.id)
        .with_for_update(of=Run)
        .execution_options(populate_existing=True)
    )
    found = (await session.scalars(statement)).all()
    return sorted(found, key=lambda run: run.queue_number)


async def _seen(session: AsyncSession, run_id: str) -> Run:
    return await session.get_one(Run, run_id, populate_existing=True)


def _require_neighbours(moved: Run, other: Run) -> None:
    _require_queued(moved)
    _require_queued(other)
    if moved.owner_id != other.owner_id:
        raise Problem(
            409,
            "other-owner",
            f"Runs {moved.id} and {other.id} belong to two users. Between users fair share decides "
            "who is next, so a move would do nothing; an admin may change priorities.",
        )
    if moved.priority != other.priority:
        raise Problem(
            409,
            "other-priority",
            f"Run {moved.id} has priority {moved.priority}, run {other.id} has {other.priority}: a "
            "move would do nothing. Change a priority first.",
        )


def _require_queued(run: Run) -> None:
    if run.status != RunStatus.QUEUED:
        raise Problem(
            409,
            "not-queued",
            f"Run {run.id} is {run.status}: it does not wait in the queue, so there is nothing to "
            "change.",
        )
