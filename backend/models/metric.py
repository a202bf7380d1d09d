"""Metric storage: a dictionary of series, narrow rows of points, the latest value of each series.

Points and histograms carry no foreign key and no unique index, so that COPY stays fast; a batch is
stored once because its writer's cursor row says so.
"""

from sqlalchemy import (
    BigInteger,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    Table,
    UniqueConstraint,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Mapped, mapped_column

from backend.models.base import Base


class MetricSeries(Base):
    """One curve or one row of histograms of a run: a metric's name with its labels."""

    __tablename__ = "metric_series"
    __table_args__ = (UniqueConstraint("run_id", "name", "labels"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"))
    name: Mapped[str]
    labels: Mapped[dict[str, str]]
    kind: Mapped[str]


class MetricLatest(Base):
    """What a list needs to know of a series without reading its points, for each attempt.

    ``first`` and ``last`` are by step; minimum and maximum are over values that are not NaN.
    """

    __tablename__ = "metric_latest"
    __table_args__ = {"postgresql_with": {"fillfactor": "50"}}  # noqa: RUF012  SQLAlchemy's own declaration

    series_id: Mapped[int] = mapped_column(
        ForeignKey("metric_series.id", ondelete="CASCADE"), primary_key=True
    )
    attempt: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    count: Mapped[int]
    first_step: Mapped[int]
    first_value: Mapped[float | None] = mapped_column(Double)
    last_step: Mapped[int]
    last_value: Mapped[float | None] = mapped_column(Double)
    min_value: Mapped[float | None] = mapped_column(Double)
    max_value: Mapped[float | None] = mapped_column(Double)
    first_nan_step: Mapped[int | None]
    cursor: Mapped[int]
    """The run's cursor when the series last grew."""


metric_points = Table(
    "metric_points",
    Base.metadata,
    Column("series_id", BigInteger, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("step", BigInteger, nullable=False),
    Column("at", Double, nullable=False),
    Column("value", Double, nullable=False),
    Column("cursor", BigInteger, nullable=False),
    Index("ix_metric_points_series_id_attempt_step", "series_id", "attempt", "step"),
)
"""Every value as it was reported: ``at`` in Unix seconds, NaN and the infinities as they are."""

histograms = Table(
    "histograms",
    Base.metadata,
    Column("series_id", BigInteger, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("step", BigInteger, nullable=False),
    Column("at", Double, nullable=False),
    Column("cursor", BigInteger, nullable=False),
    Column("bins", ARRAY(BigInteger), nullable=False),
    Column("counts", ARRAY(BigInteger), nullable=False),
    Index("ix_histograms_series_id_attempt_step", "series_id", "attempt", "step"),
)
"""Exact integer counts: ``counts[i]`` observations of the value ``bins[i]``."""
