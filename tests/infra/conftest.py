"""Fixtures of a state database: SQLite, and PostgreSQL if PROTEUS_TEST_POSTGRES_URL names an empty one."""

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
    """The URL of an empty state database, or of one to create."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/deep/er/state.db"
    assert POSTGRES is not None
    engine = create_engine(POSTGRES)
    schema.metadata.drop_all(engine)
    engine.dispose()
    return POSTGRES


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """A store at `url` with one job."""
    with Store.open(url) as opened:
        opened.create_job("job-1", SPEC, 10.5)
        yield opened
