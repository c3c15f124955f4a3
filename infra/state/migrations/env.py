"""Run Alembic's migrations on the connection of `infra.state.upgrades`, in its transaction."""

from alembic import context

from proteus_spot.infra.state import schema

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=schema.metadata,
    version_table=schema.schema_revision.name,
    render_as_batch=True,
)
context.run_migrations()
