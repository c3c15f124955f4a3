"""List of jobs and their costs over all state databases that a user selects."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from proteus_spot.infra.errors import ProteusError
from proteus_spot.infra.local_market.announcement import find_announcement
from proteus_spot.infra.local_market.job_stores import JobStore, find_job, is_under_way, open_job_stores
from proteus_spot.infra.settings import load_settings
from proteus_spot.infra.state.records import Job, JobKind, ObservationKind
from proteus_spot.infra.state.store import Store
from proteus_spot.infra.storage.blobs import Blobs, open_blobs
from proteus_spot.infra.urls import file_url
from proteus_spot.studies.market_data.price_feed import ended_prices
from proteus_spot.tasks.job_ends import lateness, why_ended
from proteus_spot.tasks.job_queues import queue_line
from proteus_spot.tasks.market.costs import CostRow, ZoneTraffic, cost_rows, zone_traffic
from proteus_spot.tasks.market.purchases.waiting import what_purchases_wait_for
from proteus_spot.tasks.reports.alarm_lines import waiting_line
from proteus_spot.tasks.reports.job_summary import snapshot_of


@dataclass(frozen=True, slots=True)
class JobLine:
    """A job as a list shows it.

    Attributes
    ----------
    market_s : seconds of market time from its begin to its end, or to now.
    spent_is_known : false until the first charge is booked.
    begun_s, ended_s : market time (Unix seconds); `ended_s` is None while its work goes on.
    kind : "job" or "sweep".
    paused : of a local run, or of a `proteus up`, that is not under way: nothing of it runs or costs.
    clock, loss : of a sweep the steps of all trials, and the best metric, which `why` names.
    directory : of a local run; None where the database is shared.
    page : address of the job's page in the Prefect UI; None before its run has made it, and of a local run whose
        server has ended.
    """

    job_id: str
    state: str
    market_s: float
    clock: int
    loss: float | None
    machines: int
    evictions: int
    spent_micros: int
    why: str
    spent_is_known: bool
    begun_s: float
    ended_s: float | None
    directory: str | None
    page: str | None = None
    paused: bool = False
    kind: str = "job"


def list_jobs(database: str | None = None, directory: Path | None = None) -> tuple[list[JobLine], list[str]]:
    """Return every job, database by database and oldest first, and a line for each database that cannot be read.

    `database` and `directory` choose as in `infra.local_market.job_stores.open_job_stores`.
    """
    with open_job_stores(database, directory) as (stores, left_out):
        notes = list(left_out)
        return [line for each in stores for line in job_lines(each, notes)], notes


def list_costs(
    job_ids: Sequence[str], database: str | None = None, directory: Path | None = None
) -> tuple[list[CostRow], list[str]]:
    """Return what the jobs (all, or those named) have cost, and a line for each database that cannot be read.

    Raises
    ------
    InputError
        If a job that is named is in none of them.
    """
    with open_job_stores(database, directory) as (stores, left_out):
        if not job_ids:
            return [row for each in stores for row in cost_rows(store=each.store)], left_out
        found = [(find_job(stores, job_id), job_id) for job_id in job_ids]
        return [row for each, job_id in found for row in cost_rows([job_id], each.store)], left_out


def list_zone_traffic(
    job_ids: Sequence[str], database: str | None = None, directory: Path | None = None
) -> list[ZoneTraffic]:
    """Return what the jobs (all, or those named) have exchanged between zones, those alone that have."""
    with open_job_stores(database, directory) as (stores, _):
        found = [(each.store, each.store.jobs.job(job_id)) for job_id in job_ids for each in [find_job(stores, job_id)]]
        if not job_ids:
            found = [(each.store, job) for each in stores for job in each.store.jobs.list_jobs()]
        moved = [zone_traffic(store, job) for store, job in found]
    return [each for each in moved if each.crossed_bytes]


def job_lines(jobs: JobStore, notes: list[str]) -> list[JobLine]:
    """Return every job of one database, oldest first; add a line to `notes` if the alarms of jobs cannot be read."""
    lines = []
    up = None if jobs.directory is None else find_announcement(jobs.directory)
    ended = "" if up is None else ended_prices(up)
    rests = jobs.directory is not None and not is_under_way(jobs.directory)
    for job in jobs.store.jobs.list_jobs():
        ended_s = job.ended_at_s if job.ended_at_s is not None else jobs.now_s(job.job_id)
        shot = snapshot_of(jobs.store, job.job_id, ended_s)
        held = sum(holding.count for holding in shot.holdings if holding.state in ("held", "noticed", "lapsing"))
        clock, loss, trials = shot.clock, shot.loss, ""
        if job.kind is JobKind.SWEEP:
            clock, loss, trials = _sweep_progress(jobs.store, job, notes)
        nothing_bought = shot.buys_nothing or ("" if job.state.terminal else ended)
        purchase = what_purchases_wait_for(jobs.store, job)
        failing = _failing(jobs.store, job.job_id, purchase)
        waits = (purchase, failing, nothing_bought, shot.unpriced, _alarm(jobs, job, notes))
        reasons = (queue_line(jobs.store, job), why_ended(job), lateness(job, ended_s), trials, *waits)
        lines.append(
            JobLine(
                job_id=job.job_id,
                state=str(job.state),
                market_s=ended_s - job.created_at_s,
                clock=clock,
                loss=loss,
                machines=held,
                evictions=shot.evictions,
                spent_micros=shot.spent_micros,
                why="; ".join(filter(None, reasons)),
                spent_is_known=shot.spent_is_known,
                begun_s=job.created_at_s,
                ended_s=job.ended_at_s,
                directory=None if jobs.directory is None else str(jobs.directory),
                page=None if rests else _page(jobs, job.job_id),
                kind=str(job.kind),
                paused=rests and not job.state.terminal,
            )
        )
    return lines


def _sweep_progress(store: Store, sweep: Job, notes: list[str]) -> tuple[int, float | None, str]:
    """Return the steps of all trials, the best metric, and in words that and how many trials are in each state."""
    from proteus_spot.bidding.engine.journal import JournalError  # only for sweeps: the engines take a while to import
    from proteus_spot.bidding.tuning.sweep_journal import replay
    from proteus_spot.bidding.tuning.sweep_record import SweepError
    from proteus_spot.bidding.tuning.views import result_view

    try:
        view = result_view(replay(entry.record for entry in store.journals.entries(sweep.job_id)).sweep)
    except (JournalError, SweepError) as error:
        notes.append(f"sweep {sweep.job_id}: its journal cannot be read: {error}")
        return 0, None, ""
    counts = Counter(str(trial.state) for trial in view.trials)
    value = next((trial.value for trial in view.trials if trial.number == view.best), None)
    best = [] if value is None else [f"best {sweep.spec['metric']['name']} {value:.6g}"]
    trials = [f"trials: {', '.join(f'{count} {state}' for state, count in counts.items())}"] if counts else []
    return sum(trial.steps for trial in view.trials), value, "; ".join([*best, *trials])


def _failing(store: Store, job_id: str, waits: str) -> str:
    """Return why the ticks of a job fail; empty if the last one did not, or `waits` says the same of its purchases."""
    last = store.jobs.last_observation(job_id, ObservationKind.TICK)
    if last is None or not last.payload["failed"] or (waits and last.payload["is_purchase"]):
        return ""
    return f"its ticks fail: {last.payload['failed']}"


def _alarm(jobs: JobStore, job: Job, notes: list[str]) -> str:
    """Return what the machines of an open job report in its bucket; empty if they report nothing."""
    if job.state.terminal:
        return ""
    directory = jobs.directory
    try:
        blobs = open_blobs(load_settings()) if directory is None else Blobs(file_url(directory / "blobs"))
        return waiting_line(blobs, job.job_id)
    except ProteusError as error:
        notes.append(f"alarms of job {job.job_id}: {error}")
        return ""


def _page(jobs: JobStore, job_id: str) -> str | None:
    seen = jobs.store.jobs.last_observation(job_id, ObservationKind.PAGE)
    return None if seen is None else str(seen.payload["url"])
