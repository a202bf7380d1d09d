"""How many more tries at a password an account and an address have."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0004"
down_revision: str | None = "0003"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.create_table(
        "sign_in_allowances",
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("whole_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("subject", name=op.f("pk_sign_in_allowances")),
    )


def downgrade() -> None:
    op.drop_table("sign_in_allowances")
