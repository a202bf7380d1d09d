"""Experiments: the pages that runs are collected on."""

from datetime import datetime

from sqlalchemy import ForeignKey, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from backend.models.base import Base


class Experiment(Base):
    """A titled collection of runs with notes."""

    __tablename__ = "experiments"
    __table_args__ = (
        Index("ix_experiments_owner_id_created_at_id", "owner_id", "created_at", "id"),
        Index(
            "uq_experiments_default",
            "owner_id",
            unique=True,
            postgresql_where=text("is_default"),
        ),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    owner_id: Mapped[str] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"))
    title: Mapped[str]
    notes: Mapped[str]
    is_default: Mapped[bool]
    """Where the owner's runs go that name no experiment."""
    created_at: Mapped[datetime]
