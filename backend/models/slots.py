"""What there is to compute on, and who holds it."""

from datetime import datetime

from sqlalchemy import Double, ForeignKey, Identity, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from backend.models.base import Base


class ClusterNode(Base):
    """A Ray node that the workers have seen. One that is gone keeps its row."""

    __tablename__ = "cluster_nodes"

    id: Mapped[str] = mapped_column(primary_key=True)
    """Ray's id. It changes when Ray is restarted on the machine; the name does not."""
    name: Mapped[str]
    cpus: Mapped[float] = mapped_column(Double)
    gpus: Mapped[float] = mapped_column(Double)
    seen_at: Mapped[datetime]


class Lease(Base):
    """Slots on a node for one process of an attempt: held until nothing of the attempt is left."""

    __tablename__ = "leases"
    __table_args__ = (
        Index("ix_leases_attempt_id", "attempt_id"),
        Index("ix_leases_held", "id", postgresql_where=text("released_at IS NULL")),
    )

    id: Mapped[int] = mapped_column(Identity(), primary_key=True)
    attempt_id: Mapped[str] = mapped_column(ForeignKey("attempts.id", ondelete="CASCADE"))
    process: Mapped[str]
    """``generator 0`` and the like, or ``trainer``."""
    node_id: Mapped[str]
    cpus: Mapped[float] = mapped_column(Double)
    gpus: Mapped[float] = mapped_column(Double)
    fencing_token: Mapped[int]
    """The attempt's credential that may use the slots; 0 before the first one is minted."""
    taken_at: Mapped[datetime]
    released_at: Mapped[datetime | None]
