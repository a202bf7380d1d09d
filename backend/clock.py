"""The one place of the API that reads the time; tests hand in their own clock."""

from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], datetime]


def utc_now() -> datetime:
    """The current time, in UTC."""
    return datetime.now(UTC)


def not_after(moment: datetime | None, now: datetime) -> datetime | None:
    """``moment``, or ``now`` where the clock has been set back to before it.

    A silence that seems to begin in the future would not count until that has come.
    """
    return None if moment is None else min(moment, now)
