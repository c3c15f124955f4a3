"""Create the schema, or upgrade that of an earlier program with Alembic, in a transaction that holds the lock.

The revisions are the files of `infra.state.migrations.versions`. A new database is created from `schema` at the newest
revision; both ways give the same tables. The owner's id is made in the same transaction.
"""

import logging
import os
import re
import secrets
import sqlite3
from contextlib import closing
from functools import cache
from pathlib import Path
from threading import Lock

from sqlalchemy import Connection, insert, inspect, select, update

from proteus_spot.infra.errors import InputError
from proteus_spot.infra.settings import load_settings
from proteus_spot.infra.state import schema
from proteus_spot.infra.state.migrations import versions

#: The folder of the revisions.
_VERSIONS = Path(versions.__path__[0])
#: Only programs of before the first revision made this table.
_BEFORE_THE_FIRST = "schema_version"
#: Alembic's context belongs to the process, so threads that upgrade several databases take turns.
_ALEMBIC = Lock()


@cache
def revisions() -> tuple[str, ...]:
    """Return the revisions of this program, oldest first."""
    names = [path.name for path in _VERSIONS.iterdir()]
    return tuple(sorted(match[1] for name in names if (match := re.match(r"(\d{4})_\w+\.py$", name))))


def current_revision(connection: Connection) -> str | None:
    """Return the revision of the schema as the database records it; None if it records none."""
    if schema.schema_revision.name not in inspect(connection).get_table_names():
        return None
    return str(connection.scalar(select(schema.schema_revision.c.version_num)))


def create_or_upgrade(connection: Connection, shown: str) -> None:
    """Bring the database to the newest revision.

    Parameters
    ----------
    connection : in a write transaction that no other process can have at once. On SQLite, foreign keys must be off:
        a table whose constraints change is made again.
    shown : name of the database in errors.

    Raises
    ------
    InputError
        One line: another program's database, one of a newer program or from before the first revision, or a SQLite file
        that cannot be copied before its upgrade.
    """
    present = set(inspect(connection).get_table_names())
    newest = revisions()[-1]
    if _BEFORE_THE_FIRST in present:
        raise InputError(
            f"{shown}: was made by a program from before the first release, which no program reads any more; "
            "move it away, or give another database (PROTEUS_DATABASE_URL), and a new one is made"
        )
    if schema.schema_revision.name not in present:
        if foreign := sorted(present & set(schema.metadata.tables)):
            raise InputError(f"{shown}: holds another program's table {foreign[0]!r}; give a database of its own")
        schema.metadata.create_all(connection, checkfirst=False)
        connection.execute(insert(schema.schema_revision).values(version_num=newest))
        return
    revision = schema.schema_revision.c.version_num
    current = str(connection.scalar(select(revision)))
    if current not in revisions():
        raise InputError(
            f"{shown}: has schema {current}, which this program does not know; its newest is {newest}. "
            "Use the program that made the database, or another database"
        )
    if current != newest:
        copy = _copy_file(connection, current, shown)
        _upgrade(connection)
        logging.getLogger(__name__).info(
            "%s: upgraded from schema %s to %s%s", shown, current, newest, f"; a copy of it is {copy}" if copy else ""
        )
    # Changes nothing, and fails on a read-only database.
    connection.execute(update(schema.schema_revision).values(version_num=revision))


def ensure_owner(connection: Connection) -> None:
    """Give a database its owner, if it has none: that of the settings, else a new one."""
    if connection.execute(select(schema.identity.c.owner_id)).one_or_none() is None:
        owner_id = load_settings().owner or f"owner-{secrets.token_hex(8)}"
        connection.execute(insert(schema.identity).values(one=1, owner_id=owner_id))


def _upgrade(connection: Connection) -> None:
    from alembic import command  # takes a while to import, and most databases are at the newest revision
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "proteus_spot.infra.state:migrations")
    config.set_main_option("version_locations", str(_VERSIONS))
    config.set_main_option("path_separator", "newline")  # of paths in one text, which may hold any other character
    config.attributes["connection"] = connection
    with _ALEMBIC:
        command.upgrade(config, "head")
    if connection.dialect.name == "sqlite" and (row := connection.exec_driver_sql("PRAGMA foreign_key_check").first()):
        raise RuntimeError(f"the upgrade leaves rows of {row[0]} that refer to none of {row[2]}")


def _copy_file(connection: Connection, revision: str, shown: str) -> Path | None:
    """Copy a SQLite file, named after its revision, to the folder that it is in; return None for PostgreSQL."""
    if connection.dialect.name != "sqlite":
        return None
    path = Path(next(row.file for row in connection.exec_driver_sql("PRAGMA database_list") if row.name == "main"))
    copy, part = path.with_name(f"{path.name}.schema-{revision}"), path.with_name(f"{path.name}.part")
    try:
        part.unlink(missing_ok=True)
        with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(part)) as target:
            source.backup(target)
        part.chmod(path.stat().st_mode & 0o777)
        os.replace(part, copy)
    except (OSError, sqlite3.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(f"{shown}: cannot be copied to {copy} before its upgrade: {reason}") from None
    return copy
