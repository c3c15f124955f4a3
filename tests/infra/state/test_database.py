"""Opening the state database, and its refusal in one line."""

import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import pytest
from sqlalchemy.dialects import postgresql
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.schema import CreateTable

from proteus_spot.infra.errors import InputError
from proteus_spot.infra.state import schema
from proteus_spot.infra.state.records import StoreError
from proteus_spot.infra.state.store import Store
from tests.support.timeouts import PATIENCE


def test_many_threads_open_a_new_database_at_once(url: str) -> None:
    gate = threading.Barrier(6)

    def enter(name: int) -> None:
        gate.wait(10 * PATIENCE)
        with Store.open(url) as store:
            store.jobs.create_job(f"job-{name}", {}, 1.0)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(enter, range(6)))
    with Store.open(url) as store:
        assert len(store.jobs.list_jobs()) == 6


def bad_urls(folder: Path) -> dict[str, str]:
    (folder / "text.db").write_text("this is not a database, it only is long enough to be looked at" * 20)
    (folder / "file").write_text("")
    Store.open(f"sqlite:///{folder}/ro.db").close()
    with sqlite3.connect(folder / "strange.db") as strange:
        strange.execute("CREATE TABLE jobs (x)")
    strange.close()
    return {
        "nonsense": "not a database URL",
        "": "not a database URL",
        "mysql://user:word@host/db": "mysql is not supported",
        "postgresql+nosuch://host/db": "not a driver",
        "sqlite://": "must outlive a process",
        "sqlite:///:memory:": "must outlive a process",
        f"sqlite:///{folder}": "is a directory",
        f"sqlite:///{folder}/file/state.db": "cannot make its folder",
        f"sqlite:///{folder}/text.db": "not a database",
        f"sqlite:///file:{folder}/ro.db?mode=ro&uri=true": "readonly",
        f"sqlite:///{folder}/strange.db": "another program's table 'jobs'",
    }


@pytest.mark.parametrize("number", range(11))
def test_a_bad_database_is_told_in_one_line(tmp_path: Path, number: int) -> None:
    url, reason = list(bad_urls(tmp_path).items())[number]
    with pytest.raises(InputError, match=reason) as caught:
        Store.open(url)
    assert "\n" not in str(caught.value)
    assert "word" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_database_that_fails_later_is_told_in_one_line(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path}/state.db") as store:
        with sqlite3.connect(tmp_path / "state.db") as raw:
            raw.execute("DROP TABLE observations")
        raw.close()
        store.jobs.create_job("job-1", {}, 1.0)
        with pytest.raises(StoreError, match=r"state database sqlite:.*no such table: observations"):
            store.jobs.observations("job-1")


def test_the_schema_is_understood_by_postgresql() -> None:
    for table in schema.metadata.sorted_tables:
        assert "CREATE TABLE" in str(CreateTable(table).compile(dialect=postgresql.dialect()))


class Interruption(BaseException):
    """An exception that a signal raises."""


@pytest.mark.parametrize(("error", "told"), [(Interruption, False), (RuntimeError, True)])
def test_an_interrupt_of_a_closing_connection_is_left_to_the_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: type, told: bool
) -> None:
    def close(_self: DefaultDialect, _connection: object) -> None:
        raise error

    store = Store.open(f"sqlite:///{tmp_path}/state.db")
    store.jobs.list_jobs()
    with monkeypatch.context() as patched:
        patched.setattr(DefaultDialect, "do_close", close)
        with nullcontext() if told else pytest.raises(error):  # the pool raises on what is not a fault
            store.close()
    assert bool(caplog.records) is told
