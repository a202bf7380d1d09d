"""A run as its list row and its page's header show it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from backend.accounts.access import Principal
from backend.models import Attempt, MetricLatest, MetricSeries, Run, User
from backend.runs import repository
from backend.runs.schemas import (
    AttemptOut,
    CheckpointOut,
    FirstNan,
    Gone,
    RunDetail,
    RunReference,
    RunSummary,
)
from backend.storage import accounting
from lagoon.metrics import FITNESS, HELDOUT_SUCCESS, REWARD_MEAN

SHOWN = (HELDOUT_SUCCESS.name, REWARD_MEAN.name, FITNESS.name)
MEAN_FITNESS = {"stat": "mean"}


@dataclass(slots=True)
class _Figures:
    """First and last values of the metrics that a list shows."""

    first: dict[str, float | None] = field(default_factory=dict)
    last: dict[str, float | None] = field(default_factory=dict)


async def summarized(
    session: AsyncSession, viewer: Principal, runs: Sequence[Run]
) -> list[RunSummary]:
    """The runs as list rows, in the same order.

    A run that waits names the one it waits for only to a viewer who may see that one too.
    """
    ids = [run.id for run in runs]
    awaited = await _awaited(session, viewer, runs)
    figures = await _figures(session, ids)
    owners = await _owners(session, {run.owner_id for run in runs})
    counts = await _num_attempts(session, ids)
    return [
        RunSummary(
            **_columns(run, owners[run.owner_id], counts[run.id], figures[run.id])
            | _named_reason(run, awaited)
        )
        for run in runs
    ]


async def detailed(session: AsyncSession, viewer: Principal, run: Run) -> RunDetail:
    """The run with everything its page's header needs."""
    [summary] = await summarized(session, viewer, [run])
    waiting_for = (await _awaited(session, viewer, [run])).get(run.waiting_for_id or "")
    return RunDetail(
        **dict(summary),
        config=run.config,
        waiting_for=RunReference(run_id=waiting_for.id, name=waiting_for.name)
        if waiting_for
        else None,
        attempts=[
            AttemptOut.model_validate(attempt, from_attributes=True)
            for attempt in await repository.attempts(session, run.id)
        ],
        stop_requested_at=run.stop_requested_at,
        stop_requested_by=run.stop_requested_by,
        first_nan=await _first_nan(session, run.id),
        traceback=run.traceback,
        checkpoints=[
            CheckpointOut.model_validate(checkpoint, from_attributes=True)
            for checkpoint in await repository.checkpoints(session, run.id)
        ],
        gone=[
            Gone.model_validate(each, from_attributes=True)
            for each in await accounting.gone(session, run.id)
        ],
    )


async def _awaited(session: AsyncSession, viewer: Principal, runs: Sequence[Run]) -> dict[str, Run]:
    """The runs that others wait for, by id; only those that the viewer may see."""
    ids = {run.waiting_for_id for run in runs if run.waiting_for_id is not None}
    found = [await repository.visible(session, viewer, id) for id in sorted(ids)]
    return {run.id: run for run in found if run is not None}


def _named_reason(run: Run, awaited: dict[str, Run]) -> dict[str, str]:
    named = awaited.get(run.waiting_for_id or "")
    if named is None:
        return {}
    return {"reason": f"Waiting for run {named.name} ({named.id}), which is {named.status}."}


def _columns(run: Run, owner: str, num_attempts: int, figures: _Figures) -> dict[str, Any]:
    shown = set(RunSummary.model_fields) & set(Run.__table__.columns.keys())
    last_reward = figures.last.get(REWARD_MEAN.name, figures.last.get(FITNESS.name))
    return {name: getattr(run, name) for name in shown} | {
        "owner": owner,
        "num_attempts": num_attempts,
        "first_heldout_success": figures.first.get(HELDOUT_SUCCESS.name),
        "last_heldout_success": figures.last.get(HELDOUT_SUCCESS.name),
        "last_reward": last_reward,
    }


async def _figures(session: AsyncSession, run_ids: list[str]) -> dict[str, _Figures]:
    statement = (
        select(MetricSeries.run_id, MetricSeries.name, MetricSeries.labels, MetricLatest)
        .join(MetricLatest, MetricLatest.series_id == MetricSeries.id)
        .where(MetricSeries.run_id.in_(run_ids), MetricSeries.name.in_(SHOWN))
        .order_by(MetricLatest.attempt)
    )
    figures: dict[str, _Figures] = defaultdict(_Figures)
    for run_id, name, labels, latest in await session.execute(statement):
        if name == FITNESS.name and labels != MEAN_FITNESS:
            continue
        figures[run_id].first.setdefault(name, latest.first_value)
        figures[run_id].last[name] = latest.last_value
    return figures


async def _owners(session: AsyncSession, ids: set[str]) -> dict[str, str]:
    rows = await session.execute(select(User.id, User.username).where(User.id.in_(ids)))
    return {row.id: row.username for row in rows}


async def _num_attempts(session: AsyncSession, run_ids: list[str]) -> dict[str, int]:
    statement = select(Attempt.run_id, func.count().label("num")).where(Attempt.run_id.in_(run_ids))
    rows = await session.execute(statement.group_by(Attempt.run_id))
    return {row.run_id: row.num for row in rows}


async def _first_nan(session: AsyncSession, run_id: str) -> FirstNan | None:
    statement = (
        select(MetricSeries.name, MetricLatest.first_nan_step)
        .join(MetricLatest, MetricLatest.series_id == MetricSeries.id)
        .where(MetricSeries.run_id == run_id, MetricLatest.first_nan_step.is_not(None))
        .order_by(MetricLatest.first_nan_step, MetricSeries.id)
        .limit(1)
    )
    row = (await session.execute(statement)).one_or_none()
    return FirstNan(name=row.name, step=row.first_nan_step) if row else None
