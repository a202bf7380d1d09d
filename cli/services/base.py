"""What the starter needs to know of a process."""

import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx

BIN = Path(sys.executable).parent
ROOT = Path(__file__).resolve().parents[2]
"""The checkout, where ``presets/`` and ``migrations/`` are."""


@dataclass(frozen=True, slots=True)
class Service:
    """A process to be started, with its command, its readiness and its way to end."""

    name: str
    """One word, also of its log file."""
    title: str
    """As people call it."""
    command: Sequence[str]
    is_ready: Callable[[], bool]
    """Asked every fraction of a second; must answer quickly and never raise."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """On top of what all processes get."""
    ready_seconds: float = 60.0
    stop_signal: int = signal.SIGTERM
    stop_seconds: float = 5.0
    user: str | None = None
    """The system user it runs as; None for the one who started it."""


def answers(url: str, headers: Mapping[str, str] | None = None) -> bool:
    """True when a GET of ``url`` succeeds within two seconds."""
    try:
        return httpx.get(url, headers=headers, timeout=2.0, trust_env=False).is_success
    except httpx.HTTPError:
        return False
