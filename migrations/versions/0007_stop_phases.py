"""What people want of a run, and how far its end is: heard, saved, marked, gone.

Attempts that had ended before are taken for gone: nobody looks for their processes any more.
"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0007"
down_revision: str | None = "0006"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

TIME = sa.DateTime(timezone=True)
OPTIONAL: dict[str, sa.types.TypeEngine[object]] = {
    "heartbeat_boot_id": sa.Text(),
    "activity": sa.Text(),
    "idle_seconds": sa.Double(),
    "marker": sa.Text(),
    "marker_reason": sa.Text(),
    "marker_at": TIME,
    "stop_heard_at": TIME,
    "stop_saved_at": TIME,
    "num_processes": sa.BigInteger(),
    "gone_at": TIME,
}


def upgrade() -> None:
    op.add_column("runs", sa.Column("desired", sa.Text(), nullable=False, server_default="run"))
    op.alter_column("runs", "desired", server_default=None)
    op.execute("UPDATE runs SET desired = 'stop' WHERE stop_requested_at IS NOT NULL")
    op.add_column(
        "attempts", sa.Column("trajectories", sa.BigInteger(), nullable=False, server_default="0")
    )
    op.alter_column("attempts", "trajectories", server_default=None)
    for name, kind in OPTIONAL.items():
        op.add_column("attempts", sa.Column(name, kind, nullable=True))
    op.execute(
        "UPDATE attempts SET gone_at = ended_at WHERE status IN ('finished', 'stopped', 'failed')"
    )


def downgrade() -> None:
    for name in (*OPTIONAL, "trajectories"):
        op.drop_column("attempts", name)
    op.drop_column("runs", "desired")
