"""What people have changed of runs that went on."""

from datetime import datetime
from typing import Any, Literal

from sqlalchemy import ForeignKey, Text
from sqlalchemy.orm import Mapped, mapped_column

from backend.models.base import Base

Outcome = Literal["applied", "superseded", "refused"]
"""What became of a change: it holds from a version on; a later one came before it could be seen; or
the driver could not honour it."""


class RunChange(Base):
    """One change of a run's settings: who asked for what, and since which version it holds."""

    __tablename__ = "run_changes"

    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    """Its place among the changes of the run, from 1: they take effect in this order."""
    requested_at: Mapped[datetime]
    requested_by: Mapped[str]
    before: Mapped[dict[str, Any]]
    """The settings that it changes, as they were wanted when it was asked for."""
    after: Mapped[dict[str, Any]]
    """The same, as they are wanted from then on."""
    outcome: Mapped[Outcome | None] = mapped_column(Text)
    """None while no driver has said."""
    why: Mapped[str]
    """Why it was refused or superseded."""
    attempt: Mapped[int | None]
    """The attempt that said what became of it."""
    version: Mapped[int | None]
    """Policy version, on the surviving lineage, from whose next batch on it holds."""
    applied_at: Mapped[datetime | None]
    """When that was heard."""
