"""Bodies and answers about runs."""

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from backend.text import Name
from lagoon.points import ExactFloat
from lagoon.queueing import Priority
from lagoon.stalls import Activity
from lagoon.status import RunStatus
from lagoon.truth import Condition, Desired


class ConfigBody(BaseModel):
    """A configuration to check."""

    model_config = ConfigDict(extra="forbid")

    config: dict[str, Any]


class NewRun(ConfigBody):
    """A run to make."""

    name: Name
    experiment_id: str | None = None


class Resume(BaseModel):
    """How a run is to go on."""

    model_config = ConfigDict(extra="forbid")

    checkpoint_id: int | None = None
    """One of the run's checkpoints; without it the newest, as far as it is whole."""


class Fork(BaseModel):
    """A new run that begins with another run's checkpoint."""

    model_config = ConfigDict(extra="forbid")

    checkpoint_id: int
    name: Name
    config: dict[str, Any] | None = None
    """Its configuration; without one, that of the run it is a fork of."""
    experiment_id: str | None = None


class ResolvedConfig(BaseModel):
    """A configuration with all its defaults filled in."""

    config: dict[str, Any]


class RunSummary(BaseModel):
    """A run in a list."""

    id: str
    name: str
    experiment_id: str
    owner: str
    status: RunStatus
    reason: str
    priority: Priority
    queue_position: int | None
    """The place of a queued run, from 1; it may be a second old."""
    condition: Condition
    condition_since: datetime | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    step: int
    max_steps: int
    method: str
    environment: str
    model: str
    num_attempts: int
    first_heldout_success: ExactFloat | None
    last_heldout_success: ExactFloat | None
    last_reward: ExactFloat | None
    control: str
    cursor: int
    """Grows with everything that happens to the run."""


class RunReference(BaseModel):
    """Another run."""

    run_id: str
    name: str


class AttemptOut(BaseModel):
    """One try at the run."""

    number: int
    is_restart: bool
    resumed_step: int | None
    status: RunStatus
    submitted_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    reason: str
    trajectories: int
    activity: Activity | None
    """What its driver's loop was last at, or waited for."""
    idle_seconds: float | None
    """How long it had made no progress then."""
    stop_heard_at: datetime | None
    stop_saved_at: datetime | None
    marker_at: datetime | None
    """When its driver had said its last word."""
    num_processes: int | None
    """Processes of it that were last seen on the workers' machine."""
    gone_at: datetime | None
    """When none of them was left."""


class FirstNan(BaseModel):
    """The first value that was not a number."""

    name: str
    step: int


class FirstMismatch(BaseModel):
    """The first publish after which a generator did not hold the published weights."""

    attempt: int
    step: int


class CheckpointOut(BaseModel):
    """Saved weights, with what a run needs to go on from them."""

    id: int
    attempt: int
    step: int
    path: str
    is_final: bool
    is_best: bool
    num_bytes: int | None


class Missing(BaseModel):
    """Data of the run, of one kind, that is not there any more, or never arrived."""

    kind: str
    num_expired: int
    """The oldest ones, removed by retention."""
    num_dropped: int
    """Dropped by the driver, which had no room for them."""


class RunDetail(RunSummary):
    """A run with what its page's header needs."""

    config: dict[str, Any]
    waiting_for: RunReference | None
    attempts: list[AttemptOut]
    desired: Desired
    stop_requested_at: datetime | None
    stop_requested_by: str | None
    is_paused: bool
    """Whether people want it to be paused; its newest attempt's activity says whether it is."""
    num_changes: int
    """Changes of its settings that people have asked for."""
    first_nan: FirstNan | None
    first_mismatch: FirstMismatch | None
    traceback: str | None
    checkpoints: list[CheckpointOut]
    parent_run_id: str | None
    """The run that it is a fork of, for a viewer who may see that one."""
    parent_step: int | None
    missing: list[Missing]


class Deleted(BaseModel):
    """What a deletion did to the files in the home folder."""

    freed_bytes: int
    left_behind: list[str]
    """Folders that nothing refers to any more and that could not be removed, with the reason."""


class RunEventOut(BaseModel):
    """One entry of a run's history."""

    n: int
    at: datetime
    attempt: int | None
    kind: str
    from_status: RunStatus | None = Field(serialization_alias="from")
    to_status: RunStatus | None = Field(serialization_alias="to")
    reason: str
    by: str | None


class LogLineOut(BaseModel):
    """One line of the driver's log."""

    n: int
    at: datetime
    attempt: int
    line: str


class LogPage(BaseModel):
    """Lines, and the number to ask for what comes after them."""

    items: list[LogLineOut]
    next_after: int
