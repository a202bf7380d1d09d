"""Which attempt counts at which step.

Nothing is refused for having a lower step. What is shown is the newest attempt that covers a step:
an attempt that resumed at step 50 replaces what the one before it said from step 50 on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from backend.models import MetricLatest

FOREVER = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Span:
    """An attempt's steps, up to where a newer attempt begins."""

    attempt: int
    end: int
    """The first step that no longer counts."""


def surviving(latest: Sequence[MetricLatest]) -> list[Span]:
    """The spans that are shown of one series, oldest attempt first."""
    spans: list[Span] = []
    end = FOREVER
    for each in sorted(latest, key=lambda each: each.attempt, reverse=True):
        if each.first_step < end:
            spans.append(Span(each.attempt, end))
            end = each.first_step
    return spans[::-1]
