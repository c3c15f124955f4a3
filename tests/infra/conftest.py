"""Fixtures of a state database: in SQLite, and on a PostgreSQL server of this machine."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from proteus_spot.infra.state.store import Store
from tests.support.journal_entries import SPEC
from tests.support.postgres import PostgresServer


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty state database, or of one to create."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/deep/er/state.db"
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    with server.database() as url:
        yield url


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """A store at `url` with one job."""
    with Store.open(url) as opened:
        opened.jobs.create_job("job-1", SPEC, 10.5)
        yield opened
