"""Which attempt counts at which step.

Nothing is refused for having a lower step. What is shown is the newest attempt that covers a step:
an attempt that goes on from step 50 replaces what the one before it said of later ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from backend.models import Attempt, MetricLatest

FOREVER = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Span:
    """An attempt's steps, up to where a newer attempt begins."""

    attempt: int
    end: int
    """The first step that no longer counts."""


async def resumed_steps(session: AsyncSession, run_id: str) -> dict[int, int]:
    """The step that each attempt went on from, of those that did; 0 for one that began anew."""
    statement = select(Attempt.number, Attempt.resumed_step).where(Attempt.run_id == run_id)
    rows = await session.execute(statement.where(Attempt.resumed_step.is_not(None)))
    return {row.number: row.resumed_step for row in rows}


def surviving(latest: Sequence[MetricLatest], resumed: Mapping[int, int]) -> list[Span]:
    """The spans that are shown of one series, oldest attempt first.

    ``resumed`` has the steps that attempts went on from: they supersede later ones even of a series
    that they have not reported yet.
    """
    known = {each.attempt: each for each in latest}
    spans: list[Span] = []
    end = FOREVER
    for attempt in sorted(known.keys() | resumed.keys(), reverse=True):
        each = known.get(attempt)
        if each is not None and each.first_step < end:
            spans.append(Span(attempt, end))
            end = each.first_step
        if attempt in resumed:
            end = min(end, resumed[attempt] + 1)
    return spans[::-1]
