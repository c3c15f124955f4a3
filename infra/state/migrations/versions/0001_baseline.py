"""Every table, as before the first change of one."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_NAME = sa.String(255)


def upgrade() -> None:
    """Create every table."""
    op.create_table(
        "identity",
        sa.Column("one", sa.Integer, sa.CheckConstraint("one = 1"), primary_key=True, autoincrement=False),
        sa.Column("owner_id", _NAME, nullable=False),
        sa.Column("account_id", sa.String(64)),
        sa.Column("region", sa.String(64)),
        sa.Column("generation", sa.String(64), nullable=False, server_default="000000"),
        sa.CheckConstraint("(account_id IS NULL) = (region IS NULL)", name="pinned_together"),
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
        sa.Column("stop_why", sa.Text),
        sa.Column("stop_by", sa.String(64)),
        sa.Column("stop_at_s", sa.Double),
        sa.Column("stop_now", sa.Boolean),
        sa.Column("kind", sa.String(8), nullable=False, server_default="job"),
    )
    op.create_table(
        "fences",
        sa.Column("job_id", _NAME, sa.ForeignKey("jobs.job_id"), primary_key=True),
        sa.Column("mark", sa.String(64)),
        sa.Column("next_mark", sa.String(64), nullable=False),
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
        "snapshots",
        sa.Column("job_id", _NAME, sa.ForeignKey("jobs.job_id"), primary_key=True),
        sa.Column("seq", sa.Integer, nullable=False),
        sa.Column("program", sa.String(64), nullable=False),
        sa.Column("opened_seq", sa.Integer, nullable=False),
        sa.Column("engine", sa.JSON, nullable=False),
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
        sa.Column("request", sa.JSON),
        sa.Column("doubtful_since_s", sa.Double),
        sa.Column("answer", sa.JSON),
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
        sa.Column("job_id", _NAME, sa.ForeignKey("jobs.job_id"), nullable=False),
        sa.Column("at_s", sa.Double, nullable=False),
        sa.Column("kind", sa.String(64), nullable=False),
        sa.Column("payload", sa.JSON, nullable=False),
    )
    op.create_index("ix_observations_newest", "observations", ["job_id", "kind", "observation_id"])
