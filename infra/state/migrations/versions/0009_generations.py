"""The generation of a database, and the marks that it leaves in the fences of its jobs."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Add the column, and the table of the marks."""
    op.add_column("identity", sa.Column("generation", sa.String(64), nullable=False, server_default="000000"))
    op.create_table(
        "fences",
        sa.Column("job_id", sa.String(255), sa.ForeignKey("jobs.job_id"), primary_key=True),
        sa.Column("mark", sa.String(64)),
        sa.Column("next_mark", sa.String(64), nullable=False),
    )
