"""A run's life: its states, and the one table of moves between them.

::

    queued ──▶ starting ──▶ running ──▶ finished
       │           │           │
       └───────────┴── stopping ──▶ stopped
                   └──────────────▶ failed
"""

from enum import StrEnum
from typing import Literal

EndMarker = Literal["finished", "stopped", "failed"]
"""What the driver writes as its last event."""

RayStatus = Literal[
    "pending", "running", "succeeded", "failed", "stopped", "missing", "unreachable"
]
"""A Ray job's state as the ``observe`` task saw it; ``missing``: Ray does not know the job."""


class RunStatus(StrEnum):
    """The state of a run as its page shows it."""

    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"

    @property
    def is_terminal(self) -> bool:
        """True when nothing more will happen to the run."""
        return not TRANSITIONS[self]

    @property
    def is_active(self) -> bool:
        """True while the run holds the machine."""
        return self in (RunStatus.STARTING, RunStatus.RUNNING, RunStatus.STOPPING)


TRANSITIONS: dict[RunStatus, frozenset[RunStatus]] = {
    RunStatus.QUEUED: frozenset({RunStatus.STARTING, RunStatus.STOPPED, RunStatus.FAILED}),
    RunStatus.STARTING: frozenset(
        {
            RunStatus.RUNNING,
            RunStatus.STOPPING,
            RunStatus.FINISHED,
            RunStatus.STOPPED,
            RunStatus.FAILED,
        }
    ),
    RunStatus.RUNNING: frozenset(
        {RunStatus.STOPPING, RunStatus.FINISHED, RunStatus.STOPPED, RunStatus.FAILED}
    ),
    RunStatus.STOPPING: frozenset({RunStatus.FINISHED, RunStatus.STOPPED, RunStatus.FAILED}),
    RunStatus.FINISHED: frozenset(),
    RunStatus.STOPPED: frozenset(),
    RunStatus.FAILED: frozenset(),
}


class IllegalTransition(ValueError):
    """A move that the table does not have."""


def moved(current: RunStatus, target: RunStatus) -> RunStatus:
    """``target``, if the table allows the move; staying put is always allowed.

    Raises ``IllegalTransition`` otherwise.
    """
    if target is not current and target not in TRANSITIONS[current]:
        raise IllegalTransition(f"a {current} run cannot become {target}")
    return target


def concluded(
    current: RunStatus, ray: RayStatus, marker: EndMarker | None, stop_requested: bool
) -> tuple[RunStatus, str] | None:
    """What an active run has become, with the reason, or None while nothing is decided.

    The end marker, written by the driver itself, outranks Ray's word; Ray being unreachable is
    no evidence; a job that ended without a marker has failed, unless a stop was asked for.
    """
    if not current.is_active:
        return None
    if marker is not None:
        return RunStatus(marker), ""
    if ray in ("succeeded", "failed", "missing", "stopped"):
        if stop_requested:
            return RunStatus.STOPPED, "Stopped on request; the driver left no end marker."
        words = {
            "succeeded": "Its Ray job ended without an end marker.",
            "failed": "Its Ray job failed before the driver could say why.",
            "missing": "Ray no longer knows its job.",
            "stopped": "Its Ray job was stopped from outside Lagoon.",
        }
        return RunStatus.FAILED, words[ray]
    return None
