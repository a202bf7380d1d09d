"""What people change of runs that go on, and since which version it holds."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0010"
down_revision: str | None = "0009"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

COLUMNS = (
    ("runs", "is_paused", sa.Boolean(), "false"),
    ("runs", "num_changes", sa.BigInteger(), "0"),
    ("attempts", "num_changes", sa.BigInteger(), "0"),
)


def upgrade() -> None:
    for table, name, kind, default in COLUMNS:
        op.add_column(table, sa.Column(name, kind, nullable=False, server_default=default))
        op.alter_column(table, name, server_default=None)
    op.create_table(
        "run_changes",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("requested_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("requested_by", sa.Text(), nullable=False),
        sa.Column("before", postgresql.JSONB(), nullable=False),
        sa.Column("after", postgresql.JSONB(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=True),
        sa.Column("version", sa.BigInteger(), nullable=True),
        sa.Column("applied_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name="fk_run_changes_run_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run_id", "number", name="pk_run_changes"),
    )


def downgrade() -> None:
    op.drop_table("run_changes")
    for table, name, _, _ in reversed(COLUMNS):
        op.drop_column(table, name)
