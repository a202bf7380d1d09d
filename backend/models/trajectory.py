"""Readable summaries of trajectories."""

from typing import Any

from sqlalchemy import JSON, Double, ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from backend.models.base import Base


class TrajectoryRecord(Base):
    """One trajectory as its driver told it."""

    __tablename__ = "trajectories"
    __table_args__ = (
        Index("ix_trajectories_run_id_id", "run_id", "id"),
        Index("ix_trajectories_run_id_split_id", "run_id", "split", "id"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"))
    attempt: Mapped[int]
    at: Mapped[float] = mapped_column(Double)
    step: Mapped[int]
    trajectory_id: Mapped[str]
    prompt_id: Mapped[str]
    split: Mapped[str]
    reward: Mapped[float] = mapped_column(Double)
    success: Mapped[bool]
    num_tokens: Mapped[int]
    first_version: Mapped[int | None]
    completed_version: Mapped[int]
    truncated: Mapped[bool]
    seconds: Mapped[float] = mapped_column(Double)
    turns: Mapped[list[Any]] = mapped_column(JSON)
