"""The queue's order, the nodes of the cluster, and the leases on their slots."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0006"
down_revision: str | None = "0005"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

UNHEARD = "status = 'starting' AND submitted_at IS NULL AND heartbeat_at IS NULL"


def upgrade() -> None:
    op.add_column(
        "runs", sa.Column("priority", sa.Text(), nullable=False, server_default=sa.text("'normal'"))
    )
    op.alter_column("runs", "priority", server_default=None)
    op.add_column("runs", sa.Column("queue_position", sa.BigInteger(), nullable=True))
    op.add_column("runs", sa.Column("queue_number", sa.BigInteger(), sa.Identity(), nullable=False))
    # The numbers that the rows were just given follow their place on disk.
    op.execute(
        "UPDATE runs SET queue_number = made.n FROM (SELECT id, row_number() OVER "
        "(ORDER BY created_at, id) AS n FROM runs) AS made WHERE made.id = runs.id"
    )
    op.create_table(
        "cluster_nodes",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("cpus", sa.Double(), nullable=False),
        sa.Column("gpus", sa.Double(), nullable=False),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_cluster_nodes")),
    )
    op.create_table(
        "leases",
        sa.Column("id", sa.BigInteger(), sa.Identity(), nullable=False),
        sa.Column("attempt_id", sa.Text(), nullable=False),
        sa.Column("process", sa.Text(), nullable=False),
        sa.Column("node_id", sa.Text(), nullable=False),
        sa.Column("cpus", sa.Double(), nullable=False),
        sa.Column("gpus", sa.Double(), nullable=False),
        sa.Column("fencing_token", sa.BigInteger(), nullable=False),
        sa.Column("taken_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("released_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["attempt_id"],
            ["attempts.id"],
            name=op.f("fk_leases_attempt_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_leases")),
    )
    op.create_index("ix_leases_attempt_id", "leases", ["attempt_id"])
    op.create_index(
        "ix_leases_held", "leases", ["id"], postgresql_where=sa.text("released_at IS NULL")
    )
    # Nothing starts without a lease: what was about to be submitted takes its place in the queue.
    op.execute(f"DELETE FROM outbox WHERE attempt_id IN (SELECT id FROM attempts WHERE {UNHEARD})")
    op.execute(
        "UPDATE runs SET status = 'queued', reason = '' WHERE id IN "
        f"(SELECT run_id FROM attempts WHERE {UNHEARD})"
    )
    op.execute(f"UPDATE attempts SET status = 'queued', reason = '' WHERE {UNHEARD}")


def downgrade() -> None:
    op.drop_table("leases")
    op.drop_table("cluster_nodes")
    op.drop_column("runs", "queue_number")
    op.drop_column("runs", "queue_position")
    op.drop_column("runs", "priority")
