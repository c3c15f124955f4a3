"""From here on `schema_revision` counts; version 0.1.0 refuses a `schema_version` that is not 1."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Make a database that version 0.1.0 refuses as a newer one."""
    version = sa.table("schema_version", sa.column("one", sa.Integer), sa.column("version", sa.Integer))
    op.execute(version.delete())
    op.execute(version.insert().values(one=1, version=2))
