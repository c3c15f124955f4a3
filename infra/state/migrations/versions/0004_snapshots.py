"""Snapshots of the engines."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add the table of snapshots."""
    op.create_table(
        "snapshots",
        sa.Column("job_id", sa.String(255), sa.ForeignKey("jobs.job_id"), primary_key=True),
        sa.Column("seq", sa.Integer, nullable=False),
        sa.Column("program", sa.String(64), nullable=False),
        sa.Column("opened_seq", sa.Integer, nullable=False),
        sa.Column("engine", sa.JSON, nullable=False),
    )
