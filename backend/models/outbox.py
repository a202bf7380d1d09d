"""What leaves the database for elsewhere, and what was last seen of the cluster."""

from datetime import datetime
from typing import Any

from sqlalchemy import Double, ForeignKey, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from backend.models.base import Base


class OutboxMessage(Base):
    """A task to send to the workers, written in the transaction that makes it necessary."""

    __tablename__ = "outbox"
    __table_args__ = (
        Index("ix_outbox_unsent", "available_at", "id", postgresql_where=text("sent_at IS NULL")),
        Index("ix_outbox_attempt_id", "attempt_id"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    task: Mapped[str]
    attempt_id: Mapped[str] = mapped_column(ForeignKey("attempts.id", ondelete="CASCADE"))
    args: Mapped[list[Any]]
    created_at: Mapped[datetime]
    available_at: Mapped[datetime]
    sent_at: Mapped[datetime | None]
    num_failures: Mapped[int]
    last_error: Mapped[str | None]


class ClusterObservation(Base):
    """What the workers last saw of Ray; one row."""

    __tablename__ = "cluster_observation"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    at: Mapped[datetime]
    ray: Mapped[str]
    cpus: Mapped[float | None] = mapped_column(Double)
    gpus: Mapped[float | None] = mapped_column(Double)


class IdempotencyKey(Base):
    """A create that was already done, by the key its client chose."""

    __tablename__ = "idempotency_keys"

    user_id: Mapped[str] = mapped_column(
        ForeignKey("users.id", ondelete="CASCADE"), primary_key=True
    )
    key: Mapped[str] = mapped_column(primary_key=True)
    request_hash: Mapped[bytes]
    run_id: Mapped[str | None] = mapped_column(
        ForeignKey("runs.id", ondelete="CASCADE", deferrable=True, initially="DEFERRED")
    )
    experiment_id: Mapped[str | None] = mapped_column(
        ForeignKey("experiments.id", ondelete="CASCADE", deferrable=True, initially="DEFERRED")
    )
    created_at: Mapped[datetime]
