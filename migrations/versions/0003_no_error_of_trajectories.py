"""Trajectories without an error: an episode whose environment raises ends the run instead."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0003"
down_revision: str | None = "0002"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.drop_column("trajectories", "error")


def downgrade() -> None:
    op.add_column("trajectories", sa.Column("error", sa.Text(), nullable=True))
