"""Queries about experiments."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Select, delete, func, select, tuple_
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from backend.accounts.access import Principal
from backend.experiments.schemas import ExperimentOut
from backend.ids import new_id
from backend.models import Experiment, Run, User
from lagoon.status import RunStatus

DEFAULT_TITLE = "Default"

Position = tuple[datetime, str]


def _visible(statement: Select[Any], viewer: Principal) -> Select[Any]:
    if viewer.is_admin:
        return statement
    return statement.where(Experiment.owner_id == viewer.id)


def _with_counts() -> Select[Any]:
    num_runs = (
        select(func.count())
        .where(Run.experiment_id == Experiment.id)
        .correlate(Experiment)
        .scalar_subquery()
    )
    return select(Experiment, User.username, num_runs.label("num_runs")).join(
        User, User.id == Experiment.owner_id
    )


def _out(row: Any) -> ExperimentOut:
    experiment: Experiment = row.Experiment
    return ExperimentOut(
        id=experiment.id,
        title=experiment.title,
        notes=experiment.notes,
        owner=row.username,
        created_at=experiment.created_at,
        num_runs=row.num_runs,
    )


async def visible(session: AsyncSession, viewer: Principal, id: str) -> Experiment | None:
    """The experiment, if the viewer may see it."""
    statement = _visible(select(Experiment).where(Experiment.id == id), viewer)
    return (await session.scalars(statement)).one_or_none()


async def described(session: AsyncSession, experiment: Experiment) -> ExperimentOut:
    """The experiment with its owner's name and number of runs."""
    return _out((await session.execute(_with_counts().where(Experiment.id == experiment.id))).one())


async def page(
    session: AsyncSession, viewer: Principal, limit: int, after: Position | None
) -> list[ExperimentOut]:
    """Up to ``limit`` experiments, newest first, after a position."""
    statement = _visible(_with_counts(), viewer)
    if after is not None:
        statement = statement.where(tuple_(Experiment.created_at, Experiment.id) < tuple_(*after))
    order = (Experiment.created_at.desc(), Experiment.id.desc())
    return [_out(row) for row in await session.execute(statement.order_by(*order).limit(limit))]


async def add(
    session: AsyncSession, id: str, owner_id: str, title: str, notes: str, now: datetime
) -> Experiment:
    """A new experiment."""
    experiment = Experiment(
        id=id,
        owner_id=owner_id,
        title=title,
        notes=notes,
        is_default=False,
        created_at=now,
    )
    session.add(experiment)
    await session.flush()
    return experiment


async def default(session: AsyncSession, owner_id: str, now: datetime) -> str:
    """The id of the owner's default experiment, made on demand."""
    values = {
        "id": new_id("e"),
        "owner_id": owner_id,
        "title": DEFAULT_TITLE,
        "notes": "",
        "is_default": True,
        "created_at": now,
    }
    await session.execute(insert(Experiment).values(values).on_conflict_do_nothing())
    statement = select(Experiment.id).where(Experiment.owner_id == owner_id, Experiment.is_default)
    return (await session.scalars(statement)).one()


async def locked_runs(session: AsyncSession, id: str) -> dict[str, RunStatus]:
    """The status of each of the experiment's runs, none of which changes until the commit."""
    statement = select(Run.id, Run.status).where(Run.experiment_id == id).order_by(Run.id)
    rows = await session.execute(statement.with_for_update())
    return {row.id: RunStatus(row.status) for row in rows}


async def remove(session: AsyncSession, id: str) -> None:
    """Delete an experiment that has no runs."""
    await session.execute(delete(Experiment).where(Experiment.id == id))
