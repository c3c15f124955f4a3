"""The request of an order as it is sent, since when its outcome is unknown, and the last error of the market."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Add the columns to the intents."""
    op.add_column("intents", sa.Column("request", sa.JSON))
    op.add_column("intents", sa.Column("doubtful_since_s", sa.Double))
    op.add_column("intents", sa.Column("answer", sa.JSON))
