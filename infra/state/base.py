"""What the state tables share: the database with its transaction, and row helpers."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, Row, Select

from proteus_spot.infra.state.database import transaction
from proteus_spot.infra.state.records import Json, UnknownRecord


class Database:
    """A database, with a transaction that all methods of the tables join if there is one."""

    def __init__(self, engine: Engine, connection: Connection | None = None) -> None:
        self.engine = engine
        self._connection = connection

    def close(self) -> None:
        """Close every connection of this process."""
        self.engine.dispose()

    @contextmanager
    def joined(self) -> "Iterator[Database]":
        """Yield the database in one write transaction; an exception rolls it back."""
        with self.write() as connection:
            yield Database(self.engine, connection)

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Yield the shared transaction, or else a new write transaction."""
        if self._connection is not None:
            yield self._connection
            return
        with transaction(self.engine, writes=True) as connection:
            yield connection

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Yield the shared transaction, or else a new read transaction."""
        if self._connection is not None:
            yield self._connection
            return
        with transaction(self.engine, writes=False) as connection:
            yield connection


def require_row(connection: Connection, query: Select[Any], what: str, name: str) -> Row[Any]:
    """Return the single row of `query`; `UnknownRecord` naming `what` and `name` if there is none."""
    row = connection.execute(query).one_or_none()
    if row is None:
        raise UnknownRecord(f"{what} {name}: is not in the state database")
    return row


def columns(row: Row[Any]) -> dict[str, Any]:
    """Return a row as a dict by column name."""
    return dict(row._mapping)


def has_columns(row: Row[Any] | None, wanted: Mapping[str, Any]) -> bool:
    """Return whether there is a row whose columns equal `wanted`."""
    return row is not None and {name: row._mapping[name] for name in wanted} == wanted


def as_stored(value: Json) -> Any:
    """Return `value` as the database will return it (tuples become lists), for comparisons with stored values."""
    return json.loads(json.dumps(dict(value), allow_nan=False))
