"""Whether a run whose attempt failed starts again by itself, and when."""

from __future__ import annotations

from dataclasses import dataclass

from lagoon.truth import Desired

FIRST_DELAY_SECONDS = 5.0
DELAY_GROWTH = 4.0
MAX_DELAY_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Restart:
    """The next attempt of a run that failed."""

    number: int
    """Which restart it is, from 1."""
    delay_seconds: float
    """How long it waits: what killed the one before may need time to pass."""


def next_attempt(
    *, is_transient: bool, desired: Desired, num_restarts: int, max_restarts: int
) -> Restart | None:
    """The restart after a failure, or None when the run has failed for good.

    ``num_restarts``: those in a row that did not get further than the run had been.
    """
    if not is_transient or desired == "stop" or num_restarts >= max_restarts:
        return None
    delay = min(FIRST_DELAY_SECONDS * DELAY_GROWTH**num_restarts, MAX_DELAY_SECONDS)
    return Restart(num_restarts + 1, delay)
