"""Bodies and answers about the queue."""

from datetime import datetime

from pydantic import BaseModel, ConfigDict, model_validator

from backend.runs.schemas import RunReference
from lagoon.queueing import Priority
from lagoon.status import RunStatus


class Asking(BaseModel):
    """A run that is to start, and what it asks for."""

    run: RunReference | None
    """None for a viewer who may not see the run."""
    owner: str
    priority: Priority
    cpus: float
    gpus: float
    num_processes: int
    may_change: bool
    """Whether the viewer may move it or change its priority."""


class QueueItem(Asking):
    """A run that waits."""

    position: int
    reason: str
    """Why it waits; empty when it is about to start."""
    queued_at: datetime


class PausedItem(Asking):
    """A run that failed and starts again by itself: it joins the queue when its pause is over."""

    restarts_at: datetime
    reason: str
    """Why it had failed; empty for a viewer who may not see the run."""


class NodeShare(BaseModel):
    """What is held on one node."""

    node: str
    cpus: float
    gpus: float


class LeaseOut(BaseModel):
    """What an attempt holds."""

    run: RunReference | None
    """None for a viewer who may not see the run."""
    owner: str
    attempt: int
    status: RunStatus
    """Of the attempt. One that is over holds its slots until its processes are known to be gone."""
    cpus: float
    gpus: float
    nodes: list[NodeShare]
    taken_at: datetime


class NodeOut(BaseModel):
    """A node, and how much of it is free."""

    id: str
    name: str
    cpus: float
    gpus: float
    cpus_free: float
    gpus_free: float
    seen_at: datetime


class QueueOut(BaseModel):
    """The queue in its order, what joins it later, what is held, and what there is."""

    items: list[QueueItem]
    paused: list[PausedItem]
    """The next one first."""
    leases: list[LeaseOut]
    nodes: list[NodeOut]


class PriorityChange(BaseModel):
    """A run's new priority."""

    model_config = ConfigDict(extra="forbid")

    priority: Priority


class Move(BaseModel):
    """A queued run, and the run of the same owner that it is to stand before or after."""

    model_config = ConfigDict(extra="forbid")

    run_id: str
    before: str | None = None
    after: str | None = None

    @property
    def other_id(self) -> str:
        """The run that stays where it is."""
        return self.before or self.after or ""

    @model_validator(mode="after")
    def _one_place(self) -> "Move":
        if (self.before is None) == (self.after is None):
            raise ValueError("give either before or after")
        if self.other_id == self.run_id:
            raise ValueError("a run cannot be moved before or after itself")
        return self
