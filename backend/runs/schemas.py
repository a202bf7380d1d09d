"""Bodies and answers about runs."""

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from backend.text import Name
from lagoon.events import ExactFloat
from lagoon.status import RunStatus
from lagoon.truth import Condition


class ConfigBody(BaseModel):
    """A configuration to check."""

    model_config = ConfigDict(extra="forbid")

    config: dict[str, Any]


class NewRun(ConfigBody):
    """A run to make."""

    name: Name
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
    status: RunStatus
    submitted_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    reason: str


class FirstNan(BaseModel):
    """The first value that was not a number."""

    name: str
    step: int


class CheckpointOut(BaseModel):
    """Saved weights."""

    step: int
    path: str
    is_final: bool


class Gone(BaseModel):
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
    stop_requested_at: datetime | None
    stop_requested_by: str | None
    first_nan: FirstNan | None
    traceback: str | None
    checkpoints: list[CheckpointOut]
    gone: list[Gone]


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
