"""The identity of a state database: the owner of the machines that its jobs buy, and their account and region.

The owner's id is made with the schema and never changes. Two databases have different ones, wherever they are, so no
process takes the machines of another database for its own. Account and region are recorded when the market is first
used; afterwards others are refused, because from there all machines would look as if they had vanished.

A database that was restored from a backup, or copied, has the same owner. Its generation tells it from the other one
since it found that out, by the fences of its jobs (`infra.storage.fences`).

The owner is also in a file, so that its machines can be found without the database: in the folder ``owners`` beside
a SQLite database, otherwise in that folder of the user's data directory.
"""

import json
import logging
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import quote

from platformdirs import user_data_dir
from sqlalchemy import Connection, create_engine, make_url, select, update
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from proteus_spot.infra.errors import InputError
from proteus_spot.infra.state.base import Database, columns
from proteus_spot.infra.state.database import insert_or
from proteus_spot.infra.state.schema import fences, identity

_FOLDER = "owners"
#: Seconds to wait for a database that is asked for its owner.
_ASK_S = 5
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Identity:
    """The owner of a database's machines, and the account and region that they are in (None before their first use)."""

    owner_id: str
    account_id: str | None = None
    region: str | None = None
    generation: str = "000000"

    @property
    def generation_of_orders(self) -> str:
        """The generation as ids of orders have it: nothing for the first one, then ``g2-`` and a random text."""
        number, _, own = self.generation.partition("-")
        return f"g{int(number) + 1}-{own}" if own else ""


@dataclass(frozen=True, slots=True)
class FenceMarks:
    """What this database has written, or is about to write, to the fence of a job: one of the two is in it.

    Attributes
    ----------
    generation : of the database; the larger text is the newer one.
    mark, next_mark : the last mark that is known to be written, and the one that follows; None before the first.
    """

    generation: str
    mark: str | None = None
    next_mark: str | None = None


class IdentityTable:
    """The one row of the identity, and the marks in the fences of jobs."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def identity(self) -> Identity:
        """Return the identity of this database."""
        with self._database.read() as connection:
            return _read(connection)

    def pin(self, account_id: str, region: str) -> Identity:
        """Record the account and the region of the machines, if none are recorded yet; return the identity.

        Raises
        ------
        InputError
            If another account or region is recorded: one line that names both and the fix.
        """
        with self._database.write() as connection:
            unused = identity.c.account_id.is_(None)
            connection.execute(update(identity).where(unused).values(account_id=account_id, region=region))
            pinned = _read(connection)
        others = "or use another state database (PROTEUS_DATABASE_URL)"
        if pinned.account_id != account_id:
            raise InputError(
                f"AWS account {account_id}: the machines of this state database are in account {pinned.account_id}; "
                f"use credentials of that account, {others}"
            )
        if pinned.region != region:
            raise InputError(
                f"PROTEUS_REGION {region}: the machines of this state database are in {pinned.region}; "
                f"set that region, {others}"
            )
        return pinned

    def fence_marks(self, job_id: str) -> FenceMarks:
        """Return the marks that this database has in the fence of a job; the job need not be recorded."""
        with self._database.read() as connection:
            return _marks(connection, job_id)

    def follow_mark(self, job_id: str, before: FenceMarks, mark: str) -> bool:
        """Record the mark that is to follow the one in the fence; return False if `before` are not its marks now."""
        with self._database.write() as connection:
            if _marks(connection, job_id, locks=True) != before:
                return False
            row = {"job_id": job_id, "mark": before.next_mark, "next_mark": mark}
            statement = insert_or(connection, fences).values(row)
            connection.execute(statement.on_conflict_do_update(index_elements=["job_id"], set_=row))
            return True

    def begin_generation(self, after: str) -> str:
        """Give this database, of the generation `after`, a newer one that no other database has; return it.

        Where another process has done so meanwhile, that one is returned.
        """
        newer = f"{int(after.partition('-')[0]) + 1:06d}-{secrets.token_hex(4)}"
        with self._database.write() as connection:
            present = identity.c.generation == after
            connection.execute(update(identity).where(present).values(generation=newer))
            return _read(connection).generation


@dataclass(frozen=True, slots=True)
class OwnerFile:
    """What the file of an owner holds.

    Attributes
    ----------
    owner : the owner id that its machines carry as a tag.
    account, region : where they are; None before the first use of the market.
    database : URL of the state database, without its password.
    endpoint : EC2 API that they were bought from; None: AWS itself.
    """

    owner: str
    account: str | None
    region: str | None
    database: str
    endpoint: str | None


def owner_directory(database_url: str) -> Path:
    """Return the folder of the owner file of a state database."""
    try:
        url = make_url(database_url)
    except ArgumentError:
        return Path(user_data_dir("proteus")) / _FOLDER
    name = url.database or ""
    if url.get_backend_name() == "sqlite" and name and not name.startswith((":", "file:")):
        return Path(name).absolute().parent / _FOLDER
    return Path(user_data_dir("proteus")) / _FOLDER


def write_owner_file(database_url: str, identity: Identity, endpoint: str | None) -> None:
    """Write the owner file of a state database, if it does not say the same already.

    A folder that cannot be written is a warning: the tags of the machines name the owner, too. So is another owner
    that is recorded for this database: it was made anew in the place of another.

    Raises
    ------
    InputError
        If the file holds another owner, or another account or region: it may be the only trace of their machines.
    """
    shown = shown_url(database_url)
    record = OwnerFile(identity.owner_id, identity.account_id, identity.region, shown, endpoint)
    path = owner_directory(database_url) / f"{quote(identity.owner_id, safe='')}.json"
    text = json.dumps(asdict(record), indent=1)
    try:
        if path.exists() and path.read_text() == text:
            return
        others = read_owner_files(path.parent)
        before = _read_file(path) if path.exists() else None
        if before is not None:
            if identity.account_id is None and before.owner == identity.owner_id and before.account is not None:
                return  # a backup from before the first use of the market: the file knows more
            _check_same(path, before, record)
        for other in others:
            if other.database == shown and other.owner != identity.owner_id:
                _log.warning(
                    "%s: owner %s is recorded for this database, too, which was made anew since: end its machines "
                    "(`proteus panic --owner %s`), and remove its file",
                    path.parent,
                    other.owner,
                    other.owner,
                )
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".new")
        unfinished.write_text(text)
        unfinished.replace(path)
    except OSError as error:
        _log.warning("%s: the owner %s is not recorded there: %s", path, identity.owner_id, error.strerror)


def _check_same(path: Path, before: OwnerFile, record: OwnerFile) -> None:
    said = (before.owner, before.account or record.account, before.region or record.region)
    if said != (record.owner, record.account, record.region):
        raise InputError(
            f"{path}: names owner {before.owner} in account {before.account}, region {before.region}, and the state "
            f"database says owner {record.owner}, account {record.account}, region {record.region}; if no machine of "
            "the former lives, remove the file"
        )


def recorded_owner(database_url: str) -> str | None:
    """Return the owner id that a state database holds; None if it is not there, or does not answer. It is not made."""
    try:
        url = make_url(database_url)
        is_file = url.get_backend_name() == "sqlite"
        if is_file and not Path(url.database or "").is_file():
            return None
        engine = create_engine(url, connect_args={"timeout" if is_file else "connect_timeout": _ASK_S})
        try:
            with engine.connect() as connection:
                return str(connection.execute(select(identity.c.owner_id)).scalar_one())
        finally:
            engine.dispose()
    except (SQLAlchemyError, ImportError, OSError, ValueError) as error:
        _log.warning("%s: its owner is not known: %s", shown_url(database_url), str(error).partition("\n")[0])
        return None


def shown_url(database_url: str) -> str:
    """Return the URL of a state database as its owner file has it, without its password."""
    return make_url(database_url).render_as_string(hide_password=True)


def read_owner_files(directory: Path) -> list[OwnerFile]:
    """Return the owners that are recorded in a folder, in the order of their ids; files that hold none are left out."""
    found = [_read_file(path) for path in sorted(directory.glob("*.json"))]
    return [record for record in found if record is not None]


def _read_file(path: Path) -> OwnerFile | None:
    try:
        return OwnerFile(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError) as error:
        _log.warning("%s: names no owner of machines: %s", path, error)
        return None


def _marks(connection: Connection, job_id: str, *, locks: bool = False) -> FenceMarks:
    query = select(identity.c.generation)  # its row stands for those of all jobs, which may not be there yet
    generation = str(connection.execute(query.with_for_update() if locks else query).scalar_one())
    row = connection.execute(select(fences).where(fences.c.job_id == job_id)).one_or_none()
    return FenceMarks(generation) if row is None else FenceMarks(generation, row.mark, row.next_mark)


def _read(connection: Connection) -> Identity:
    values = columns(connection.execute(select(identity)).one())
    del values["one"]
    return Identity(**values)
