"""The tables of jobs and of their progress."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from sqlalchemy import Connection, Row, Select, bindparam, delete, insert, select, update

from proteus_spot.bidding.market.model import HOUR_S
from proteus_spot.infra.json_values import finite
from proteus_spot.infra.state.base import Database, as_stored, columns, require_row
from proteus_spot.infra.state.database import insert_or
from proteus_spot.infra.state.records import (
    JOB_TRANSITIONS,
    IllegalTransition,
    Job,
    JobKind,
    JobState,
    Json,
    Observation,
    ObservationKind,
    StoreError,
    UnknownRecord,
)
from proteus_spot.infra.state.schema import jobs, journal, observations

#: An observation older than `[0]` seconds is kept if it is the last within its `[1]` seconds; the oldest class first.
_CLASSES = ((24 * HOUR_S, 600), (HOUR_S, 60))
#: Market seconds after which observations are thinned again.
EVERY_S = 600


class JobTables:
    """Jobs and observations."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def create_job(self, job_id: str, spec: Json, now_s: float, kind: JobKind = JobKind.JOB) -> Job:
        """Record a job, or return the recorded one if its `spec` is the same.

        Raises
        ------
        StoreError
            If `job_id` was used for another spec, or for another kind of job.
        """
        row: dict[str, Any] = {"job_id": job_id, "spec": as_stored(spec), "created_at_s": now_s}
        row |= {"state": JobState.STARTING.value, "kind": kind.value}
        with self._database.write() as connection:
            connection.execute(insert_or(connection, jobs).values(row).on_conflict_do_nothing())
            job = _job(require_row(connection, select(jobs).where(jobs.c.job_id == job_id), "job", job_id))
            if job.kind is not kind:
                raise StoreError(f"{kind} {job_id}: is the id of a {job.kind}; choose another")
            if job.spec != row["spec"]:
                raise StoreError(f"job {job_id}: was submitted before with another spec; choose another job_id")
        return job

    def replace_sweep_spec(self, job_id: str, spec: Json) -> Job:
        """Record that a sweep has another description: it was given more trials."""
        with self._database.write() as connection:
            row = require_row(connection, select(jobs).where(jobs.c.job_id == job_id), "job", job_id)
            if _job(row).kind is not JobKind.SWEEP:
                raise StoreError(f"job {job_id}: is not a sweep; its description stays")
            connection.execute(update(jobs).where(jobs.c.job_id == job_id).values(spec=as_stored(spec)))
        return self.job(job_id)

    def job(self, job_id: str) -> Job:
        """Return a job; `UnknownRecord` if there is none."""
        with self._database.read() as connection:
            return _job(require_row(connection, select(jobs).where(jobs.c.job_id == job_id), "job", job_id))

    def find_job(self, job_id: str) -> Job | None:
        """Return a job, or None where there is none."""
        with self._database.read() as connection:
            row = connection.execute(select(jobs).where(jobs.c.job_id == job_id)).one_or_none()
        return None if row is None else _job(row)

    def list_jobs(self, states: Sequence[JobState] = ()) -> list[Job]:
        """Return all jobs, or those in one of `states`, oldest first."""
        query = select(jobs).order_by(jobs.c.created_at_s, jobs.c.job_id)
        if states:
            query = query.where(jobs.c.state.in_([state.value for state in states]))
        with self._database.read() as connection:
            return [_job(row) for row in connection.execute(query)]

    def set_controller(self, job_id: str, address: str | None) -> None:
        """Record the address of the job's controller."""
        with self._database.write() as connection:
            updated = connection.execute(update(jobs).where(jobs.c.job_id == job_id).values(controller_address=address))
            if updated.rowcount == 0:
                raise UnknownRecord(f"job {job_id}: is not in the state database")

    def move_job(
        self, job_id: str, state: JobState, now_s: float, *, result: Json | None = None, failure: str | None = None
    ) -> Job:
        """Move a job to `state`; its present state changes nothing.

        Parameters
        ----------
        now_s : float
            End of the job if `state` is terminal.
        result, failure
            How the job ended; the first move into the terminal state sets them.

        Raises
        ------
        IllegalTransition
            If `state` may not follow; nothing may follow a terminal state.
        """
        with self._database.write() as connection:
            query = select(jobs).where(jobs.c.job_id == job_id).with_for_update()
            job = _job(require_row(connection, query, "job", job_id))
            if job.state is state:
                return job
            if state not in JOB_TRANSITIONS[job.state]:
                raise IllegalTransition(f"job {job_id}: is {job.state}, and {state} cannot follow")
            new: dict[str, Any] = {"state": state.value}
            if state.terminal:
                new |= {
                    "ended_at_s": now_s,
                    "result": None if result is None else as_stored(result),
                    "failure": failure,
                }
            connection.execute(update(jobs).where(jobs.c.job_id == job_id).values(new))
            return _job(require_row(connection, query, "job", job_id))

    def request_stop(self, job_id: str, why: str, by: str, at_s: float, *, at_once: bool = False) -> Job:
        """Move a job to `stopping`, and record why; return it. A job that has ended is not changed.

        The first request's reason, author and time stay. A later one can only add that the machines end `at_once`.
        """
        with self._database.write() as connection:
            query = select(jobs).where(jobs.c.job_id == job_id).with_for_update()
            job = _job(require_row(connection, query, "job", job_id))
            if job.state.terminal:
                return job
            new: dict[str, Any] = {"state": JobState.STOPPING.value, "stop_now": job.stop_now or at_once}
            if job.stop_at_s is None:
                new |= {"stop_why": why, "stop_by": by, "stop_at_s": at_s}
            connection.execute(update(jobs).where(jobs.c.job_id == job_id).values(new))
            return _job(require_row(connection, query, "job", job_id))

    def reopen_job(self, job_id: str, *, has_more: bool = False, spec: Json | None = None) -> Job:
        """Have a job that failed, or a sweep that was stopped, start again; one that has not ended is left as it is.

        With `has_more` a sweep that finished starts again, too: it was given more trials. With a `spec` a job that was
        stopped starts again: that is its description from now on, with larger limits.

        Raises
        ------
        IllegalTransition
            If it finished, or is a job that was stopped, and no `spec` is given.
        """
        with self._database.write() as connection:
            query = select(jobs).where(jobs.c.job_id == job_id).with_for_update()
            job = _job(require_row(connection, query, "job", job_id))
            if not job.state.terminal:
                return job
            ended = (JobState.STOPPED, JobState.FINISHED) if has_more else (JobState.STOPPED,)
            may_go_on = job.kind is JobKind.SWEEP or (spec is not None and job.state is JobState.STOPPED)
            if job.state is not JobState.FAILED and not (job.state in ended and may_go_on):
                raise IllegalTransition(f"job {job_id}: is {job.state}, and only a job that failed starts again")
            new: dict[str, Any] = {
                "state": JobState.STARTING.value,
                "ended_at_s": None,
                "controller_address": None,
                "result": None,
                "failure": None,
                "stop_why": None,
                "stop_by": None,
                "stop_at_s": None,
                "stop_now": False,
            }
            if spec is not None:
                new["spec"] = as_stored(spec)
            connection.execute(update(jobs).where(jobs.c.job_id == job_id).values(new))
            return _job(require_row(connection, query, "job", job_id))

    def observe(self, job_id: str, at_s: float, kind: ObservationKind, payload: Json) -> None:
        """Store an observation of a job; a number that JSON cannot represent becomes null.

        Older observations of its progress are thinned now and then; the other kinds are facts, and stay.
        """
        with self._database.write() as connection:
            require_row(connection, select(jobs.c.job_id).where(jobs.c.job_id == job_id), "job", job_id)
            row = {"job_id": job_id, "at_s": at_s, "kind": kind.value, "payload": finite(dict(payload))}
            if kind is ObservationKind.PROGRESS and _thinning_is_due(_newest_s(connection, job_id, kind), at_s):
                _thin(connection, job_id, kind, at_s)
            connection.execute(insert(observations), [row])

    def observations(self, job_id: str, kind: ObservationKind | None = None) -> list[Observation]:
        """Return the observations of a job, or those of one kind, in order of time."""
        query = select(observations).where(observations.c.job_id == job_id)
        query = query.order_by(observations.c.at_s, observations.c.observation_id)
        if kind is not None:
            query = query.where(observations.c.kind == kind.value)
        with self._database.read() as connection:
            return [_observation(row) for row in connection.execute(query)]

    def last_seen_s(self, job_id: str) -> float | None:
        """Return the market time of the newest observation or journal entry of a job; None if it has none."""
        newest_entry = select(journal.c.known_at_s).where(journal.c.job_id == job_id).order_by(journal.c.seq.desc())
        with self._database.read() as connection:
            newest_s = [_newest_s(connection, job_id, kind) for kind in ObservationKind]
            newest_s.append(connection.execute(newest_entry.limit(1)).scalar_one_or_none())
        return max((float(at_s) for at_s in newest_s if at_s is not None), default=None)

    def last_observation(self, job_id: str, kind: ObservationKind) -> Observation | None:
        """Return the observation of one kind that was stored last, or None."""
        with self._database.read() as connection:
            row = connection.execute(_newest(job_id, kind)).one_or_none()
        return None if row is None else _observation(row)


def _newest(job_id: str, kind: ObservationKind) -> Select[Any]:
    query = select(observations).where(observations.c.job_id == job_id, observations.c.kind == kind.value)
    return query.order_by(observations.c.observation_id.desc()).limit(1)


def _newest_s(connection: Connection, job_id: str, kind: ObservationKind) -> float | None:
    row = connection.execute(_newest(job_id, kind)).one_or_none()
    return None if row is None else float(row.at_s)


def _thin(connection: Connection, job_id: str, kind: ObservationKind, newest_s: float) -> None:
    query = select(observations.c.observation_id, observations.c.at_s)
    query = query.where(observations.c.job_id == job_id, observations.c.kind == kind.value)
    query = query.where(observations.c.at_s < newest_s - HOUR_S).order_by(observations.c.observation_id)
    rows = [(row.observation_id, row.at_s) for row in connection.execute(query)]
    removed = superfluous(rows, newest_s)
    statement = delete(observations).where(observations.c.observation_id == bindparam("removed_id"))
    if removed:
        connection.execute(statement, [{"removed_id": row_id} for row_id in removed])


def _job(row: Row[Any]) -> Job:
    found = columns(row)
    read = {"state": JobState(found["state"]), "stop_now": bool(found["stop_now"]), "kind": JobKind(found["kind"])}
    return Job(**(found | read))


def _observation(row: Row[Any]) -> Observation:
    return Observation(row.job_id, row.at_s, ObservationKind(row.kind), row.payload)


def _thinning_is_due(before_s: float | None, at_s: float) -> bool:
    return before_s is not None and before_s // EVERY_S != at_s // EVERY_S


def superfluous(rows: Iterable[tuple[int, float]], newest_s: float) -> list[int]:
    """Return the ids to remove of `rows`, pairs of id and market time in order of the ids; the last row stays.

    All of the last hour are kept, then one a minute, then one per ten minutes.
    """
    return [row_id for (row_id, at_s), (_, next_s) in pairwise(rows) if _share_a_slot(at_s, next_s, newest_s)]


def _share_a_slot(at_s: float, next_s: float, newest_s: float) -> bool:
    for age_s, slot_s in _CLASSES:
        if at_s < newest_s - age_s:
            return at_s // slot_s == next_s // slot_s
    return False
