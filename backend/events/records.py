"""Trajectories, log lines and checkpoints into Postgres."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from sqlalchemy import delete, insert
from sqlalchemy.ext.asyncio import AsyncSession

from backend.models import Attempt, Checkpoint, LogLine, Run, TrajectoryRecord
from backend.text import without_nul
from lagoon.events import CheckpointLogged, LogLogged, TrajectoryLogged, TurnLogged
from lagoon.points import encode_float


def store_trajectories(
    session: AsyncSession, run: Run, attempt: Attempt, events: Sequence[TrajectoryLogged]
) -> None:
    """Store readable trajectories."""
    for event in events:
        session.add(
            TrajectoryRecord(
                run_id=run.id,
                attempt=attempt.number,
                at=event.at,
                step=event.step,
                trajectory_id=without_nul(event.trajectory_id),
                prompt_id=without_nul(event.prompt_id),
                split=event.split,
                reward=event.reward,
                success=event.success,
                num_tokens=event.num_tokens,
                first_version=event.first_version,
                completed_version=event.completed_version,
                truncated=event.truncated,
                seconds=event.seconds,
                turns=[_turn(turn) for turn in event.turns],
            )
        )


async def store_log(
    session: AsyncSession, run: Run, attempt: Attempt, events: Sequence[LogLogged]
) -> None:
    """Append lines to the run's log."""
    lines = [(_time(event.at), without_nul(line)) for event in events for line in event.lines]
    rows = [
        {"run_id": run.id, "n": n, "at": at, "attempt": attempt.number, "line": line}
        for n, (at, line) in enumerate(lines, start=run.num_log_lines + 1)
    ]
    run.num_log_lines += len(rows)
    if rows:
        await session.execute(insert(LogLine), rows)


async def store_checkpoints(
    session: AsyncSession, run: Run, attempt: Attempt, events: Sequence[CheckpointLogged]
) -> None:
    """Note where weights were saved, and forget those that were removed."""
    for event in events:
        session.add(
            Checkpoint(
                run_id=run.id,
                attempt=attempt.number,
                at=_time(event.at),
                step=event.step,
                path=without_nul(event.path),
                is_final=event.is_final,
                num_bytes=event.num_bytes,
                is_best=event.is_best,
            )
        )
        gone = [without_nul(path) for path in event.dropped]
        if gone:
            await session.flush()
            statement = delete(Checkpoint).where(Checkpoint.run_id == run.id)
            await session.execute(statement.where(Checkpoint.path.in_(gone)))


def _turn(turn: TurnLogged) -> dict[str, object]:
    return {
        "role": turn.role,
        "text": without_nul(turn.text),
        "seconds": encode_float(turn.seconds),
        "error": _optional(turn.error),
    }


def _optional(text: str | None) -> str | None:
    return None if text is None else without_nul(text)


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
