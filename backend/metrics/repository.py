"""Queries about series, histograms and trajectories."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncSession

from backend.metrics.schemas import HistogramStep, SeriesOut
from backend.models import MetricLatest, MetricSeries, TrajectoryRecord
from lagoon.trajectory import Split

# Steps are put into `buckets` ranges of equal width; adding bins is exact.
HISTOGRAMS = text("""
    with chosen as (
      select h.step, h.bins, h.counts
      from histograms h
      where h.series_id = any(:series) and h.cursor <= :upto
        and h.step >= :low and h.step <= :high
        and not exists (
          select 1 from histograms newer
          where newer.series_id = h.series_id
            and newer.attempt > h.attempt and newer.step <= h.step
        )
        and not exists (
          select 1 from metric_series s join attempts a on a.run_id = s.run_id
          where s.id = h.series_id and a.number > h.attempt and a.resumed_step < h.step
        )
    ),
    extent as (
      select min(step) as low, max(step) - min(step) + 1 as width, count(distinct step) as num
      from chosen
    ),
    bucketed as (
      select chosen.*,
        case when extent.num <= :buckets then chosen.step
             else div((chosen.step - extent.low)::numeric * :buckets, extent.width) end as bucket
      from chosen, extent
    ),
    ranges as (
      select bucket, min(step) as first_step, max(step) as step from bucketed group by bucket
    ),
    sums as (
      select b.bucket, bin.value, sum(bin.count) as count
      from bucketed b, unnest(b.bins, b.counts) as bin (value, count)
      group by b.bucket, bin.value
    ),
    totals as (
      select bucket, jsonb_object_agg(value, count) as counts from sums group by bucket
    )
    select ranges.first_step, ranges.step, coalesce(totals.counts, '{}') as counts
    from ranges left join totals using (bucket)
    order by ranges.step
""")

COUNT_HISTOGRAMS = text(
    "select series_id, count(*), max(step) from histograms where series_id = any(:series) "
    "group by series_id"
)


async def series(
    session: AsyncSession, run_id: str, names: Sequence[str] | None = None
) -> list[tuple[MetricSeries, list[MetricLatest]]]:
    """The run's series with what is known of each attempt, by name and labels."""
    statement = (
        select(MetricSeries, MetricLatest)
        .outerjoin(MetricLatest, MetricLatest.series_id == MetricSeries.id)
        .where(MetricSeries.run_id == run_id)
        .order_by(MetricSeries.name, MetricSeries.id, MetricLatest.attempt)
    )
    if names is not None:
        statement = statement.where(MetricSeries.name.in_(names))
    found: dict[int, tuple[MetricSeries, list[MetricLatest]]] = {}
    for each, latest in await session.execute(statement):
        known = found.setdefault(each.id, (each, []))
        if latest is not None:
            known[1].append(latest)
    return list(found.values())


async def described(
    session: AsyncSession, found: Sequence[tuple[MetricSeries, list[MetricLatest]]]
) -> list[SeriesOut]:
    """The series as a list shows them; over all attempts."""
    ids = [each.id for each, latest in found if not latest]
    rows = await session.execute(COUNT_HISTOGRAMS, {"series": ids})
    counted = {id: (count, last_step) for id, count, last_step in rows}
    return [_described(each, latest, counted) for each, latest in found]


def _described(
    each: MetricSeries, latest: list[MetricLatest], counted: dict[int, tuple[int, int]]
) -> SeriesOut:
    out = SeriesOut.model_validate(
        {"id": each.id, "name": each.name, "labels": each.labels, "kind": each.kind, "count": 0}
    )
    if not latest:
        count, last_step = counted.get(each.id, (0, None))
        return out.model_copy(update={"count": count, "last_step": last_step})
    first, last = min(latest, key=lambda one: one.first_step), latest[-1]
    nan_steps = [one.first_nan_step for one in latest if one.first_nan_step is not None]
    return out.model_copy(
        update={
            "count": sum(one.count for one in latest),
            "last_step": last.last_step,
            "last_value": last.last_value,
            "first_value": first.first_value,
            "min": min((x.min_value for x in latest if x.min_value is not None), default=None),
            "max": max((x.max_value for x in latest if x.max_value is not None), default=None),
            "first_nan_step": min(nan_steps, default=None),
        }
    )


async def histogram_steps(
    session: AsyncSession,
    series_ids: list[int],
    *,
    from_step: int,
    to_step: int,
    max_steps: int,
    upto: int,
) -> list[HistogramStep]:
    """Exact counts by step; of more steps than ``max_steps``, ranges of steps."""
    parameters = {
        "series": series_ids,
        "low": from_step,
        "high": to_step,
        "buckets": max_steps,
        "upto": upto,
    }
    return [
        HistogramStep(step=row.step, first_step=row.first_step, counts=_by_value(row.counts))
        for row in await session.execute(HISTOGRAMS, parameters)
    ]


def _by_value(counts: dict[str, int]) -> dict[str, int]:
    return {value: counts[value] for value in sorted(counts, key=int)}


async def trajectories(
    session: AsyncSession, run_id: str, split: Split | None, before: int | None, limit: int
) -> Sequence[TrajectoryRecord]:
    """Up to ``limit`` trajectories older than number ``before``, newest first."""
    statement = select(TrajectoryRecord).where(TrajectoryRecord.run_id == run_id)
    if split is not None:
        statement = statement.where(TrajectoryRecord.split == split)
    if before is not None:
        statement = statement.where(TrajectoryRecord.id < before)
    newest = statement.order_by(TrajectoryRecord.id.desc()).limit(limit)
    return (await session.scalars(newest)).all()
