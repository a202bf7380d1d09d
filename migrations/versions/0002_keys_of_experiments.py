"""Idempotency keys of experiments too."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0002"
down_revision: str | None = "0001"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

KEY = "fk_idempotency_keys_experiment_id"


def upgrade() -> None:
    op.alter_column("idempotency_keys", "run_id", nullable=True)
    op.add_column("idempotency_keys", sa.Column("experiment_id", sa.Text(), nullable=True))
    op.create_foreign_key(
        KEY,
        "idempotency_keys",
        "experiments",
        ["experiment_id"],
        ["id"],
        ondelete="CASCADE",
        initially="DEFERRED",
        deferrable=True,
    )


def downgrade() -> None:
    op.execute("DELETE FROM idempotency_keys WHERE run_id IS NULL")
    op.drop_constraint(KEY, "idempotency_keys", type_="foreignkey")
    op.drop_column("idempotency_keys", "experiment_id")
    op.alter_column("idempotency_keys", "run_id", nullable=False)
