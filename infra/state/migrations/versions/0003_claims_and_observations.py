"""Claims end by the database's clock, and observations are found by their kind."""

from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Give up claims whose end is market time; replace the index of observations."""
    op.execute("DELETE FROM claims")
    op.drop_index("ix_observations_job_id", "observations")
    op.create_index("ix_observations_newest", "observations", ["job_id", "kind", "observation_id"])
