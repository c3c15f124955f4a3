"""The owner, account and region of a database's machines; `infra.state.owner_id` writes the owner."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Create the table of the identity."""
    op.create_table(
        "identity",
        sa.Column("one", sa.Integer, sa.CheckConstraint("one = 1"), primary_key=True, autoincrement=False),
        sa.Column("owner_id", sa.String(255), nullable=False),
        sa.Column("account_id", sa.String(64)),
        sa.Column("region", sa.String(64)),
        sa.CheckConstraint("(account_id IS NULL) = (region IS NULL)", name="pinned_together"),
    )
