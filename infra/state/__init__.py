"""The state database: jobs, the journal, purchases, the ledger.

base             what every table's methods share: an engine, perhaps a transaction, and how rows are read
charge_shares    whose a line of the ledger is: what of an hour's charge each machine of its allocation answers
for
database         opening the state database: SQLite in a file, or PostgreSQL where several machines share it
job_tables       the tables of jobs and of their progress
ledger           the ledger of a job, kept up with what the market charges
purchase_tables  the tables of money: what was ordered, what that bought, and what it cost
records          what the state database holds, as immutable values, and which changes of state are legal
schema           the tables of the state database, for SQLite and PostgreSQL alike
store            the state of every job: what the flows and tasks remember between two runs
"""
