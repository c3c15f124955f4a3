"""Requests to stop a job: why, by what, when, and whether its machines end at once."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add the columns; a job that was stopping before has none of them."""
    op.add_column("jobs", sa.Column("stop_why", sa.Text))
    op.add_column("jobs", sa.Column("stop_by", sa.String(64)))
    op.add_column("jobs", sa.Column("stop_at_s", sa.Double))
    op.add_column("jobs", sa.Column("stop_now", sa.Boolean))
