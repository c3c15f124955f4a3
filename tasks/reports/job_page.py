"""The report of a job: gathered from the state database alone, and written as one HTML file.

It asks no market, no clock and no price file: prices are those that the journal's ticks saw, and the report of a job
that still runs ends with the last that is known. The same state gives the same file.
"""

from pathlib import Path

from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from bidding.engine.journal import JournalError, from_record
from bidding.engine.orders import Acquire, Lapse, Renew, Wait
from infra.errors import InputError
from infra.settings import load_settings
from infra.state.records import JournalEntry, ObservationKind, StoreError
from infra.state.store import Store
from infra.urls import sqlite_url
from reports.pages.job_page import ReportPage, write
from reports.pages.job_series import JobFacts, Timed, chart
from reports.pages.job_tables import (
    about_tables,
    decision_rows,
    elapsed,
    figures,
    money_tables,
    progress_tables,
    utc,
)


def gather(store: Store, job_id: str) -> ReportPage:
    """Return the report of a job, as it stands in the database.

    Raises
    ------
    UnknownRecord
        If there is no such job.
    StoreError
        If its journal holds what this program cannot read.
    """
    facts = read_facts(store, job_id)
    drawn = chart(facts)
    origin = f"recorded {utc(facts.job.created_at_s)} UTC (market time)"
    how = "still running; shown until" if facts.job.ended_at_s is None else "last entry"
    notes = [
        "Times are h:mm:ss of market time after the job was recorded. Prices are those that the decisions saw.",
        "Ids of allocations are shown without the job's id in front.",
        "On-demand: the vCPUs held while the job trained, at the cheapest on-demand price per vCPU of the types held.",
        "Cost per work: expected dollars per vCPU-hour of useful work of the whole footprint, as the policy saw it.",
    ]
    if left := sum(row[4] for row in drawn["decisions"]):
        notes.append(
            f"{left} candidates of decisions that bought nothing are left out, the best kept; the journal holds them."
        )
    return ReportPage(
        job_id=job_id,
        state=str(facts.job.state),
        failure=facts.job.failure,
        period=f"{origin}; {how} {elapsed(facts.last_s - facts.t0)}",
        figures=figures(facts),
        chart=drawn,
        decisions=decision_rows(facts),
        progress=progress_tables(facts),
        money=money_tables(facts),
        about=about_tables(facts),
        notes=tuple(notes),
    )


def read_facts(store: Store, job_id: str) -> JobFacts:
    """Return what the database holds of a job, read in one transaction."""
    with store.transaction() as now:
        job = now.job(job_id)
        entries = now.journal(job_id)
        allocations, ledger = now.allocations(job_id), now.ledger(job_id)
        progress = now.observations(job_id, ObservationKind.PROGRESS)
        shards = now.observations(job_id, ObservationKind.SHARDS)
    try:
        journal = tuple(map(_timed, entries))
    except JournalError as error:
        raise StoreError(f"job {job_id}: {error}") from error
    return JobFacts(job, journal, tuple(allocations), tuple(ledger), tuple(progress), tuple(shards))


def write_report(
    job_id: str, *, output: Path | None = None, database: str | None = None, directory: Path | None = None
) -> Path:
    """Write the report of a job; return the file.

    Parameters
    ----------
    output
        The file. Default: ``report.html`` in the run's directory where there is one, else ``<job>-report.html`` here.
    database
        URL of the state database. Default: ``state.db`` in the run's directory, else what the settings say.
    directory
        The run's directory. Default: ``runs/<job>``, where there is one.

    Raises
    ------
    InputError
        If there is no such directory, database or job, or the file cannot be written.
    """
    if directory is not None and not directory.is_dir():
        raise InputError(f"{directory}: is no directory; --dir names where the run kept its state")
    place = directory if directory is not None else Path("runs") / job_id
    lives = place.is_dir() and "/" not in job_id
    if database is None:
        held = directory is not None or (lives and (place / "state.db").is_file())
        database = sqlite_url(place / "state.db") if held else load_settings().database_url
    check_there(database)
    with Store.open(database) as store:
        page = gather(store, job_id)
    path = output or (place / "report.html" if lives else Path(f"{job_id}-report.html"))
    write(page, path)
    return path


def check_there(database: str) -> None:
    """Refuse the URL of a SQLite file that is not there: opening it would make one."""
    try:
        url = make_url(database)
    except (ArgumentError, ValueError):
        return  # the store says what is wrong with it
    name = url.database or ""
    if url.get_backend_name() == "sqlite" and name and not name.startswith((":", "file:")) and not Path(name).is_file():
        raise InputError(f"state database {name}: is not there; name it with --database, or the run's --dir")


def _timed(entry: JournalEntry) -> Timed:
    """Return what an entry says, and when: an event's own time, an order's that of the tick it answers."""
    item = from_record(entry.record)
    if isinstance(item, Acquire | Renew | Lapse | Wait):
        return int(entry.at_s), item
    return item.at_s, item
