"""The state database: jobs, the journal, purchases, the ledger, facts of markets.

base             what the tables share: the database with its transaction, row helpers
charges/         the prices of charges, and the share of each machine in one
claims           `ClaimTable`: who works on what now
commitments      the maximum of a job's ledger
database         opens SQLite or PostgreSQL; transactions
identity         the owner, account and region of the machines of a database, and its generation
job_tables       `JobTables`: jobs and their observations
journal_tables   `JournalTables`: the journals of engines and their snapshots
ledger           computes the due lines of a job's ledger and adds those that are missing
migrations/      Alembic's migrations
market_tables    `MarketTables`: the facts of markets
purchase_tables  `PurchaseTables`: intents, allocations and the ledger
records          immutable record types and the legal changes of state
schema           the SQLAlchemy tables
store            `Store`: the tables of one database
upgrades         creates the schema or upgrades it
"""
