"""Bodies and answers about attempts."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from lagoon.controls import Change
from lagoon.status import RayStatus, RunStatus
from lagoon.stopping import Measure


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class AttemptConfig(BaseModel):
    """What a driver needs to begin."""

    run_id: str
    attempt: int
    name: str
    config: dict[str, Any]
    fencing_token: int
    checkpoints: list[str]
    """Paths that it may go on from, newest first; empty: it begins with the model."""
    owns_checkpoints: bool
    """They are the run's own, and older ones are removed as it goes on."""
    earlier_folders: list[str]
    """Folders of checkpoints of the run's earlier attempts, newest first: where an evolution run's
    log of updates is."""
    places: dict[str, str]
    """The Ray node of each process: generators by number, and the trainer."""
    changes: list[Change]
    """What people have changed of the settings so far: it begins with all of it."""


class DriverToken(BaseModel):
    """A driver's credential, and where to use it."""

    token: str
    fencing_token: int
    api_url: str


class AttemptState(BaseModel):
    """An attempt as the workers see it."""

    id: str
    run_id: str
    number: int
    status: RunStatus
    submission_id: str | None
    measure: Measure
    """What is due to end it."""
    boot_id: str | None
    """The machine that its driver was heard from."""


class Submitted(_Body):
    """The Ray job that an attempt has become."""

    submission_id: str = Field(min_length=1, max_length=200)


class SubmitFailed(_Body):
    """Why an attempt could not become a Ray job. Long texts are cut, not refused."""

    reason: str
    traceback: str | None = None


class ObservedNode(_Body):
    """A node that is alive, and what it has in all."""

    id: str = Field(min_length=1, max_length=200)
    name: str = Field(max_length=200)
    cpus: float = Field(ge=0, allow_inf_nan=False)
    gpus: float = Field(ge=0, allow_inf_nan=False)


class ClusterResources(_Body):
    """What the cluster has in all, and on which nodes."""

    cpus: float = Field(ge=0, allow_inf_nan=False)
    gpus: float = Field(ge=0, allow_inf_nan=False)
    nodes: list[ObservedNode] = Field(default_factory=list, max_length=10_000)


class ObservedJob(_Body):
    """One attempt's Ray job."""

    attempt_id: str = Field(max_length=200)
    ray_status: RayStatus
    message: str | None = None
    num_processes: int = Field(0, ge=0, le=1_000_000)
    """Processes with the attempt's mark on the workers' machine."""
    num_killed: int = Field(0, ge=0, le=1_000_000)
    """How many of them the workers have just killed, because it was due."""


class Observation(_Body):
    """What the workers saw of Ray just now."""

    ray: Literal["ok", "unreachable"]
    boot_id: str = Field("", max_length=200)
    """The workers' machine (``lagoon.proc.machine_id``)."""
    cluster: ClusterResources | None = None
    jobs: list[ObservedJob] = Field(default_factory=list, max_length=1000)
