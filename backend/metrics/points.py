"""Points of a series for a chart: all of them, or the extremes of each bucket of steps.

A bucket keeps its first, last, smallest and largest point, each one a point that was reported, so
that no spike is lost and nothing is invented. NaN has no place in that order and is listed apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from backend.metrics.lineage import FOREVER, Span, surviving
from backend.metrics.schemas import Points, SeriesPoints
from backend.models import MetricLatest, MetricSeries

POINTS_PER_BUCKET = 4

SURVIVING = """
    from metric_points p
    join unnest(cast(:attempts as int[]), cast(:ends as bigint[])) as span (attempt, "end")
      on p.attempt = span.attempt and p.step < span."end"
    where p.series_id = :series and p.cursor > :after and p.cursor <= :upto
      and p.step >= :from_step
"""

EXTENT = text(f"select count(*), min(p.step), max(p.step) {SURVIVING}")

ALL = text(f"select p.step, p.at, p.value {SURVIVING} order by p.step, p.cursor")

# An array is ordered by its first element, then its second: the minimum of [value, step, at] is the
# earliest of the smallest points. Steps are exact in float64 up to 2^53.
BUCKETS = text(f"""
    select
      min(array[p.step, p.at, p.value]) filter (where p.value <> 'NaN') as first,
      max(array[p.step, p.at, p.value]) filter (where p.value <> 'NaN') as last,
      min(array[p.value, p.step, p.at]) filter (where p.value <> 'NaN') as low,
      max(array[p.value, -p.step, p.at]) filter (where p.value <> 'NaN') as high,
      min(p.step) filter (where p.value = 'NaN') as nan_step
    {SURVIVING}
    group by floor((p.step - cast(:low as bigint))::float8 * :buckets / :width)
""")

Point = tuple[int, float, float]
"""Step, time in Unix seconds, value."""


class Extent(NamedTuple):
    """How many points there are, and between which steps."""

    num: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Window:
    """Which points of a series are asked for: what came in after one cursor, up to another, of a
    step and those after it."""

    series_id: int
    spans: Sequence[Span]
    after: int
    upto: int
    from_step: int

    @property
    def parameters(self) -> dict[str, Any]:
        """The SQL parameters of the window."""
        return {
            "series": self.series_id,
            "attempts": [span.attempt for span in self.spans],
            "ends": [span.end for span in self.spans],
            "after": self.after,
            "upto": self.upto,
            "from_step": self.from_step,
        }


async def read(
    session: AsyncSession,
    series: MetricSeries,
    latest: Sequence[MetricLatest],
    resumed: Mapping[int, int],
    *,
    after: int,
    upto: int,
    from_step: int,
    max_points: int,
) -> SeriesPoints:
    """At most ``max_points`` of the series' points that came in after one cursor, up to another."""
    name, labels = series.name, series.labels
    window = Window(series.id, surviving(latest, resumed), after, upto, from_step)
    extent = _known_extent(latest, window)
    if extent is None:
        extent = Extent(*(await session.execute(EXTENT, window.parameters)).one())
    if extent.num <= max_points:
        rows = await session.execute(ALL, window.parameters)
        points: list[Point] = [(row.step, row.at, row.value) for row in rows]
        nan_steps = sorted({step for step, _, value in points if value != value})
        return _series(name, labels, extent.num, points, nan_steps, "all")
    buckets = max(1, max_points // POINTS_PER_BUCKET)
    width = extent.high - extent.low + 1
    rows = await session.execute(
        BUCKETS, {**window.parameters, "low": extent.low, "buckets": buckets, "width": width}
    )
    points, nan_steps = _extremes(rows.all())
    return _series(name, labels, extent.num, points, nan_steps, "minmax")


def _known_extent(latest: Sequence[MetricLatest], window: Window) -> Extent | None:
    """The extent of a whole series with one attempt, without reading its points."""
    if window.after > 0 or window.from_step > 0:
        return None
    if len(latest) != 1 or latest[0].cursor > window.upto:
        return None
    if [span.end for span in window.spans] != [FOREVER]:
        return None
    return Extent(latest[0].count, latest[0].first_step, latest[0].last_step)


def _extremes(rows: Sequence[Any]) -> tuple[list[Point], list[int]]:
    """The distinct extreme points of all buckets by step, and the first NaN of each bucket."""
    points: set[Point] = set()
    for row in rows:
        if row.first is None:
            continue
        points |= {(int(step), at, value) for step, at, value in (row.first, row.last)}
        points.add((int(row.low[1]), row.low[2], row.low[0]))
        points.add((int(-row.high[1]), row.high[2], row.high[0]))
    return sorted(points), sorted(row.nan_step for row in rows if row.nan_step is not None)


def _series(
    name: str,
    labels: dict[str, str],
    n_total: int,
    points: Sequence[Point],
    nan_steps: list[int],
    method: Any,
) -> SeriesPoints:
    return SeriesPoints(
        name=name,
        labels=labels,
        n_total=n_total,
        n_shown=len(points),
        method=method,
        nan_steps=nan_steps,
        points=Points(
            step=[step for step, _, _ in points],
            value=[value for _, _, value in points],
            at=[datetime.fromtimestamp(at, UTC) for _, at, _ in points],
        ),
    )
