"""A run as its list row and its page's header show it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from backend.accounts.access import Principal
from backend.models import Attempt, MetricLatest, MetricSeries, Run, User, metric_points
from backend.runs import repository
from backend.runs.schemas import (
    AttemptOut,
    CheckpointOut,
    FirstMismatch,
    FirstNan,
    Missing,
    RunDetail,
    RunReference,
    RunSummary,
)
from backend.storage import accounting
from lagoon.metrics import FITNESS, HELDOUT_SUCCESS, MISMATCHED_ENGINES, REWARD_MEAN
from lagoon.queueing import named, references

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
    names = await _awaited(session, viewer, runs)
    figures = await _figures(session, ids)
    owners = await _owners(session, {run.owner_id for run in runs})
    counts = await _num_attempts(session, ids)
    return [
        RunSummary(
            **_columns(run, owners[run.owner_id], counts[run.id], figures[run.id])
            | {"reason": _reason(run, names)}
        )
        for run in runs
    ]


async def detailed(session: AsyncSession, viewer: Principal, run: Run) -> RunDetail:
    """The run with everything its page's header needs."""
    [summary] = await summarized(session, viewer, [run])
    names = await _awaited(session, viewer, [run])
    awaited = run.waiting_for_id
    parent = await repository.visible(session, viewer, run.parent_run_id or "")
    return RunDetail(
        **dict(summary),
        config=run.config,
        waiting_for=RunReference(run_id=awaited, name=names[awaited])
        if awaited is not None and awaited in names
        else None,
        attempts=[
            AttemptOut.model_validate(attempt, from_attributes=True)
            for attempt in await repository.attempts(session, run.id)
        ],
        desired=run.desired,
        stop_requested_at=run.stop_requested_at,
        stop_requested_by=run.stop_requested_by,
        is_paused=run.is_paused,
        num_changes=run.num_changes,
        first_nan=await _first_nan(session, run.id),
        first_mismatch=await _first_mismatch(session, run.id),
        traceback=run.traceback,
        checkpoints=[
            CheckpointOut.model_validate(checkpoint, from_attributes=True)
            for checkpoint in await repository.checkpoints(session, run.id)
        ],
        parent_run_id=parent.id if parent else None,
        parent_step=run.parent_step,
        missing=[
            Missing.model_validate(each, from_attributes=True)
            for each in await accounting.missing(session, run.id)
        ],
    )


async def _awaited(session: AsyncSession, viewer: Principal, runs: Sequence[Run]) -> dict[str, str]:
    """The names of the runs that others wait for, by id; only those that the viewer may see."""
    ids = {id for run in runs if _waits(run) for id in references(run.reason)}
    return await repository.names(session, viewer, ids) if ids else {}


def _reason(run: Run, names: dict[str, str]) -> str:
    """The reason, with the place in the queue and the names of the runs it speaks of."""
    if not _waits(run):
        return run.reason
    return f"Place {run.queue_position} in the queue. {named(run.reason, names)}"


def _waits(run: Run) -> bool:
    """Whether the reason is the scheduler's, which speaks of runs by reference."""
    return run.queue_position is not None


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


async def _first_mismatch(session: AsyncSession, run_id: str) -> FirstMismatch | None:
    """Over all attempts: one that was rolled back has had it all the same."""
    statement = (
        select(MetricLatest.series_id, MetricLatest.attempt)
        .join(MetricSeries, MetricSeries.id == MetricLatest.series_id)
        .where(
            MetricSeries.run_id == run_id,
            MetricSeries.name == MISMATCHED_ENGINES.name,
            MetricLatest.max_value > 0,
        )
        .order_by(MetricLatest.attempt)
        .limit(1)
    )
    found = (await session.execute(statement)).one_or_none()
    if found is None:  # nearly always: the points are not read
        return None
    of_attempt = (
        metric_points.c.series_id == found.series_id,
        metric_points.c.attempt == found.attempt,
    )
    first = select(func.min(metric_points.c.step)).where(*of_attempt, metric_points.c.value > 0)
    step = await session.scalar(first)
    return FirstMismatch(attempt=found.attempt, step=step or 0)
