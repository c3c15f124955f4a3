"""The tables of the journals of engines, and of their snapshots."""

from collections.abc import Sequence
from dataclasses import asdict

from sqlalchemy import Connection, func, insert, select
from sqlalchemy.exc import IntegrityError

from proteus_spot.infra.state.base import Database, columns, require_row
from proteus_spot.infra.state.database import insert_or
from proteus_spot.infra.state.records import EngineSnapshot, Entry, JournalConflict, JournalEntry
from proteus_spot.infra.state.schema import jobs, journal, snapshots


class JournalTables:
    """Journals and the newest snapshot of each engine."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def newest_entry_s(self) -> float | None:
        """Return when the newest entry of any journal became known, market seconds; None if there is none."""
        with self._database.read() as connection:
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
        with self._database.write() as connection:
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

    def entries(self, job_id: str, from_seq: int = 0, kinds: Sequence[str] = ()) -> list[JournalEntry]:
        """Return the journal of a job from entry `from_seq` on, in order; empty for a job without one.

        Parameters
        ----------
        kinds : kinds of the records that are returned; all where none is given.
        """
        query = select(journal).where(journal.c.job_id == job_id, journal.c.seq >= from_seq).order_by(journal.c.seq)
        if kinds:
            query = query.where(journal.c.record["kind"].as_string().in_(kinds))
        with self._database.read() as connection:
            return [JournalEntry(**columns(row)) for row in connection.execute(query)]

    def entry(self, job_id: str, seq: int) -> JournalEntry:
        """Return one entry of a journal; `UnknownRecord` if it holds fewer."""
        query = select(journal).where(journal.c.job_id == job_id, journal.c.seq == seq)
        with self._database.read() as connection:
            return JournalEntry(**columns(require_row(connection, query, f"job {job_id}: entry", str(seq))))

    def save_snapshot(self, snapshot: EngineSnapshot) -> None:
        """Replace the snapshot of a job's engine; write it in the transaction of the entries that it covers."""
        row = asdict(snapshot)
        new = {name: value for name, value in row.items() if name != "job_id"}
        with self._database.write() as connection:
            statement = insert_or(connection, snapshots).values(row)
            connection.execute(statement.on_conflict_do_update(index_elements=["job_id"], set_=new))

    def snapshot(self, job_id: str) -> EngineSnapshot | None:
        """Return the newest snapshot of a job's engine; None if there is none."""
        with self._database.read() as connection:
            row = connection.execute(select(snapshots).where(snapshots.c.job_id == job_id)).one_or_none()
        return None if row is None else EngineSnapshot(**columns(row))


def _journal_length(connection: Connection, job_id: str) -> int:
    last = connection.scalar(select(func.max(journal.c.seq)).where(journal.c.job_id == job_id))
    return 0 if last is None else int(last) + 1
