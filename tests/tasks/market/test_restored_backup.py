"""Backup, loss and restore of database and bucket as docs/backup.md says; a database of the version before."""

import re
import shutil
import sqlite3
import subprocess
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import make_url

from proteus_spot.infra.errors import InputError
from proteus_spot.infra.state.database import stored_revision
from proteus_spot.infra.state.store import Store
from proteus_spot.infra.urls import sqlite_url
from tests.support.postgres import PostgresServer, binaries
from tests.support.task_runtime import TaskRuntime, spec

DOCS = Path(__file__).parents[3] / "docs"
#: Made by 0.1.0: a job with its reliable machine and a spot allocation, after two ticks.
BEFORE = Path(__file__).parents[2] / "data" / "state-0.1.0.sql"
TICK_S = 120


def living(here: TaskRuntime) -> set[str]:
    return {fact.instance_id for fact in here.market.log() if fact.alive}


def in_the_book(store: Store) -> set[str]:
    return {name for record in store.purchases.allocations("job", alive=True) for name in record.living_ids}


def adopt(here: TaskRuntime, url: str) -> None:
    """Go on with another database."""
    here.store.close()
    here.store = Store.open(url)
    settings = here.runtime.settings.model_copy(update={"database_url": url})
    here.runtime = replace(here.runtime, settings=settings, store=here.store)


def test_what_was_bought_since_the_backup_is_found_and_nothing_is_bought_twice(
    here: TaskRuntime, tmp_path: Path
) -> None:
    here.begin(spec())
    (said,) = re.findall(r'sqlite3 state.db "(VACUUM INTO .*?)"', (DOCS / "backup.md").read_text())
    backup = tmp_path / "backup"
    backup.mkdir()
    with closing(sqlite3.connect(tmp_path / "state.db")) as database:
        database.execute(said.replace("backup/", f"{backup}/"))
    shutil.copytree(tmp_path / "blobs", backup / "bucket")

    here.clock.at_s += TICK_S
    here.tick(spec())
    bought = living(here)
    assert len(bought) > 1, "spot machines were bought since the backup"
    spent = here.store.purchases.spent("job")

    here.store.close()
    for lost in tmp_path.glob("state.db*"):
        lost.unlink()
    shutil.rmtree(tmp_path / "blobs")
    shutil.copytree(backup / "bucket", tmp_path / "blobs")
    shutil.copy(backup / "state.db", tmp_path / "restored.db")
    adopt(here, sqlite_url(tmp_path / "restored.db"))
    assert in_the_book(here.store) < bought
    for _ in range(3):
        here.clock.at_s += TICK_S
        here.tick(spec())
    assert living(here) == bought == in_the_book(here.store)
    assert here.store.purchases.spent("job") >= spent


def test_so_are_they_with_postgresql(here: TaskRuntime, tmp_path: Path, postgres: PostgresServer) -> None:
    said = " ".join(re.findall(r"pg_(?:dump|restore) [^`\n]*", (DOCS / "backup.md").read_text()))
    assert (
        said == "pg_dump --format custom --file backup/state.dump pg_restore --clean --dbname proteus backup/state.dump"
    )
    folder = binaries()
    assert folder is not None
    dump, where = tmp_path / "state.dump", ["--host", str(postgres.folder), "--username", "proteus"]
    with postgres.database() as before, postgres.database() as after:
        adopt(here, before)
        here.begin(spec())
        name = make_url(before).database
        subprocess.run([folder / "pg_dump", "--format", "custom", "--file", dump, *where, name], check=True)
        here.clock.at_s += TICK_S
        here.tick(spec())
        bought = living(here)
        Store.open(after).close()  # `--clean` replaces what is there
        name = make_url(after).database
        subprocess.run([folder / "pg_restore", "--clean", "--dbname", name, *where, dump], check=True)
        adopt(here, after)
        assert in_the_book(here.store) < bought
        for _ in range(3):
            here.clock.at_s += TICK_S
            here.tick(spec())
        assert living(here) == bought == in_the_book(here.store)
        here.store.close()


def test_a_job_of_the_version_before_goes_on(here: TaskRuntime, tmp_path: Path) -> None:
    here.begin(spec())
    for _ in range(2):  # as in the database of before: so the market has the same machines
        here.clock.at_s += TICK_S
        here.tick(spec())
    database = tmp_path / "before.db"
    with closing(sqlite3.connect(database)) as connection:
        connection.executescript(BEFORE.read_text())
    assert stored_revision(sqlite_url(database)) == "0001"
    machines = living(here)
    adopt(here, sqlite_url(database))
    assert in_the_book(here.store) == machines
    spent = here.store.purchases.spent("job")
    here.clock.at_s += TICK_S
    here.tick(spec())
    assert living(here) == machines == in_the_book(here.store)
    assert here.store.purchases.spent("job") >= spent > 0


def test_a_database_of_a_newer_version_is_refused_before_it_is_touched(tmp_path: Path) -> None:
    database = tmp_path / "state.db"
    Store.open(sqlite_url(database)).close()
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("UPDATE schema_revision SET version_num = '9999'")
        connection.commit()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    before = database.read_bytes()
    with pytest.raises(InputError, match="does not know"):
        Store.open(sqlite_url(database))
    assert database.read_bytes() == before
