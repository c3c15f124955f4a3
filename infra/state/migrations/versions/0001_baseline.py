"""The tables of version 0.1.0, which wrote `schema_version` 1 and no revision."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_NAME = sa.String(255)


def upgrade() -> None:
    """Create every table."""
    op.create_table(
        "schema_version",
        sa.Column("one", sa.Integer, sa.CheckConstraint("one = 1"), primary_key=True, autoincrement=False),
        sa.Column("version", sa.Integer, nullable=False),
    )
    op.create_table(
        "jobs",
        sa.Column("job_id", _NAME, primary_key=True),
        sa.Column("spec", sa.JSON, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("created_at_s", sa.Double, nullable=False),
        sa.Column("ended_at_s", sa.Double),
        sa.Column("controller_address", sa.Text),
        sa.Column("result", sa.JSON),
        sa.Column("failure", sa.Text),
    )
    op.create_table(
        "journal",
        sa.Column("job_id", _NAME, sa.ForeignKey("jobs.job_id"), nullable=False),
        sa.Column("seq", sa.Integer, nullable=False),
        sa.Column("at_s", sa.Double, nullable=False),
        sa.Column("known_at_s", sa.Double, nullable=False),
        sa.Column("direction", sa.String(8), sa.CheckConstraint("direction IN ('event', 'order')"), nullable=False),
        sa.Column("record", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("job_id", "seq"),
    )
    op.create_table(
        "intents",
        sa.Column("order_id", _NAME, primary_key=True),
        sa.Column("job_id", _NAME, sa.ForeignKey("jobs.job_id"), nullable=False, index=True),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("token", sa.String(64), unique=True),
        sa.Column("params", sa.JSON, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("planned_at_s", sa.Double, nullable=False),
        sa.Column("outcome", sa.JSON),
        sa.Column("settled_at_s", sa.Double),
    )
    op.create_table(
        "allocations",
        sa.Column("allocation_id", _NAME, primary_key=True),
        sa.Column("job_id", _NAME, sa.ForeignKey("jobs.job_id"), nullable=False, index=True),
        sa.Column("tier", sa.String(16), nullable=False),
        sa.Column("instance_type", sa.String(64), nullable=False),
        sa.Column("zone", sa.String(64), nullable=False),
        sa.Column("count", sa.Integer, sa.CheckConstraint("count > 0"), nullable=False),
        sa.Column("bid_micros", sa.BigInteger),
        sa.Column("launched_at_s", sa.BigInteger, nullable=False),
        sa.Column("instance_ids", sa.JSON, nullable=False),
        sa.Column("instance_ends", sa.JSON, nullable=False),
        sa.Column("ended_at_s", sa.BigInteger),
        sa.Column("end_cause", sa.String(16)),
        sa.Column("order_id", _NAME, nullable=False, unique=True),
        sa.CheckConstraint("(ended_at_s IS NULL) = (end_cause IS NULL)", name="an_end_has_a_cause"),
    )
    op.create_table(
        "ledger",
        sa.Column("entry_id", _NAME, primary_key=True),
        sa.Column("job_id", _NAME, sa.ForeignKey("jobs.job_id"), nullable=False, index=True),
        sa.Column("allocation_id", _NAME, sa.ForeignKey("allocations.allocation_id"), nullable=False),
        sa.Column("hour_index", sa.Integer, nullable=False),
        sa.Column("kind", sa.String(8), nullable=False),
        sa.Column("at_s", sa.BigInteger, nullable=False),
        sa.Column("price_micros", sa.BigInteger, nullable=False),
        sa.Column("amount_micros", sa.BigInteger, nullable=False),
        sa.Column("note", sa.Text, nullable=False),
        sa.CheckConstraint(
            "(kind = 'charge' AND amount_micros >= 0) OR (kind = 'refund' AND amount_micros <= 0)",
            name="signs_of_money",
        ),
    )
    op.create_table(
        "claims",
        sa.Column("name", _NAME, primary_key=True),
        sa.Column("holder", _NAME, nullable=False),
        sa.Column("expires_at_s", sa.Double, nullable=False),
    )
    op.create_table(
        "observations",
        sa.Column("observation_id", sa.Integer, primary_key=True),
        sa.Column("job_id", _NAME, sa.ForeignKey("jobs.job_id"), nullable=False, index=True),
        sa.Column("at_s", sa.Double, nullable=False),
        sa.Column("kind", sa.String(64), nullable=False),
        sa.Column("payload", sa.JSON, nullable=False),
    )
