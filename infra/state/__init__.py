"""The state database: jobs, the journal, purchases, the ledger, facts of markets.

base             base class of the tables: engine, shared transaction, row helpers
charges/         the prices of charges, and the share of each machine in one
commitments      the maximum of a job's ledger
database         opens SQLite or PostgreSQL; transactions
identity         the owner, account and region of the machines of a database, and its generation
job_tables       methods on jobs and their observations
ledger           computes the due lines of a job's ledger and adds those that are missing
migrations/      Alembic's migrations
market_tables    methods on the facts of markets
purchase_tables  methods on intents, allocations and the ledger
records          immutable record types and the legal changes of state
schema           the SQLAlchemy tables
store            `Store`: all tables, the journal and claims behind one class
thinning         which observations of a job's progress are kept
upgrades         creates the schema or upgrades it
"""
