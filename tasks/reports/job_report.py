"""The report of a job: gathered from the state database alone, and written as one HTML file.

It reads no market, no clock and no price file: prices are those in the journal's ticks, and the report of a job that
still runs ends with its last record. The same state gives the same file.
"""

from pathlib import Path

from proteus_spot.bidding.engine.events import JobOpened
from proteus_spot.bidding.engine.journal import JournalError, from_record
from proteus_spot.bidding.engine.orders import Acquire, Lapse, Renew, Wait
from proteus_spot.bidding.facts.known import MarketKnown
from proteus_spot.bidding.facts.learning import known_of
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.local_market.announcement import is_up_directory, job_directory
from proteus_spot.infra.local_market.job_stores import check_exists
from proteus_spot.infra.settings import load_settings
from proteus_spot.infra.state.records import JobKind, JobState, JournalEntry, ObservationKind, StoreError
from proteus_spot.infra.state.store import Store
from proteus_spot.infra.storage.job_paths import JobPaths
from proteus_spot.infra.urls import file_url, sqlite_url
from proteus_spot.reports.pages.job_page import ReportPage, write
from proteus_spot.reports.pages.job_series import JobFacts, Timed, chart
from proteus_spot.reports.pages.page_tables import (
    about_tables,
    decision_rows,
    elapsed,
    figures,
    links,
    market_table,
    money_tables,
    progress_tables,
    utc,
)
from proteus_spot.tasks.job_ends import deadline_s, why_ended
from proteus_spot.tasks.market.costs import NOT_COUNTED, zone_traffic
from proteus_spot.tasks.reports.alarm_lines import alarm_line, recorded_alarms
from proteus_spot.tasks.task_runtime import cross_zone_usd_per_gb

#: Maximum number of alarms that the report shows.
_MOST_ALARMS = 20


def gather(store: Store, job_id: str, blob_url: str = "") -> ReportPage:
    """Return the report of a job, as it stands in the database.

    Parameters
    ----------
    blob_url : where the job's blobs are, its model among them; empty: no model is linked.

    Raises
    ------
    UnknownRecord
        If there is no such job.
    StoreError
        If its journal has an entry that this program cannot read.
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
    notes.append(f"Not in the ledger: {'; '.join(NOT_COUNTED)}.")
    if crossed := zone_traffic(store, facts.job).line(cross_zone_usd_per_gb()):
        notes.append(f"In addition: {crossed}.")
    if left := sum(row[4] for row in drawn["decisions"]):
        notes.append(
            f"{left} candidates of decisions that bought nothing are left out, the best kept; the journal holds them."
        )
    alarms = recorded_alarms(store, job_id)
    notes += [f"Alarm: {alarm_line(alarm)}." for alarm in alarms[-_MOST_ALARMS:]]
    if len(alarms) > _MOST_ALARMS:
        notes.append(f"{len(alarms) - _MOST_ALARMS} earlier alarms of machines are left out.")
    return ReportPage(
        job_id=job_id,
        state=str(facts.job.state),
        failure=facts.job.failure,
        stop="" if facts.job.failure else why_ended(facts.job),
        period=f"{origin}; {how} {elapsed(facts.last_s - facts.t0)}",
        figures=figures(facts),
        chart=drawn,
        decisions=decision_rows(facts),
        progress=progress_tables(facts),
        money=money_tables(facts),
        about=(*market_table(_known(store, facts)), *about_tables(facts)),
        notes=tuple(notes),
        links=links(facts, _model_url(facts, blob_url), _command(store, job_id)),
    )


def _known(store: Store, facts: JobFacts) -> list[MarketKnown]:
    """Return what was known of the job's markets at its last record; nothing where bids decide."""
    opened = next((item for _, item in facts.journal if isinstance(item, JobOpened)), None)
    if opened is None or opened.evictions.bids_decide:
        return []
    return list(known_of(store.markets, opened.markets, int(facts.last_s)).values())


def _model_url(facts: JobFacts, blob_url: str) -> str:
    if not blob_url or facts.job.state not in (JobState.FINISHED, JobState.STOPPED):
        return ""
    return f"{blob_url.rstrip('/')}/{JobPaths(facts.job.job_id).model}"


def _command(store: Store, job_id: str) -> str:
    recorded = store.jobs.last_observation(job_id, ObservationKind.COMMAND)
    return "" if recorded is None else str(recorded.payload["command"])


def read_facts(store: Store, job_id: str) -> JobFacts:
    """Return the records of a job in the database, read in one transaction."""
    with store.transaction() as now:
        job = now.jobs.job(job_id)
        if job.kind is JobKind.SWEEP:
            raise InputError(f"job {job_id}: is a sweep; `proteus sweep report {job_id}` writes its report")
        entries = now.journals.entries(job_id)
        allocations, ledger = now.purchases.allocations(job_id), now.purchases.ledger(job_id)
        progress = now.jobs.observations(job_id, ObservationKind.PROGRESS)
        shards = now.jobs.observations(job_id, ObservationKind.SHARDS)
    try:
        journal = tuple(map(_timed, entries))
    except JournalError as error:
        raise StoreError(f"job {job_id}: {error}") from error
    return JobFacts(job, journal, tuple(allocations), tuple(ledger), tuple(progress), tuple(shards), deadline_s(job))


def write_report(
    job_id: str, *, output: Path | None = None, database: str | None = None, directory: Path | None = None
) -> Path:
    """Write the report of a job; return the file.

    Parameters
    ----------
    output
        The file. Default: ``report.html`` in the run's directory where there is one, ``<job>-report.html`` in that of
        `proteus up`, else here.
    database
        URL of the state database. Default: ``state.db`` in the run's directory, else that of the settings.
    directory
        The run's directory. Default: ``runs/<job>``, where there is one, else that of `proteus up` if it has the job.

    Raises
    ------
    InputError
        If there is no such directory, database or job, or the file cannot be written.
    """
    if directory is not None and not directory.is_dir():
        raise InputError(f"{directory}: is not a directory; --dir names where the run kept its state")
    run_directory = job_directory(job_id, directory) if "/" not in job_id else Path("runs") / job_id
    exists = run_directory.is_dir() and "/" not in job_id
    if database is None:
        held = directory is not None or (exists and (run_directory / "state.db").is_file())
        database = sqlite_url(run_directory / "state.db") if held else load_settings().database_url
    check_exists(database)
    local_blobs = run_directory / "blobs"
    is_local = directory is not None or (exists and local_blobs.is_dir())
    blob_url = file_url(local_blobs) if is_local else load_settings().blob_url
    with Store.open(database) as store:
        page = gather(store, job_id, blob_url)
    own = exists and not is_up_directory(run_directory)
    named = f"{job_id}-report.html"
    path = output or (run_directory / "report.html" if own else run_directory / named if exists else Path(named))
    write(page, path)
    return path


def _timed(entry: JournalEntry) -> Timed:
    """Return an entry and its time: an event's own time, or for an order that of the tick it answers."""
    item = from_record(entry.record)
    if isinstance(item, Acquire | Renew | Lapse | Wait):
        return int(entry.at_s), item
    return item.at_s, item
