"""The schema of the state database: created or upgraded, under a lock, and refused in one line."""

import importlib
import logging
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, create_engine, delete, insert, inspect, select, update

from proteus_spot.infra.errors import InputError
from proteus_spot.infra.state import schema, upgrades
from proteus_spot.infra.state.database import transaction
from proteus_spot.infra.state.migrations import versions
from proteus_spot.infra.state.records import Entry
from proteus_spot.infra.state.store import Store
from tests.support.timeouts import PATIENCE

#: A revision that is not there yet: it makes a table that others refer to anew.
NEXT = """
from alembic import op
import sqlalchemy as sa

revision = "0004"
down_revision = "0003"


def upgrade():
    with op.batch_alter_table("jobs", recreate="always") as batch:
        batch.add_column(sa.Column("colour", sa.String(8), nullable=False, server_default="red"))
"""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A database of this program, which the program of a later revision is to open."""
    with Store.open(f"sqlite:///{tmp_path}/state.db") as store:
        store.jobs.create_job("old", {}, 1.0)
        store.journals.append("old", 0, [Entry("event", 1.0, 1.0, {"kind": "TickDue"})])
    with closing(sqlite3.connect(tmp_path / "state.db")) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")  # all of it in one file, for comparisons
    later = tmp_path / "a folder: of revisions"
    shutil.copytree(upgrades._VERSIONS, later, ignore=shutil.ignore_patterns("__pycache__"))
    (later / "0004_colours.py").write_text(NEXT)
    monkeypatch.setattr(upgrades, "_VERSIONS", later)
    upgrades.revisions.cache_clear()
    yield tmp_path / "state.db"
    upgrades.revisions.cache_clear()


@pytest.fixture
def bare(url: str, tmp_path: Path) -> Iterator[Engine]:
    """An engine on an empty database, without a store."""
    (tmp_path / "deep" / "er").mkdir(parents=True)
    engine = create_engine(url)
    yield engine
    engine.dispose()


def described(engine: Engine) -> dict[str, Any]:
    """Return tables, columns, keys, indexes and constraints, whatever the order in which they were made."""

    def plain(items: Any) -> list[Any]:
        return sorted(
            str(sorted((key, str(value)) for key, value in item.items() if key != "comment")) for item in items
        )

    found = inspect(engine)
    return {
        table: (
            plain(found.get_columns(table)),
            sorted(found.get_pk_constraint(table)["constrained_columns"]),
            plain(found.get_foreign_keys(table)),
            plain(found.get_indexes(table)),
            plain(found.get_unique_constraints(table)),
            plain(found.get_check_constraints(table)),
        )
        for table in found.get_table_names()
    }


def test_a_new_database_and_one_that_ran_every_revision_have_the_same_schema(
    bare: Engine, url: str, tmp_path: Path
) -> None:
    with bare.begin() as connection:
        upgrades._upgrade(connection)
        revision = connection.scalar(select(schema.schema_revision.c.version_num))
    migrated = described(bare)
    assert set(migrated) == set(schema.metadata.tables)
    assert revision == upgrades.revisions()[-1]
    with bare.begin() as connection:
        schema.metadata.drop_all(connection)
    with Store.open(url) as store:
        assert described(store.database.engine) == migrated
        with transaction(store.database.engine, writes=False) as connection:
            assert connection.scalar(select(schema.schema_revision.c.version_num)) == revision


def test_revisions_are_numbered_without_a_gap_and_each_follows_the_one_before() -> None:
    assert versions.__file__ is not None
    stems = sorted(path.stem for path in Path(versions.__file__).parent.glob("[!_]*.py"))
    numbers = [stem.partition("_")[0] for stem in stems]
    assert numbers == [f"{number:04d}" for number in range(1, len(stems) + 1)] == list(upgrades.revisions())
    modules = [importlib.import_module(f"{versions.__name__}.{stem}") for stem in stems]
    assert [(module.revision, module.down_revision) for module in modules] == list(
        zip(numbers, [None, *numbers], strict=False)
    )


def test_a_database_of_an_earlier_revision_is_upgraded_and_a_copy_is_left(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, upgrades.__name__)
    before = path.read_bytes()
    with Store.open(f"sqlite:///{path}") as store:
        (job,) = store.jobs.list_jobs()
        assert (job.job_id, len(store.journals.entries("old"))) == ("old", 1)
        with transaction(store.database.engine, writes=False) as connection:
            assert connection.scalar(select(schema.schema_revision.c.version_num)) == "0004"
            assert connection.exec_driver_sql("SELECT colour FROM jobs").scalar() == "red"
            assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1
    copy = path.with_name("state.db.schema-0003")
    (line,) = [record.getMessage() for record in caplog.records if record.name == upgrades.__name__]
    assert f"from schema 0003 to 0004; a copy of it is {copy}" in line
    with sqlite3.connect(copy) as old, sqlite3.connect(":memory:") as written:
        written.deserialize(before)
        assert list(old.iterdump()) == list(written.iterdump())
    old.close()
    written.close()
    copy.unlink()
    Store.open(f"sqlite:///{path}").close()
    assert not copy.exists(), "it was upgraded once"


def test_threads_that_open_an_old_database_at_once_upgrade_it_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    upgraded: list[bool] = []
    upgrade = upgrades._upgrade
    monkeypatch.setattr(upgrades, "_upgrade", lambda connection: (upgraded.append(True), upgrade(connection)))
    gate = threading.Barrier(5)

    def enter(number: int) -> None:
        gate.wait(10 * PATIENCE)
        with Store.open(f"sqlite:///{path}") as store:
            store.jobs.create_job(f"job-{number}", {}, 1.0)

    with ThreadPoolExecutor(5) as pool:
        list(pool.map(enter, range(5)))
    assert upgraded == [True]


def test_an_upgrade_that_fails_leaves_the_database_as_it_was(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    upgrade = upgrades._upgrade

    def failing(connection: Connection) -> None:
        upgrade(connection)
        raise RuntimeError("the power fails")

    with sqlite3.connect(path) as connection:
        before = list(connection.iterdump())
        with monkeypatch.context() as patched:
            patched.setattr(upgrades, "_upgrade", failing)
            with pytest.raises(RuntimeError, match="the power fails"):
                Store.open(f"sqlite:///{path}")
        assert list(connection.iterdump()) == before
    connection.close()
    Store.open(f"sqlite:///{path}").close()


@pytest.mark.parametrize("revision", ["9999", "0000", None])
def test_a_database_of_an_unknown_revision_is_refused(store: Store, url: str, revision: str | None) -> None:
    with transaction(store.database.engine, writes=True) as connection:
        if revision is None:
            connection.execute(delete(schema.schema_revision))
        else:
            connection.execute(update(schema.schema_revision).values(version_num=revision))
    with pytest.raises(InputError, match=f"has schema {revision}, which this program does not know") as caught:
        Store.open(url)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("revision", ["", "0004"])
def test_a_database_from_before_the_first_revision_is_refused_and_what_to_do_is_said(
    bare: Engine, url: str, revision: str
) -> None:
    with bare.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE schema_version (one INTEGER PRIMARY KEY, version INTEGER NOT NULL)")
        connection.exec_driver_sql("CREATE TABLE jobs (job_id VARCHAR(255) PRIMARY KEY)")
        if revision:
            schema.schema_revision.create(connection)
            connection.execute(insert(schema.schema_revision).values(version_num=revision))
    before = described(bare)
    with pytest.raises(
        InputError, match=r"from before the first release.*move it away.*and a new one is made"
    ) as caught:
        Store.open(url)
    assert ("\n" in str(caught.value), caught.value.exit_code) == (False, 2)
    assert described(bare) == before


def test_a_read_only_old_database_is_refused(path: Path) -> None:
    before = path.read_bytes()
    with pytest.raises(InputError, match="readonly"):
        Store.open(f"sqlite:///file:{path}?mode=ro&uri=true")
    assert path.read_bytes() == before


def test_a_database_that_cannot_be_copied_is_not_upgraded(path: Path) -> None:
    path.with_name("state.db.schema-0003").mkdir()
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"cannot be copied to .*schema-0003 before its upgrade: Is a directory"):
        Store.open(f"sqlite:///{path}")
    assert path.read_bytes() == before
