"""What every table's methods share: an engine, perhaps a transaction, and how rows are read."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, Row, Select

from infra.state.database import transaction
from infra.state.records import Json, UnknownRecord


class Tables:
    """A database, and the transaction that all methods join when there is one."""

    def __init__(self, engine: Engine, connection: Connection | None = None) -> None:
        self._engine = engine
        self._connection = connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Give the shared transaction, or a write transaction of its own."""
        if self._connection is not None:
            yield self._connection
            return
        with transaction(self._engine, writes=True) as connection:
            yield connection

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Give the shared transaction, or a read transaction of its own."""
        if self._connection is not None:
            yield self._connection
            return
        with transaction(self._engine, writes=False) as connection:
            yield connection


def one(connection: Connection, query: Select[Any], what: str, name: str) -> Row[Any]:
    """Return the one row of `query`; `UnknownRecord` naming `what` and `name` where there is none."""
    row = connection.execute(query).one_or_none()
    if row is None:
        raise UnknownRecord(f"{what} {name}: is not in the state database")
    return row


def columns(row: Row[Any]) -> dict[str, Any]:
    """Return a row as a dict by column name."""
    return dict(row._mapping)


def same(row: Row[Any] | None, wanted: Mapping[str, Any]) -> bool:
    """Return whether there is a row, and its columns say what `wanted` says."""
    return row is not None and {name: row._mapping[name] for name in wanted} == wanted


def plain(value: Json) -> Any:
    """Return `value` as it will come back from the database (tuples become lists), so that the two can be compared."""
    return json.loads(json.dumps(dict(value), allow_nan=False))
