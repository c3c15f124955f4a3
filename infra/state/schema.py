"""The tables of the state database, for SQLite and PostgreSQL alike.

A change of a table is made here and as a new revision in `infra.state.migrations.versions`.
"""

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
)

metadata = MetaData()

#: None becomes SQL NULL, not the JSON value null.
_JSON = JSON(none_as_null=True)
#: Names of jobs, orders, allocations, tokens.
_NAME = String(255)

#: Alembic's own table.
schema_revision = Table(
    "schema_revision",
    metadata,
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="schema_revision_pkc"),
)

identity = Table(
    "identity",
    metadata,
    Column("one", Integer, CheckConstraint("one = 1"), primary_key=True, autoincrement=False),
    Column("owner_id", _NAME, nullable=False),
    Column("account_id", String(64)),
    Column("region", String(64)),
    Column("generation", String(64), nullable=False, server_default="000000"),
    CheckConstraint("(account_id IS NULL) = (region IS NULL)", name="pinned_together"),
)

jobs = Table(
    "jobs",
    metadata,
    Column("job_id", _NAME, primary_key=True),
    Column("spec", _JSON, nullable=False),
    Column("state", String(16), nullable=False),
    Column("created_at_s", Double, nullable=False),
    Column("ended_at_s", Double),
    Column("controller_address", Text),
    Column("result", _JSON),
    Column("failure", Text),
    Column("stop_why", Text),
    Column("stop_by", String(64)),
    Column("stop_at_s", Double),
    Column("stop_now", Boolean),
    Column("kind", String(8), nullable=False, server_default="job"),
)

fences = Table(
    "fences",
    metadata,
    Column("job_id", ForeignKey("jobs.job_id"), primary_key=True),
    Column("mark", String(64)),
    Column("next_mark", String(64), nullable=False),
)

journal = Table(
    "journal",
    metadata,
    Column("job_id", ForeignKey("jobs.job_id"), nullable=False),
    Column("seq", Integer, nullable=False),
    Column("at_s", Double, nullable=False),
    Column("known_at_s", Double, nullable=False),
    Column("direction", String(8), CheckConstraint("direction IN ('event', 'order')"), nullable=False),
    Column("record", _JSON, nullable=False),
    PrimaryKeyConstraint("job_id", "seq"),
)

#: The newest snapshot of each job's engine, as after the first `seq` entries of its journal.
snapshots = Table(
    "snapshots",
    metadata,
    Column("job_id", ForeignKey("jobs.job_id"), primary_key=True),
    Column("seq", Integer, nullable=False),
    Column("program", String(64), nullable=False),
    Column("opened_seq", Integer, nullable=False),
    Column("engine", _JSON, nullable=False),
)

intents = Table(
    "intents",
    metadata,
    Column("order_id", _NAME, primary_key=True),
    Column("job_id", ForeignKey("jobs.job_id"), nullable=False, index=True),
    Column("kind", String(32), nullable=False),
    Column("token", String(64), unique=True),
    Column("params", _JSON, nullable=False),
    Column("state", String(16), nullable=False),
    Column("planned_at_s", Double, nullable=False),
    Column("outcome", _JSON),
    Column("settled_at_s", Double),
    Column("request", _JSON),
    Column("doubtful_since_s", Double),
    Column("answer", _JSON),
)

allocations = Table(
    "allocations",
    metadata,
    Column("allocation_id", _NAME, primary_key=True),
    Column("job_id", ForeignKey("jobs.job_id"), nullable=False, index=True),
    Column("tier", String(16), nullable=False),
    Column("instance_type", String(64), nullable=False),
    Column("zone", String(64), nullable=False),
    Column("count", Integer, CheckConstraint("count > 0"), nullable=False),
    Column("bid_micros", BigInteger),
    Column("launched_at_s", BigInteger, nullable=False),
    Column("instance_ids", _JSON, nullable=False),
    Column("instance_ends", _JSON, nullable=False),
    Column("ended_at_s", BigInteger),
    Column("end_cause", String(16)),
    Column("order_id", _NAME, nullable=False, unique=True),
    Column("bought_for", _NAME),
    Column("held_from_s", BigInteger),
    CheckConstraint("(ended_at_s IS NULL) = (end_cause IS NULL)", name="an_end_has_a_cause"),
)

ledger = Table(
    "ledger",
    metadata,
    Column("entry_id", _NAME, primary_key=True),
    Column("job_id", ForeignKey("jobs.job_id"), nullable=False, index=True),
    Column("allocation_id", ForeignKey("allocations.allocation_id"), nullable=False),
    Column("hour_index", Integer, nullable=False),
    Column("kind", String(8), nullable=False),
    Column("at_s", BigInteger, nullable=False),
    Column("price_micros", BigInteger, nullable=False),
    Column("amount_micros", BigInteger, nullable=False),
    Column("note", Text, nullable=False),
    CheckConstraint(
        "(kind = 'charge' AND amount_micros >= 0) OR (kind = 'refund' AND amount_micros <= 0)", name="signs_of_money"
    ),
)

claims = Table(
    "claims",
    metadata,
    Column("name", _NAME, primary_key=True),
    Column("holder", _NAME, nullable=False),
    Column("expires_at_s", Double, nullable=False),
)

observations = Table(
    "observations",
    metadata,
    Column("observation_id", Integer, primary_key=True),
    Column("job_id", ForeignKey("jobs.job_id"), nullable=False),
    Column("at_s", Double, nullable=False),
    Column("kind", String(64), nullable=False),
    Column("payload", _JSON, nullable=False),
    Index("ix_observations_newest", "job_id", "kind", "observation_id"),
)

#: What is known of markets from other sources than our own requests and machines; `kind` names the form of `payload`.
market_facts = Table(
    "market_facts",
    metadata,
    Column("fact_id", Integer, primary_key=True),
    Column("kind", String(32), nullable=False),
    Column("instance_type", String(64), nullable=False),
    Column("zone", String(64), nullable=False),
    Column("at_s", BigInteger, nullable=False),
    Column("payload", _JSON, nullable=False),
    Index("ix_market_facts_newest", "kind", "instance_type", "zone", "at_s"),
)
