"""What others than our own requests and machines say of markets."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create the table of the facts of markets."""
    op.create_table(
        "market_facts",
        sa.Column("fact_id", sa.Integer, primary_key=True),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("instance_type", sa.String(64), nullable=False),
        sa.Column("zone", sa.String(64), nullable=False),
        sa.Column("at_s", sa.BigInteger, nullable=False),
        sa.Column("payload", sa.JSON, nullable=False),
        sa.Index("ix_market_facts_newest", "kind", "instance_type", "zone", "at_s"),
    )
