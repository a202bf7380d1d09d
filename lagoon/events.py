"""What a run's driver tells the platform, as one discriminated union.

Batches are numbered per writer and attempt, so that one sent twice changes nothing. NaN and the
infinities travel as strings, exactly.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

import lagoon.methods  # noqa: F401  a method may declare metrics in its file
from lagoon.metrics import CATALOGUE
from lagoon.points import ExactFloat, Point
from lagoon.stalls import Activity
from lagoon.status import EndMarker
from lagoon.trajectory import Split

MAX_BATCH_EVENTS = 5000
MAX_PARTS = 10_000
"""Points, counts, turns or lines that one event may hold."""
MAX_BATCH_PARTS = 50_000
"""The same over all events of a batch."""
DroppedKind = Literal["trajectory_texts", "trajectories", "log_lines", "points", "histograms"]
"""What a driver drops, in this order, when its spool has no room (``lagoon/dropping.py``)."""
DropCause = Literal["quota", "disk"]
"""Why there was no room: the spool is at its quota, or the disk takes nothing more."""


class _Event(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    at: float
    """Unix time in seconds, UTC."""

    @property
    def num_parts(self) -> int:
        """Points, counts, turns or lines in the event."""
        return 0


class StepLogged(_Event):
    """Metrics at a policy version (an optimizer step or an ES generation)."""

    type: Literal["step"] = "step"
    step: int = Field(ge=0)
    points: tuple[Point, ...] = Field(max_length=MAX_PARTS)

    @property
    def num_parts(self) -> int:
        """Its points."""
        return len(self.points)


class HistogramLogged(_Event):
    """Exact integer counts of one quantity at one step."""

    type: Literal["histogram"] = "histogram"
    step: int = Field(ge=0)
    name: str
    counts: dict[int, int] = Field(max_length=MAX_PARTS)

    @property
    def num_parts(self) -> int:
        """Its counts."""
        return len(self.counts)

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in CATALOGUE or CATALOGUE[name].kind != "histogram":
            raise ValueError(f"no histogram {name!r} in the catalogue")
        return name


class TurnLogged(BaseModel):
    """One message of a trajectory, as text."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    role: Literal["system", "user", "assistant", "tool"]
    text: str
    seconds: float = 0.0
    error: str | None = None


class TrajectoryLogged(_Event):
    """A readable summary of one trajectory."""

    type: Literal["trajectory"] = "trajectory"
    step: int = Field(ge=0)
    trajectory_id: str
    prompt_id: str
    split: Split
    reward: ExactFloat
    success: bool
    num_tokens: int
    first_version: int | None
    completed_version: int
    truncated: bool
    seconds: float
    turns: tuple[TurnLogged, ...] = Field(max_length=MAX_PARTS)

    @property
    def num_parts(self) -> int:
        """Its turns."""
        return len(self.turns)


class StatusLogged(_Event):
    """The driver has reached a phase worth naming, for example "building the model"."""

    type: Literal["status"] = "status"
    phase: Literal["starting", "running", "stopping"]
    message: str


class HeartbeatLogged(_Event):
    """The driver is alive: which one, where, and how far it is."""

    type: Literal["heartbeat"] = "heartbeat"
    step: int
    pid: int
    host: str
    boot_id: str = Field("", max_length=200)
    """The machine's boot and process namespace (``lagoon.proc.machine_id``)."""
    fencing_token: int | None = None
    """Of the credential that it was started with; none without a platform."""
    trajectories: int = Field(0, ge=0)
    """Finished since the driver started."""
    activity: Activity = "starting"
    """What its loop is at, or waits for."""
    idle_seconds: float = Field(0.0, ge=0, allow_inf_nan=False)
    """Time since a trajectory or a step was finished, by the driver's own monotonic clock."""


class LogLogged(_Event):
    """Lines of the driver's log."""

    type: Literal["log"] = "log"
    lines: tuple[str, ...] = Field(max_length=MAX_PARTS)

    @property
    def num_parts(self) -> int:
        """Its lines."""
        return len(self.lines)


class CheckpointLogged(_Event):
    """Weights were saved."""

    type: Literal["checkpoint"] = "checkpoint"
    step: int
    path: str
    is_final: bool
    dropped: tuple[str, ...] = ()
    """Paths of older ones that are removed now: no more than ``checkpoint.keep`` stay."""
    num_bytes: int | None = Field(default=None, ge=0)
    is_best: bool = False
    """No checkpoint of the run before it had a better held-out success."""


class ResumedLogged(_Event):
    """The attempt goes on from a checkpoint."""

    type: Literal["resumed"] = "resumed"
    step: int = Field(ge=0)
    """Policy version that it goes on from."""
    path: str
    refused: tuple[str, ...] = Field(default=(), max_length=MAX_PARTS)
    """Newer checkpoints that could not be used, each with the reason."""

    @property
    def num_parts(self) -> int:
        """Its refused checkpoints."""
        return len(self.refused)


class ControlsApplied(_Event):
    """Changes that people asked for have taken effect (``lagoon/controls.py``)."""

    type: Literal["controls"] = "controls"
    version: int = Field(ge=0)
    """Policy version from whose next batch on they hold."""
    numbers: tuple[int, ...] = Field(max_length=MAX_PARTS)
    """Of the changes that hold, those that the attempt began with included."""
    refused: dict[int, str] = Field(default_factory=dict, max_length=MAX_PARTS)
    """Of those that could not be honoured after all, each with the reason."""

    @property
    def num_parts(self) -> int:
        """Its changes."""
        return len(self.numbers) + len(self.refused)


class TelemetryDropped(_Event):
    """Telemetry that the driver had no room for, and that will never arrive."""

    type: Literal["telemetry_dropped"] = "telemetry_dropped"
    cause: DropCause
    counts: dict[DroppedKind, Annotated[int, Field(ge=1)]]
    """How many of each kind since the last such event. A trajectory that lost its texts first and
    was dropped later counts as both."""


class RunEnded(_Event):
    """The end marker: the driver's own last word."""

    type: Literal["ended"] = "ended"
    outcome: EndMarker
    reason: str
    traceback: str | None = None
    is_transient: bool = False
    """A failure that need not happen again, as of a process that was killed."""


Event = Annotated[
    StepLogged
    | HistogramLogged
    | TrajectoryLogged
    | StatusLogged
    | HeartbeatLogged
    | LogLogged
    | CheckpointLogged
    | ResumedLogged
    | ControlsApplied
    | TelemetryDropped
    | RunEnded,
    Field(discriminator="type"),
]


class EventBatch(BaseModel):
    """Events of one writer, numbered from 1 without gaps."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    writer: str = Field(min_length=1, max_length=64)
    number: int = Field(ge=1)
    events: tuple[Event, ...] = Field(max_length=MAX_BATCH_EVENTS)

    @field_validator("events")
    @classmethod
    def _bounded(cls, events: tuple[Event, ...]) -> tuple[Event, ...]:
        found = num_parts(events)
        if found > MAX_BATCH_PARTS:
            raise ValueError(
                f"{found} points, counts, turns and lines in one batch; at most {MAX_BATCH_PARTS}"
            )
        return events


def num_parts(events: Iterable[Event]) -> int:
    """Points, counts, turns and lines in all of ``events``."""
    return sum(event.num_parts for event in events)
