"""The kind of a row of `jobs`: a training job or a sweep."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Add the column; every job so far is a training job."""
    op.add_column("jobs", sa.Column("kind", sa.String(8), nullable=False, server_default="job"))
