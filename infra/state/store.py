"""The state of every job: what flows and tasks store between two runs.

`Store.open(url)` opens it. Each method is one short transaction; `Store.transaction()` yields a store whose methods
share one transaction, so that related facts are written together or not at all. Methods that record a fact may be
repeated with the same fact; a different fact under the same name is refused. The store makes no decisions and reads no
clock.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict

from sqlalchemy import Connection, delete, func, insert, select
from sqlalchemy.exc import IntegrityError

from proteus_spot.infra.open_close import ClosedAtEnd
from proteus_spot.infra.state.base import columns, require_row
from proteus_spot.infra.state.database import insert_or, now_s, open_engine
from proteus_spot.infra.state.identity import IdentityTable
from proteus_spot.infra.state.job_tables import JobTables
from proteus_spot.infra.state.market_tables import MarketTables
from proteus_spot.infra.state.purchase_tables import PurchaseTables
from proteus_spot.infra.state.records import EngineSnapshot, Entry, JournalConflict, JournalEntry
from proteus_spot.infra.state.schema import claims, jobs, journal, snapshots


class Store(IdentityTable, JobTables, PurchaseTables, MarketTables, ClosedAtEnd):
    """The state database: identity, jobs, observations, purchases, facts of markets, and here the journal and claims.

    **Thread and process safety.** Any number of threads and processes may use one database; each process opens its own
    store. A store inside `transaction()` belongs to the thread that opened it.
    """

    @classmethod
    def open(cls, url: str) -> "Store":
        """Return the store at SQLAlchemy `url`, created if absent.

        Raises
        ------
        InputError
            One line: the URL is invalid, or names a directory, no database, a read-only one, or one of another version.
        """
        return cls(open_engine(url))

    def close(self) -> None:
        """Close every connection of this process."""
        self._engine.dispose()

    @contextmanager
    def transaction(self) -> "Iterator[Store]":
        """Yield a store whose methods share one write transaction; an exception rolls it back."""
        with self.write() as connection:
            yield Store(self._engine, connection)

    def newest_entry_s(self) -> float | None:
        """Return when the newest entry of any journal became known, market seconds; None if there is none."""
        with self.read() as connection:
            newest = connection.scalar(select(func.max(journal.c.known_at_s)))
        return None if newest is None else float(newest)

    def append(self, job_id: str, expected_seq: int, entries: Sequence[Entry]) -> int:
        """Append `entries` to a journal of `expected_seq` entries; return its new number of entries.

        Raises
        ------
        JournalConflict
            If it holds another number of entries: nothing was written.
        """
        rows = [
            {
                "job_id": job_id,
                "seq": seq,
                "at_s": entry.at_s,
                "known_at_s": entry.known_at_s,
                "direction": entry.direction,
                "record": dict(entry.record),
            }
            for seq, entry in enumerate(entries, start=expected_seq)
        ]
        with self.write() as connection:
            require_row(connection, select(jobs.c.job_id).where(jobs.c.job_id == job_id), "job", job_id)
            length = _journal_length(connection, job_id)
            if length != expected_seq:
                raise JournalConflict(f"journal of {job_id}: holds {length} entries where {expected_seq} were read")
            if rows:
                try:
                    connection.execute(insert(journal), rows)
                except IntegrityError:  # PostgreSQL: another transaction committed the same `seq` meanwhile
                    raise JournalConflict(f"journal of {job_id}: another writer took entry {expected_seq}") from None
        return expected_seq + len(rows)

    def journal(self, job_id: str, from_seq: int = 0, kinds: Sequence[str] = ()) -> list[JournalEntry]:
        """Return the journal of a job from entry `from_seq` on, in order; empty for a job without one.

        Parameters
        ----------
        kinds : kinds of the records that are returned; all where none is given.
        """
        query = select(journal).where(journal.c.job_id == job_id, journal.c.seq >= from_seq).order_by(journal.c.seq)
        if kinds:
            query = query.where(journal.c.record["kind"].as_string().in_(kinds))
        with self.read() as connection:
            return [JournalEntry(**columns(row)) for row in connection.execute(query)]

    def entry(self, job_id: str, seq: int) -> JournalEntry:
        """Return one entry of a journal; `UnknownRecord` if it holds fewer."""
        query = select(journal).where(journal.c.job_id == job_id, journal.c.seq == seq)
        with self.read() as connection:
            return JournalEntry(**columns(require_row(connection, query, f"job {job_id}: entry", str(seq))))

    def save_snapshot(self, snapshot: EngineSnapshot) -> None:
        """Replace the snapshot of a job's engine; write it in the transaction of the entries that it covers."""
        row = asdict(snapshot)
        new = {name: value for name, value in row.items() if name != "job_id"}
        with self.write() as connection:
            statement = insert_or(connection, snapshots).values(row)
            connection.execute(statement.on_conflict_do_update(index_elements=["job_id"], set_=new))

    def snapshot(self, job_id: str) -> EngineSnapshot | None:
        """Return the newest snapshot of a job's engine; None if there is none."""
        with self.read() as connection:
            row = connection.execute(select(snapshots).where(snapshots.c.job_id == job_id)).one_or_none()
        return None if row is None else EngineSnapshot(**columns(row))

    def claim(self, name: str, holder: str, ttl_s: float) -> bool:
        """Claim `name` for `holder` for `ttl_s` real seconds; return False if another holder has it.

        An expired claim is taken over; the holder's own is prolonged (or cut) to the new end. Of several concurrent
        calls exactly one succeeds. The database's clock decides, so that machines whose clocks differ agree.
        """
        with self.write() as connection:
            expires_at_s = now_s(connection) + ttl_s
            statement = insert_or(connection, claims).values(name=name, holder=holder, expires_at_s=expires_at_s)
            statement = statement.on_conflict_do_update(
                index_elements=["name"],
                set_={"holder": holder, "expires_at_s": expires_at_s},
                where=(claims.c.holder == holder) | (claims.c.expires_at_s <= now_s(connection)),
            )
            return connection.execute(statement.returning(claims.c.name)).one_or_none() is not None

    def is_claimed(self, name: str) -> bool:
        """Return whether `name` is held now."""
        with self.read() as connection:
            held = (claims.c.name == name) & (claims.c.expires_at_s > now_s(connection))
            return connection.scalar(select(claims.c.name).where(held)) is not None

    def release_all(self) -> None:
        """Release every claim; call it only when all holders are known to have ended."""
        with self.write() as connection:
            connection.execute(delete(claims))

    def release(self, name: str, holder: str) -> bool:
        """Release `name` if `holder` has it; return whether it had."""
        with self.write() as connection:
            deleted = connection.execute(delete(claims).where(claims.c.name == name, claims.c.holder == holder))
            return deleted.rowcount == 1


def _journal_length(connection: Connection, job_id: str) -> int:
    last = connection.scalar(select(func.max(journal.c.seq)).where(journal.c.job_id == job_id))
    return 0 if last is None else int(last) + 1
