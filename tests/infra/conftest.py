"""A state database: SQLite always, and PostgreSQL too where PROTEUS_TEST_POSTGRES_URL names an empty one."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine

from infra.state import schema
from infra.state.store import Store
from tests.support.journal_entries import SPEC

POSTGRES = os.environ.get("PROTEUS_TEST_POSTGRES_URL")


@pytest.fixture(params=["sqlite", "postgresql"] if POSTGRES else ["sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where an empty state database is, or is to be."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/deep/er/state.db"
    assert POSTGRES is not None
    engine = create_engine(POSTGRES)
    schema.metadata.drop_all(engine)
    engine.dispose()
    return POSTGRES


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """The database at `url`, with one job in it."""
    with Store.open(url) as opened:
        opened.create_job("job-1", SPEC, 10.5)
        yield opened
