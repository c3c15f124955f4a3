"""Machines that a job took over from another: for which one they were bought, and since when they are this one's."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add the columns; allocations of before were bought for their own jobs."""
    op.add_column("allocations", sa.Column("bought_for", sa.String(255)))
    op.add_column("allocations", sa.Column("held_from_s", sa.BigInteger))
