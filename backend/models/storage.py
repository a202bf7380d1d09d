"""What each run holds in the database, and what of it is missing."""

from sqlalchemy import ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from backend.models.base import Base


class RunStorage(Base):
    """One kind of a run's data (``backend.storage.accounting.Kind``): counted as it comes in."""

    __tablename__ = "run_storage"
    __table_args__ = {"postgresql_with": {"fillfactor": "50"}}  # noqa: RUF012  SQLAlchemy's own declaration

    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    kind: Mapped[str] = mapped_column(primary_key=True)
    num_held: Mapped[int]
    held_bytes: Mapped[int]
    """About what they take: their text, and a fixed amount for each row."""
    num_expired: Mapped[int]
    """Removed by retention; the oldest are removed first."""
    num_dropped: Mapped[int]
    """Dropped by the driver, which had no room for them."""
