"""Open the state database: SQLite in a file, or PostgreSQL if several machines share it.

This module and `upgrades` hold every difference of the two. A SQLite file is in write-ahead mode, so that readers never
wait; a write takes the lock when it begins, so that what it read cannot change before it writes; and every commit is on
disk when it returns, because a purchase must survive a power cut.
"""

import errno
import json
import logging
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import (
    URL,
    ColumnElement,
    Connection,
    Double,
    Engine,
    Table,
    cast,
    create_engine,
    event,
    extract,
    func,
    make_url,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlalchemy.pool import QueuePool
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random

from proteus_spot.infra.errors import InputError
from proteus_spot.infra.extras import how_to_install
from proteus_spot.infra.masking import masked
from proteus_spot.infra.state.records import StoreError
from proteus_spot.infra.state.upgrades import create_or_upgrade, current_revision, ensure_owner

#: Maximum seconds that a write waits for another one to end.
BUSY_S = 30.0
_WRITES = "proteus_writes"
_CHANGES_TABLES = "proteus_changes_tables"
#: Key of PostgreSQL's lock for creating or upgrading the schema: arbitrary, the same in every version of the program.
_SCHEMA_LOCK = 0x50726F74


def open_engine(text: str) -> Engine:
    """Return an engine on a writable database of this program; the schema is created if absent, or upgraded.

    Raises
    ------
    InputError
        One line that names the database (never its password) and what is wrong.
    """
    url = _check_url(text)
    shown = _shown(url)
    try:
        engine = _create(url)
    except ModuleNotFoundError as error:
        fix = how_to_install("postgres") if error.name == "psycopg" else "write postgresql+psycopg://HOST/NAME"
        raise InputError(f"{shown}: needs {error.name}, which is not installed: {fix}") from None
    try:
        _ensure_schema(engine, shown)
        if url.get_backend_name() == "sqlite":
            _use_write_ahead_log(engine)  # only now that the file is known to be ours: the mode is written into it
    except (DBAPIError, sqlite3.Error) as error:
        engine.dispose()
        raise InputError(f"{shown}: {_first_line(error)}; PROTEUS_DATABASE_URL names no database of ours") from None
    except InputError:
        engine.dispose()
        raise
    return engine


def stored_revision(text: str) -> str | None:
    """Return the revision of a database's schema, without creating or upgrading it; None: it has no tables of ours.

    Raises
    ------
    InputError
        One line that names the database (never its password) and what is wrong.
    """
    url = _check_url(text)
    path = None if url.get_backend_name() != "sqlite" else Path(str(url.database))
    if path is not None and not path.exists():
        if not os.access(path.parent, os.W_OK):
            raise InputError(f"{_shown(url)}: its folder cannot be written; PROTEUS_DATABASE_URL names the file")
        return None
    try:
        engine = _create(url)
    except ModuleNotFoundError as error:
        raise InputError(f"{_shown(url)}: the driver {error.name} is not installed; install it") from None
    try:
        with engine.connect() as connection:
            return current_revision(connection)
    except (DBAPIError, sqlite3.Error) as error:
        raise InputError(
            f"{_shown(url)}: {_first_line(error)}; PROTEUS_DATABASE_URL names no database of ours"
        ) from None
    finally:
        engine.dispose()


@contextmanager
def transaction(engine: Engine, *, writes: bool) -> Iterator[Connection]:
    """Yield a connection in a new transaction; it is committed at the end, rolled back on any exception.

    Raises
    ------
    StoreError
        Where the database fails, or refuses what breaks one of its constraints.
    InputError
        Where a name that was asked for is not text that can be encoded.
    """
    try:
        with engine.connect() as connection, connection.execution_options(**{_WRITES: writes}).begin():
            yield connection
    except UnicodeEncodeError as error:
        raise InputError(
            f"{str(error.object)[:60]!r}: is not UTF-8 text, which no database holds; fix the name"
        ) from None
    except DBAPIError as error:
        raise StoreError(f"{_shown(engine.url)}: {_first_line(error)}") from error


def insert_or(connection: Connection, table: Table) -> "sqlite.Insert | postgresql.Insert":
    """Return an insert into `table` with `on_conflict_do_…`, in the dialect of `connection`."""
    return sqlite.insert(table) if connection.dialect.name == "sqlite" else postgresql.insert(table)


def now_s(connection: Connection) -> ColumnElement[float]:
    """Return the SQL expression of the database's clock: real seconds since the Unix epoch."""
    if connection.dialect.name == "sqlite":
        return (func.julianday("now", type_=Double) - 2440587.5) * 86400.0
    return cast(extract("epoch", func.clock_timestamp()), Double)


def _shown(url: URL) -> str:
    return masked(f"state database {url.render_as_string(hide_password=True)}")


def _check_url(text: str) -> URL:
    try:
        url = make_url(text)
        backend = url.get_backend_name()
    except (ArgumentError, ValueError):
        raise InputError(
            "PROTEUS_DATABASE_URL: not a database URL; want sqlite:///PATH or postgresql+psycopg://HOST/NAME"
        ) from None
    if backend not in ("sqlite", "postgresql"):
        raise InputError(f"PROTEUS_DATABASE_URL: {backend} is not supported; want sqlite:///PATH or postgresql+psycopg")
    if backend != "sqlite":
        return url
    if url.database in (None, "", ":memory:"):
        raise InputError("PROTEUS_DATABASE_URL: the state must outlive a process; give a file, as in sqlite:///PATH")
    if not str(url.database).startswith("file:"):
        _check_path(Path(str(url.database)))
    return url


def _check_path(path: Path) -> None:
    if path.is_dir():
        raise InputError(f"state database {path}: is a directory; PROTEUS_DATABASE_URL must name a file in it")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"state database {path}: cannot make its folder: {error.strerror}") from None


def _create(url: URL) -> Engine:
    to_json = partial(json.dumps, allow_nan=False, separators=(",", ":"))
    logging.getLogger(f"{QueuePool.__module__}.{QueuePool.__name__}").addFilter(_is_fault)
    try:
        if url.get_backend_name() != "sqlite":
            return create_engine(url, json_serializer=to_json, hide_parameters=True, pool_pre_ping=True)
        engine = create_engine(url, json_serializer=to_json, hide_parameters=True, connect_args={"timeout": BUSY_S})
    except NoSuchModuleError:
        raise InputError(f"PROTEUS_DATABASE_URL: {url.drivername} is not a driver that SQLAlchemy knows") from None
    event.listen(engine, "connect", _configure_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _is_fault(record: logging.LogRecord) -> bool:
    """Return whether a log record of the pool is about a fault; an interrupt is raised again and reported elsewhere."""
    return not record.exc_info or record.exc_info[1] is None or isinstance(record.exc_info[1], Exception)


def _configure_sqlite(raw: sqlite3.Connection, _record: Any) -> None:
    raw.isolation_level = None  # the driver would begin late, and only before some statements; _begin_sqlite begins
    for pragma in (f"busy_timeout={int(BUSY_S * 1000)}", "foreign_keys=ON", "synchronous=FULL"):
        raw.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    options = connection.get_execution_options()
    if options.get(_CHANGES_TABLES, False):
        connection.exec_driver_sql("PRAGMA foreign_keys=OFF")  # has no effect within a transaction
    writes = options.get(_WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _use_write_ahead_log(engine: Engine) -> None:
    # SQLite does not wait for the lock when two processes switch the mode at once, so the loser retries.
    for attempt in Retrying(
        stop=stop_after_delay(BUSY_S),
        wait=wait_random(0.005, 0.05),
        retry=retry_if_exception(_is_locked),
        reraise=True,
    ):
        with attempt:
            raw = engine.raw_connection()
            try:
                raw.cursor().execute("PRAGMA journal_mode=WAL")
            finally:
                raw.close()


def _ensure_schema(engine: Engine, shown: str) -> None:
    with engine.connect() as connection:
        if connection.dialect.name == "sqlite":
            connection.detach()  # no other transaction may use a connection without foreign keys
        with connection.execution_options(**{_WRITES: True, _CHANGES_TABLES: True}).begin():
            if connection.dialect.name == "postgresql":
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_SCHEMA_LOCK})")
            create_or_upgrade(connection, shown)
            ensure_owner(connection)


def _is_locked(error: BaseException) -> bool:
    return isinstance(error, sqlite3.OperationalError) and "locked" in str(error)


def _first_line(error: DBAPIError | sqlite3.Error) -> str:
    cause = error.orig if isinstance(error, DBAPIError) else error
    lines = str(cause).strip().splitlines()
    if getattr(cause, "sqlite_errorname", "") == "SQLITE_FULL":
        return os.strerror(errno.ENOSPC)
    return lines[0] if lines else type(cause).__name__
