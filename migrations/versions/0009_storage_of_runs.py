"""What each run holds, what retention removed of it, and what its driver dropped."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0009"
down_revision: str | None = "0008"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

# Bytes of a row beside its text, as in backend/storage/accounting.py at this version.
COUNTED = """
INSERT INTO run_storage (run_id, kind, num_held, held_bytes, num_expired, num_dropped)
SELECT run_id, 'log_lines', count(*), sum(80 + octet_length(line)), 0, 0
FROM log_lines GROUP BY run_id
UNION ALL
SELECT run_id, 'trajectories', count(*), sum(300 + octet_length(turns::text)), 0, 0
FROM trajectories GROUP BY run_id
UNION ALL
SELECT run_id, 'points', sum(count), sum(count) * 110, 0, 0
FROM metric_latest JOIN metric_series ON metric_series.id = series_id GROUP BY run_id
UNION ALL
SELECT run_id, 'histograms', count(*), sum(150 + 16 * coalesce(cardinality(bins), 0)), 0, 0
FROM histograms JOIN metric_series ON metric_series.id = series_id GROUP BY run_id
"""


def upgrade() -> None:
    op.create_table(
        "run_storage",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("num_held", sa.BigInteger(), nullable=False),
        sa.Column("held_bytes", sa.BigInteger(), nullable=False),
        sa.Column("num_expired", sa.BigInteger(), nullable=False),
        sa.Column("num_dropped", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name="fk_run_storage_run_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run_id", "kind", name="pk_run_storage"),
        postgresql_with={"fillfactor": "50"},
    )
    op.execute(COUNTED)


def downgrade() -> None:
    op.drop_table("run_storage")
