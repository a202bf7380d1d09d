"""Series, points, histograms and trajectories over HTTP."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

from fastapi import APIRouter, Query

from backend.dependencies import SessionOf
from backend.metrics import points, repository
from backend.metrics.lineage import FOREVER, resumed_steps
from backend.metrics.schemas import (
    HistogramsOut,
    HistogramTotal,
    MetricsOut,
    SeriesOut,
    TrajectoryOut,
)
from backend.paging import Page
from backend.runs.access import ReadableRun
from lagoon.trajectory import Split

router = APIRouter(tags=["metrics"])

Step = Annotated[int, Query(ge=0, le=FOREVER)]


@router.get("/runs/{run_id}/series")
async def list_series(run: ReadableRun, session: SessionOf) -> Page[SeriesOut]:
    """Everything the run has reported so far, without points."""
    found = await repository.series(session, run.id)
    return Page(items=await repository.described(session, found))


@router.get("/runs/{run_id}/metrics")
async def read_metrics(
    run: ReadableRun,
    session: SessionOf,
    name: Annotated[list[str], Query(min_length=1, max_length=100)],
    max_points: Annotated[int, Query(ge=4, le=100_000)] = 1000,
    after: Annotated[int, Query(ge=0, le=FOREVER)] = 0,
    from_step: Step = 0,
) -> MetricsOut:
    """Points of the named metrics, one series for each set of labels.

    With ``after``, only what came in after that cursor; with ``from_step``, only that step and
    later ones. A series with more than ``max_points`` is
    answered with the extremes of buckets of steps, and says so.
    """
    found = [] if after >= run.cursor else await repository.series(session, run.id, name)
    resumed = await resumed_steps(session, run.id) if found else {}
    return MetricsOut(
        cursor=run.cursor,
        series=[
            await points.read(
                session,
                each,
                latest,
                resumed,
                after=after,
                upto=run.cursor,
                from_step=from_step,
                max_points=max_points,
            )
            for each, latest in found
            if any(one.cursor > after for one in latest)
        ],
    )


@router.get("/runs/{run_id}/histograms")
async def read_histograms(
    run: ReadableRun,
    session: SessionOf,
    name: str,
    from_step: Step = 0,
    to_step: Step = FOREVER,
    max_steps: Annotated[int, Query(ge=1, le=2000)] = 200,
) -> HistogramsOut:
    """Exact counts of one histogram over steps; of too many steps, sums over ranges of them."""
    ids = [each.id for each, _ in await repository.series(session, run.id, [name])]
    items = await repository.histogram_steps(
        session,
        ids,
        from_step=from_step,
        to_step=to_step,
        max_steps=max_steps,
        upto=run.cursor,
    )
    total: Counter[str] = Counter()
    for item in items:
        total.update(item.counts)
    counts = {value: total[value] for value in sorted(total, key=int)}
    return HistogramsOut(cursor=run.cursor, items=items, total=HistogramTotal(counts=counts))


@router.get("/runs/{run_id}/trajectories")
async def list_trajectories(
    run: ReadableRun,
    session: SessionOf,
    split: Split | None = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 20,
    cursor: Annotated[int | None, Query(ge=0, le=FOREVER)] = None,
) -> Page[TrajectoryOut]:
    """Readable trajectories, newest first."""
    found = await repository.trajectories(session, run.id, split, cursor, limit + 1)
    shown = found[:limit]
    return Page(
        items=[TrajectoryOut.model_validate(each, from_attributes=True) for each in shown],
        next=str(shown[-1].id) if len(found) > limit else None,
    )
