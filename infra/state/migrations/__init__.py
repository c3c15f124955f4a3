"""Alembic's migrations of the state database.

env              runs the migrations in the transaction of the caller
versions/        the revisions
"""
