"""Checkpoints that a run can go on from: attempts that resume, restarts, forks."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0008"
down_revision: str | None = "0007"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

NEW = (
    ("attempts", "marker_is_transient", sa.Boolean(), "false"),
    ("attempts", "last_step", sa.BigInteger(), "0"),
    ("attempts", "is_restart", sa.Boolean(), "false"),
    ("attempts", "candidates", postgresql.JSONB(), "'[]'"),
    ("attempts", "owns_candidates", sa.Boolean(), "true"),
    ("attempts", "takes_newest", sa.Boolean(), "true"),
    ("checkpoints", "is_best", sa.Boolean(), "false"),
)
"""Columns that must have a value, with that of the rows that are there."""
OPTIONAL = (
    ("attempts", "resumed_step", sa.BigInteger()),
    ("checkpoints", "num_bytes", sa.BigInteger()),
    ("runs", "not_before", sa.DateTime(timezone=True)),
    ("runs", "parent_step", sa.BigInteger()),
)
PARENT = "fk_runs_parent_run_id_runs"


def upgrade() -> None:
    for table, name, kind, before in NEW:
        column = sa.Column(name, kind, nullable=False, server_default=sa.text(before))
        op.add_column(table, column)
        op.alter_column(table, name, server_default=None)
    for table, name, optional_kind in OPTIONAL:
        op.add_column(table, sa.Column(name, optional_kind, nullable=True))
    op.add_column("runs", sa.Column("parent_run_id", sa.Text(), nullable=True))
    op.create_foreign_key(PARENT, "runs", "runs", ["parent_run_id"], ["id"], ondelete="SET NULL")


def downgrade() -> None:
    op.drop_constraint(PARENT, "runs", type_="foreignkey")
    op.drop_column("runs", "parent_run_id")
    for table, name, _ in reversed(OPTIONAL):
        op.drop_column(table, name)
    for table, name, _, _ in reversed(NEW):
        op.drop_column(table, name)
