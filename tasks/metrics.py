"""Metrics of the jobs and sweeps in a state database, in Prometheus's form, read anew at each scrape."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from types import MappingProxyType

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from proteus_spot.bidding.market.model import Tier
from proteus_spot.bidding.market.money import to_dollars
from proteus_spot.infra.clock import Clock, open_clock
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.local_market.environment import clock_file
from proteus_spot.infra.local_market.job_stores import check_exists
from proteus_spot.infra.settings import load_settings
from proteus_spot.infra.state.records import Job, JobKind, LedgerLine, ObservationKind
from proteus_spot.infra.state.store import Store
from proteus_spot.infra.urls import sqlite_url
from proteus_spot.tasks.sweeps.sweep_state import sweep_view

#: A metric's name, its labels beside the job, and its value.
Found = tuple[str, tuple[str, ...], float]
#: Market seconds for which an ended job is still reported.
_SHOWN_S = 86_400
#: Labels of a metric beside the job.
_LABELS = MappingProxyType({"machines": ["tier"], "trials": ["state"]})
_OF_JOBS = MappingProxyType(
    {
        "cost_dollars": "Sum of the ledger.",
        "budget_dollars": "Budget; absent without one.",
        "dollars_per_hour": "Last booked hourly price of the machines that are held.",
        "machines": "Machines held, by tier.",
        "clock": "Last clock of the training.",
        "loss": "Loss at the last clock.",
        "ticks_failed": "Failures of the job's ticks so far, runs of the same failure counted once.",
        "tick_failing": "1 if the last tick of the job failed.",
        "open": "1 while the job is open.",
        "trials": "Trials of a sweep, by state.",
        "best_value": "Metric of the best trial of a sweep so far.",
    }
)


class JobMetrics(Collector):
    """The metrics of one state database."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics as they stand now."""
        families = {
            name: GaugeMetricFamily(f"proteus_job_{name}", what, labels=["job", *_LABELS.get(name, [])])
            for name, what in _OF_JOBS.items()
        }
        now_s = self._clock.now_s()
        for job in self._store.jobs.list_jobs():
            if job.ended_at_s is None or now_s - job.ended_at_s < _SHOWN_S:
                figures = self._of_job if job.kind is JobKind.JOB else self._of_sweep
                for name, labels, value in chain(self._of_both(job), figures(job)):
                    families[name].add_metric([job.job_id, *labels], value)
        yield from families.values()
        newest_s = self._store.journals.newest_entry_s()
        if newest_s is not None:
            age_s = max(now_s - newest_s, 0.0)
            yield GaugeMetricFamily("proteus_last_tick_age_seconds", "Since the last decision.", value=age_s)

    def _of_both(self, job: Job) -> Iterable[Found]:
        store, job_id = self._store, job.job_id
        yield "open", (), float(not job.state.terminal)
        yield "cost_dollars", (), to_dollars(store.purchases.spent(job_id))
        if (budget := job.spec.get("budget_usd")) is not None:
            yield "budget_dollars", (), float(budget)
        last = {line.allocation_id: line for line in sorted(store.purchases.ledger(job_id), key=_when)}
        held, rate = dict.fromkeys(Tier, 0), 0
        for record in store.purchases.allocations(job_id, alive=True):
            held[record.allocation.tier] += record.living_count
            if (line := last.get(record.allocation_id)) is not None:
                rate += line.price_micros * record.living_count
        yield "dollars_per_hour", (), to_dollars(rate)
        yield from (("machines", (str(tier),), float(count)) for tier, count in held.items())

    def _of_job(self, job: Job) -> Iterable[Found]:
        store, job_id = self._store, job.job_id
        point = store.jobs.last_observation(job_id, ObservationKind.PROGRESS)
        if point is not None:
            yield "clock", (), float(point.payload["clock"])
            if point.payload.get("loss") is not None:
                yield "loss", (), float(point.payload["loss"])
        ticks = [seen.payload["failed"] for seen in store.jobs.observations(job_id, ObservationKind.TICK)]
        yield "ticks_failed", (), float(sum(map(bool, ticks)))
        yield "tick_failing", (), float(bool(ticks and ticks[-1]))

    def _of_sweep(self, job: Job) -> Iterable[Found]:
        view = sweep_view(self._store, job.job_id)
        yield from (("trials", (state,), float(count)) for state, count in view.counts.items())
        if view.best is not None and view.best.value is not None:
            yield "best_value", (), view.best.value


def _when(line: LedgerLine) -> tuple[int, int]:
    return line.hour_index, line.at_s


@contextmanager
def opened_registry(database: str | None, directory: Path | None) -> Iterator[CollectorRegistry]:
    """Open a state database (None: that of the settings), or that of a local run; yield a registry with its metrics.

    Raises
    ------
    InputError
        If both are given, the database does not exist, or the directory is of no run.
    """
    if directory is not None and database is not None:
        raise InputError("--dir and --database: give one of the two")
    if database is not None:
        check_exists(database)
    if directory is not None and not (directory / "state.db").is_file():
        raise InputError(f"--dir {directory}: no run has kept its state there; name another directory")
    settings = load_settings()
    url = database or (settings.database_url if directory is None else sqlite_url(directory / "state.db"))
    registry = CollectorRegistry()
    with Store.open(url) as store:
        clock = open_clock(settings.clock if directory is None else str(clock_file(directory)))
        registry.register(JobMetrics(store, clock))
        yield registry
