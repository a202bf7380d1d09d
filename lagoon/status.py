"""A run's life: its states, and the one table of moves between them.

::

    queued ──▶ starting ──▶ running ──▶ finished
     ▲ │           │           │
     │ └───────────┴── stopping ──▶ stopped
     │             └──────────────▶ failed
     └── another attempt: a restart, or somebody resumes what stopped or failed

One that waits has no process of its own, but those of an attempt before may be left: then it is
stopping, too, until they are gone.
"""

from enum import StrEnum
from typing import Literal

EndMarker = Literal["finished", "stopped", "failed"]
"""What the driver writes as its last event."""

RayStatus = Literal[
    "pending", "running", "succeeded", "failed", "stopped", "missing", "unreachable"
]
"""A Ray job's state as the ``observe`` task saw it; ``missing``: Ray does not know the job."""

OVER_FOR_RAY: tuple[RayStatus, ...] = ("succeeded", "failed", "stopped", "missing")
"""What Ray says of a job that does not run (any more)."""


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
        """True when nothing more will happen to the run by itself."""
        return self in (RunStatus.FINISHED, RunStatus.STOPPED, RunStatus.FAILED)

    @property
    def is_resumable(self) -> bool:
        """True when somebody may have the run go on."""
        return self in (RunStatus.STOPPED, RunStatus.FAILED)

    @property
    def is_active(self) -> bool:
        """True while the run is on the cluster, or about to be."""
        return self in (RunStatus.STARTING, RunStatus.RUNNING, RunStatus.STOPPING)


ACTIVE = tuple(status.value for status in RunStatus if status.is_active)
TERMINAL = tuple(status.value for status in RunStatus if status.is_terminal)
TRANSITIONS: dict[RunStatus, frozenset[RunStatus]] = {
    RunStatus.QUEUED: frozenset(
        {RunStatus.STARTING, RunStatus.STOPPING, RunStatus.STOPPED, RunStatus.FAILED}
    ),
    RunStatus.STARTING: frozenset(
        {
            RunStatus.RUNNING,
            RunStatus.STOPPING,
            RunStatus.FINISHED,
            RunStatus.STOPPED,
            RunStatus.FAILED,
            RunStatus.QUEUED,
        }
    ),
    RunStatus.RUNNING: frozenset(
        {
            RunStatus.STOPPING,
            RunStatus.FINISHED,
            RunStatus.STOPPED,
            RunStatus.FAILED,
            RunStatus.QUEUED,
        }
    ),
    RunStatus.STOPPING: frozenset({RunStatus.FINISHED, RunStatus.STOPPED, RunStatus.FAILED}),
    RunStatus.FINISHED: frozenset(),
    RunStatus.STOPPED: frozenset({RunStatus.QUEUED}),
    RunStatus.FAILED: frozenset({RunStatus.QUEUED}),
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
