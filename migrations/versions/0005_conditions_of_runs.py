"""How an active run is, beside its status: unresponsive, lost, unknown to Ray."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0005"
down_revision: str | None = "0004"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.add_column(
        "runs", sa.Column("condition", sa.Text(), nullable=False, server_default=sa.text("''"))
    )
    op.alter_column("runs", "condition", server_default=None)
    op.add_column("runs", sa.Column("condition_since", sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    op.drop_column("runs", "condition_since")
    op.drop_column("runs", "condition")
