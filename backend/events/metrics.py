"""Points and histograms into Postgres: a dictionary of series, COPY, and the latest values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import case, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from backend.database import driver_connection
from backend.errors import Problem
from backend.models import Attempt, MetricLatest, MetricSeries, Run, histograms
from backend.text import without_nul
from lagoon.events import HistogramLogged, StepLogged
from lagoon.metrics import CATALOGUE

COPY_POINTS = "COPY metric_points (series_id, attempt, step, at, value, cursor) FROM STDIN"

MAX_LABEL_CHARACTERS = 500
MAX_BATCH_SERIES = 2000
"""Different series in one batch: a row of eleven values each must stay within the 65,535 values
that one statement may carry."""

Labels = tuple[tuple[str, str], ...]
SeriesKey = tuple[str, Labels]


@dataclass(slots=True)
class _Summary:
    """What one batch adds to one series."""

    count: int
    first: tuple[int, float]
    last: tuple[int, float]
    minimum: float | None
    maximum: float | None
    first_nan_step: int | None


async def store_points(
    session: AsyncSession, run: Run, attempt: Attempt, steps: Sequence[StepLogged]
) -> None:
    """Store the scalar values of ``steps``."""
    keys = [[(point.name, _labels(point.labels)) for point in event.points] for event in steps]
    distinct = {key for each in keys for key in each}
    if len(distinct) > MAX_BATCH_SERIES:
        raise Problem(
            422,
            "invalid-events",
            f"The points of the batch are of {len(distinct)} different series; at most "
            f"{MAX_BATCH_SERIES} may be in one batch. Nothing of it was stored.",
        )
    series = await _series_ids(session, run.id, distinct)
    number, cursor = attempt.number, run.cursor
    rows: list[str] = []
    values: dict[int, list[tuple[int, float]]] = {}
    for event, event_keys in zip(steps, keys, strict=True):
        middle = f"\t{number}\t{event.step}\t{event.at!r}\t"
        for point, key in zip(event.points, event_keys, strict=True):
            id = series[key]
            rows.append(f"{id}{middle}{point.value!r}\t{cursor}\n")
            values.setdefault(id, []).append((event.step, point.value))
    if not rows:
        return
    driver = await driver_connection(session)
    async with driver.cursor() as sender, sender.copy(COPY_POINTS) as copy:
        await copy.write("".join(rows))
    await _update_latest(session, run, attempt, {id: _summary(v) for id, v in values.items()})


async def store_histograms(
    session: AsyncSession, run: Run, attempt: Attempt, events: Sequence[HistogramLogged]
) -> None:
    """Store exact counts, one row for each step of each histogram."""
    if not events:
        return
    series = await _series_ids(session, run.id, {(event.name, ()) for event in events})
    rows = [
        {
            "series_id": series[event.name, ()],
            "attempt": attempt.number,
            "step": event.step,
            "at": event.at,
            "cursor": run.cursor,
            "bins": list(event.counts),
            "counts": list(event.counts.values()),
        }
        for event in events
    ]
    await session.execute(insert(histograms), rows)


async def _series_ids(
    session: AsyncSession, run_id: str, keys: set[SeriesKey]
) -> dict[SeriesKey, int]:
    """The ids of the run's series, made where they are missing. The run's row is locked."""
    if not keys:
        return {}
    names = {name for name, _ in keys}
    statement = select(MetricSeries.id, MetricSeries.name, MetricSeries.labels).where(
        MetricSeries.run_id == run_id, MetricSeries.name.in_(names)
    )
    ids = _by_key(await session.execute(statement))
    missing = sorted(keys - ids.keys())
    if missing:
        rows = [
            {
                "run_id": run_id,
                "name": name,
                "labels": dict(labels),
                "kind": CATALOGUE[name].kind,
            }
            for name, labels in missing
        ]
        created = insert(MetricSeries).values(rows)
        ids |= _by_key(
            await session.execute(
                created.returning(MetricSeries.id, MetricSeries.name, MetricSeries.labels)
            )
        )
    return ids


def _by_key(rows: Iterable[Any]) -> dict[SeriesKey, int]:
    return {(row.name, _labels(row.labels)): row.id for row in rows}


def _labels(labels: dict[str, str]) -> Labels:
    if not labels:
        return ()
    if sum(len(key) + len(value) for key, value in labels.items()) > MAX_LABEL_CHARACTERS:
        raise Problem(
            422,
            "invalid-events",
            f"The labels of a point may have {MAX_LABEL_CHARACTERS} characters in all. Nothing of "
            "the batch was stored.",
        )
    return tuple(sorted((without_nul(key), without_nul(value)) for key, value in labels.items()))


def _summary(values: list[tuple[int, float]]) -> _Summary:
    """Of equal steps the one reported last counts as the newer."""
    numbers = [value for _, value in values if not math.isnan(value)]
    return _Summary(
        count=len(values),
        first=min(values, key=lambda each: each[0]),
        last=max(reversed(values), key=lambda each: each[0]),
        minimum=min(numbers, default=None),
        maximum=max(numbers, default=None),
        first_nan_step=min((step for step, value in values if math.isnan(value)), default=None),
    )


async def _update_latest(
    session: AsyncSession, run: Run, attempt: Attempt, summaries: dict[int, _Summary]
) -> None:
    rows = [
        {
            "series_id": id,
            "attempt": attempt.number,
            "count": summary.count,
            "first_step": summary.first[0],
            "first_value": summary.first[1],
            "last_step": summary.last[0],
            "last_value": summary.last[1],
            "min_value": summary.minimum,
            "max_value": summary.maximum,
            "first_nan_step": summary.first_nan_step,
            "cursor": run.cursor,
        }
        for id, summary in sorted(summaries.items())
    ]
    statement = insert(MetricLatest).values(rows)
    old, new = MetricLatest, statement.excluded
    is_first, is_last = new.first_step < old.first_step, new.last_step >= old.last_step
    changes = {
        "count": old.count + new.count,
        "first_step": func.least(old.first_step, new.first_step),
        "first_value": case((is_first, new.first_value), else_=old.first_value),
        "last_step": func.greatest(old.last_step, new.last_step),
        "last_value": case((is_last, new.last_value), else_=old.last_value),
        "min_value": func.least(old.min_value, new.min_value),
        "max_value": func.greatest(old.max_value, new.max_value),
        "first_nan_step": func.least(old.first_nan_step, new.first_nan_step),
        "cursor": new.cursor,
    }
    await session.execute(
        statement.on_conflict_do_update(index_elements=["series_id", "attempt"], set_=changes)
    )
