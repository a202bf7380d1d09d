"""Runs, their attempts, and the history of both."""

from datetime import datetime
from typing import Any

from sqlalchemy import Double, ForeignKey, Identity, Index, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from backend.models.base import Base
from lagoon.stalls import Activity
from lagoon.status import EndMarker, RayStatus
from lagoon.truth import Condition, Desired


class Run(Base):
    """A run: its resolved configuration, its status, and counters that only grow.

    Whoever changes a run holds its row lock; ``cursor`` grows with every such change, so a reader
    who knows a cursor has missed nothing up to it.
    """

    __tablename__ = "runs"
    __table_args__ = (
        Index("ix_runs_created_at_id", "created_at", "id"),
        Index("ix_runs_owner_id_created_at_id", "owner_id", "created_at", "id"),
        Index("ix_runs_experiment_id_created_at_id", "experiment_id", "created_at", "id"),
        Index("ix_runs_status_created_at_id", "status", "created_at", "id"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    experiment_id: Mapped[str] = mapped_column(ForeignKey("experiments.id"))
    owner_id: Mapped[str] = mapped_column(ForeignKey("users.id"))
    name: Mapped[str]
    config: Mapped[dict[str, Any]]
    method: Mapped[str]
    environment: Mapped[str]
    model: Mapped[str]
    control: Mapped[str]
    max_steps: Mapped[int]

    status: Mapped[str]
    reason: Mapped[str]
    """Why the run is in its status, in one sentence; empty when there is nothing to say."""
    condition: Mapped[Condition] = mapped_column(Text)
    """How an active run is, beside its status; empty: all is well."""
    condition_since: Mapped[datetime | None]
    desired: Mapped[Desired] = mapped_column(Text)
    """What people want of the run: that it runs, or that it stops."""
    waiting_for_id: Mapped[str | None]
    """The first run that the reason of a queued run speaks of."""
    priority: Mapped[str] = mapped_column(default="normal")
    queue_number: Mapped[int] = mapped_column(Identity())
    """The order of its owner's runs of one priority: as they were made, until one is moved."""
    queue_position: Mapped[int | None] = mapped_column(default=None)
    """The place of a queued run when the queue was last gone through, from 1."""
    traceback: Mapped[str | None]
    stop_requested_at: Mapped[datetime | None]
    stop_requested_by: Mapped[str | None]
    is_paused: Mapped[bool] = mapped_column(default=False)
    """Whether people want it to be paused, by the newest change that says so."""
    num_changes: Mapped[int] = mapped_column(default=0)
    """Changes of its settings that were asked for (``RunChange``)."""
    not_before: Mapped[datetime | None]
    """A queued run does not start before this moment: a restart waits."""
    parent_run_id: Mapped[str | None] = mapped_column(ForeignKey("runs.id", ondelete="SET NULL"))
    """The run that this one is a fork of."""
    parent_step: Mapped[int | None]
    """The step of the parent's checkpoint that it begins with."""
    created_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]

    step: Mapped[int]
    """Newest step that was reported."""
    cursor: Mapped[int]
    num_events: Mapped[int]
    num_log_lines: Mapped[int]


class Attempt(Base):
    """One try at a run: one Ray job, one driver, one credential at a time."""

    __tablename__ = "attempts"
    __table_args__ = (UniqueConstraint("run_id", "number"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"))
    number: Mapped[int]
    status: Mapped[str]
    reason: Mapped[str]
    created_at: Mapped[datetime]
    submitted_at: Mapped[datetime | None]
    submission_id: Mapped[str | None]
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]

    token_hash: Mapped[bytes | None]
    fencing_token: Mapped[int]
    """Grows with every credential that is minted; only the newest one may write."""
    heartbeat_at: Mapped[datetime | None]
    """When the driver was last heard, by this API's clock."""
    heartbeat_host: Mapped[str | None]
    heartbeat_pid: Mapped[int | None]
    heartbeat_boot_id: Mapped[str | None]
    """The driver's machine, as the driver named it (``lagoon.proc.machine_id``)."""
    trajectories: Mapped[int]
    """Finished by the driver, as it last said."""
    activity: Mapped[Activity | None] = mapped_column(Text)
    """What the driver's loop was last at."""
    idle_seconds: Mapped[float | None] = mapped_column(Double)
    """How long it had made no progress then."""
    ray_status: Mapped[RayStatus | None] = mapped_column(Text)
    ray_message: Mapped[str | None]
    ray_seen_at: Mapped[datetime | None]

    marker: Mapped[EndMarker | None] = mapped_column(Text)
    """The driver's last word on how it ended. It decides, but for a stop that was asked for: that
    waits until the processes are gone."""
    marker_reason: Mapped[str | None]
    marker_is_transient: Mapped[bool]
    """A failure that need not happen again."""
    marker_at: Mapped[datetime | None]
    num_changes: Mapped[int] = mapped_column(default=0)
    """Number of the newest change of settings that its driver has said something of."""
    stop_heard_at: Mapped[datetime | None]
    """When the driver said that it had heard of a stop that was asked for."""
    stop_saved_at: Mapped[datetime | None]
    """When it had saved its weights after that."""
    num_processes: Mapped[int | None]
    """How many processes of it the workers last saw on their machine."""
    gone_at: Mapped[datetime | None]
    """When the workers saw that no process of it is left: what it held is free from then on."""

    last_step: Mapped[int]
    """The newest step that it has reported."""
    is_restart: Mapped[bool]
    """It was started by Lagoon itself, after a failure."""
    candidates: Mapped[list[Any]]
    """Paths of the checkpoints that it may go on from, newest first; empty: from the start."""
    owns_candidates: Mapped[bool]
    """They are the run's own; a fork's first are its parent's."""
    takes_newest: Mapped[bool]
    """It goes on from the newest there is, an evolution run's logged updates included; False when
    somebody chose the checkpoint."""
    resumed_step: Mapped[int | None]
    """The step that it went on from, once it has: what earlier attempts did after it is superseded.
    0 when it began anew."""


class RunEvent(Base):
    """One entry of a run's history: what changed, why, and by whom."""

    __tablename__ = "run_events"

    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    n: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    at: Mapped[datetime]
    attempt: Mapped[int | None]
    kind: Mapped[str]
    from_status: Mapped[str | None]
    to_status: Mapped[str | None]
    reason: Mapped[str]
    by: Mapped[str | None]


class LogLine(Base):
    """One line of the driver's log."""

    __tablename__ = "log_lines"

    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    n: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    at: Mapped[datetime]
    attempt: Mapped[int]
    line: Mapped[str]


class Checkpoint(Base):
    """Weights that the driver has saved."""

    __tablename__ = "checkpoints"

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), index=True)
    attempt: Mapped[int]
    at: Mapped[datetime]
    step: Mapped[int]
    path: Mapped[str]
    is_final: Mapped[bool]
    num_bytes: Mapped[int | None]
    is_best: Mapped[bool]
    """It had the best held-out success of all before it."""


class IngestCursor(Base):
    """The newest batch of one writer of an attempt: everything up to it is stored."""

    __tablename__ = "ingest_cursors"

    attempt_id: Mapped[str] = mapped_column(
        ForeignKey("attempts.id", ondelete="CASCADE"), primary_key=True
    )
    writer: Mapped[str] = mapped_column(primary_key=True)
    last_number: Mapped[int]
