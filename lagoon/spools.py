"""Where an attempt's spool is, and how it says that all of it has arrived.

The driver writes it, the workers deliver what a dead driver left of it, the API measures and
removes it.
"""

from pathlib import Path

ATTEMPTS = "attempts"
DELIVERED = "delivered"
"""The file in a spool that is made when the platform has all of it."""


def spool_of(home: Path, attempt_id: str) -> Path:
    """The folder of an attempt's spool."""
    return home / ATTEMPTS / attempt_id / "spool"


def is_delivered(spool: Path) -> bool:
    """Whether all of it has arrived, which is known only once its driver is gone."""
    return (spool / DELIVERED).exists()


def attempts_with_spools(home: Path, *, delivered: bool) -> list[str]:
    """The attempts on this machine whose spool holds something and is, or is not, delivered to its
    end."""
    try:
        names = [entry.name for entry in (home / ATTEMPTS).iterdir()]
    except OSError:
        return []
    spools = {name: spool_of(home, name) for name in names if not name.startswith(".")}
    return sorted(
        name
        for name, spool in spools.items()
        if is_delivered(spool) == delivered and _holds_something(spool)
    )


def _holds_something(spool: Path) -> bool:
    try:
        return any(segment.stat().st_size for segment in spool.glob("*.jsonl"))
    except OSError:
        return False  # removed meanwhile
