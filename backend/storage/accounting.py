"""What a run holds in the database: counted while it is stored, so that nobody has to measure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, get_args

from sqlalchemy import select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from backend.models import Attempt, Run, RunStorage
from backend.runs.transitions import record
from lagoon.dropping import NOUNS
from lagoon.events import (
    DroppedKind,
    Event,
    HistogramLogged,
    LogLogged,
    StepLogged,
    TelemetryDropped,
    TrajectoryLogged,
)

Kind = DroppedKind | Literal["checkpoints"]
KINDS: tuple[str, ...] = (*get_args(DroppedKind), "checkpoints")

# Bytes of a row beside its text: Postgres' own header, the fixed columns, the index entries.
LOG_ROW, TRAJECTORY_ROW, TURN, POINT, HISTOGRAM_ROW, BIN = 80, 300, 60, 110, 150, 16

CAUSES = {
    "quota": "the API did not take events, and the driver's spool reached its quota",
    "disk": "the disk of the driver's machine was full",
}


async def note_stored(session: AsyncSession, run: Run, events: Iterable[Event]) -> None:
    """Count what is stored of ``events``. The caller holds the run's row lock."""
    counts: Counter[Kind] = Counter()
    sizes: Counter[Kind] = Counter()
    for event in events:
        kind, count, size = _size(event)
        if kind is not None and count:
            counts[kind] += count
            sizes[kind] += size
    await _add(session, run.id, {kind: (counts[kind], sizes[kind], 0, 0) for kind in counts})


async def note_dropped(
    session: AsyncSession, run: Run, attempt: Attempt, event: TelemetryDropped, now: datetime
) -> None:
    """Remember what will never arrive, in the run's history and beside what it holds."""
    words = listed(event.counts)
    reason = f"The driver dropped {words}: {CAUSES[event.cause]}."
    record(session, run, attempt.number, "telemetry_dropped", reason, now, by="driver")
    await _add(session, run.id, {kind: (0, 0, 0, n) for kind, n in event.counts.items()})


async def note_expired(session: AsyncSession, run_id: str, kind: Kind, count: int) -> None:
    """``count`` of the oldest were removed by retention."""
    if not count:
        return
    statement = select(RunStorage).where(RunStorage.run_id == run_id, RunStorage.kind == kind)
    held = (await session.scalars(statement.with_for_update())).one_or_none()
    if held is None or not held.num_held:
        await _add(session, run_id, {kind: (0, 0, count, 0)})
        return
    left = max(0, held.num_held - count)
    held.held_bytes = held.held_bytes * left // held.num_held
    held.num_held = left
    held.num_expired += count


async def note_empty(session: AsyncSession, run_id: str, kind: Kind) -> None:
    """Nothing is held any more, whatever was counted."""
    statement = update(RunStorage).where(RunStorage.run_id == run_id, RunStorage.kind == kind)
    await session.execute(statement.values(num_held=0, held_bytes=0))


async def missing(session: AsyncSession, run_id: str) -> Sequence[RunStorage]:
    """What of the run was removed or dropped, by kind."""
    statement = select(RunStorage).where(RunStorage.run_id == run_id)
    is_missing = (RunStorage.num_expired > 0) | (RunStorage.num_dropped > 0)
    return (await session.scalars(statement.where(is_missing).order_by(RunStorage.kind))).all()


def listed(counts: Mapping[Any, int]) -> str:
    """Counts by kind in words: ``3 trajectories and 1,200 metric points``."""
    parts = [
        f"{counts[kind]:,} {NOUNS[kind][0 if counts[kind] == 1 else 1]}"
        for kind in KINDS
        if kind in counts
    ]
    return ", ".join(parts[:-1]) + (" and " if parts[:-1] else "") + "".join(parts[-1:])


def _size(event: Event) -> tuple[Kind | None, int, int]:
    """The kind of data in an event, its count, and its bytes."""
    if isinstance(event, StepLogged):
        return "points", len(event.points), POINT * len(event.points)
    if isinstance(event, HistogramLogged):
        return "histograms", 1, HISTOGRAM_ROW + BIN * len(event.counts)
    if isinstance(event, TrajectoryLogged):
        texts = sum(len(turn.text.encode()) + TURN for turn in event.turns)
        return "trajectories", 1, TRAJECTORY_ROW + texts
    if isinstance(event, LogLogged):
        size = sum(len(line.encode()) + LOG_ROW for line in event.lines)
        return "log_lines", len(event.lines), size
    return None, 0, 0


async def _add(
    session: AsyncSession, run_id: str, more: Mapping[Kind, tuple[int, int, int, int]]
) -> None:
    """Add to the run's counters: held, their bytes, expired, dropped."""
    if not more:
        return
    names = ("num_held", "held_bytes", "num_expired", "num_dropped")
    rows = [
        {"run_id": run_id, "kind": kind, **dict(zip(names, more[kind], strict=True))}
        for kind in sorted(more)
    ]
    statement = insert(RunStorage).values(rows)
    sums = {name: getattr(RunStorage, name) + statement.excluded[name] for name in names}
    await session.execute(
        statement.on_conflict_do_update(index_elements=["run_id", "kind"], set_=sums)
    )
