"""A tick that buys, late in a long job: the flow's own code on a journal of 600 ticks; on 10,000 whole, under Prefect.

The job lives in a generated market behind the `SpotMarket` Protocol. It is made by the tasks themselves, so that its
journal, its tables and the market agree; a spot machine is taken before each measured tick, so that it buys.
"""

import asyncio
import logging
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

import numpy as np
from prefect import Task, flow
from prefect.logging.configuration import setup_logging
from prefect.logging.handlers import APILogWorker
from prefect.settings import PREFECT_API_URL, PREFECT_HOME, temporary_settings

import proteus_spot.flows.allocation_tick
import proteus_spot.tasks.market.decisions
import proteus_spot.tasks.market.renewals
import proteus_spot.tasks.task_runtime
import proteus_spot.tasks.training.running_controller
from proteus_spot.benchmarks.figure import Figure, figure, seconds
from proteus_spot.benchmarks.market import candidates
from proteus_spot.bidding.engine.events import TickDue
from proteus_spot.bidding.engine.journal import replay, to_record
from proteus_spot.bidding.engine.orders import Acquire, Lapse
from proteus_spot.bidding.market.model import HOUR_S, Market
from proteus_spot.bidding.market.traces import TraceSet
from proteus_spot.bidding.synthetic.renewal_market import LIVELY, generate
from proteus_spot.infra.local_market.prefect_server import QUIET, LocalPrefect
from proteus_spot.infra.market_data.catalogs import read_catalog
from proteus_spot.infra.runtime import Runtime
from proteus_spot.infra.settings import Settings
from proteus_spot.infra.simulated_ec2.faults import Fault, FaultKind
from proteus_spot.infra.simulated_ec2.market import SimSpotMarket
from proteus_spot.infra.simulated_ec2.rules.behaviour import Ec2Behaviour
from proteus_spot.infra.simulated_ec2.stored_market import MarketState
from proteus_spot.infra.state.journal_tables import JournalTables
from proteus_spot.infra.state.records import Entry, IntentState, JournalEntry, ObservationKind
from proteus_spot.infra.state.store import Store
from proteus_spot.infra.storage.blobs import Blobs
from proteus_spot.studies.job_spec import JobSpec
from proteus_spot.tasks.job_records import record_job
from proteus_spot.tasks.market.bookkeeping import book_ledger
from proteus_spot.tasks.market.engine_journal import JobEngine
from proteus_spot.tasks.market.ingest import fetch_prices, history_days, markets_of
from proteus_spot.tasks.market.job_opening import open_job
from proteus_spot.tasks.market.listed_machines import let_go, observe_machines
from proteus_spot.tasks.market.purchases.reliable_purchases import secure_reliable_tier
from proteus_spot.tasks.market.purchases.sending import buy

TICKS = 600
#: Ticks of two weeks, for the row of a tick that is measured whole.
LONG_TICKS = 10_000
PERIOD_S = 120
_BEGIN = datetime(2016, 6, 1, tzinfo=UTC)
_HISTORY_S = 14 * 86_400
_TYPES = ("c4.large", "c4.xlarge", "m4.large", "r3.large")
_ZONES = ("us-east-1a", "us-east-1b")
_ROUNDS = 5
_JOB = "bench"
_MARKETS = tuple(Market(name, zone) for name in _TYPES for zone in _ZONES)
_SPEC = JobSpec.model_validate(
    {
        "job_id": _JOB,
        "training": {"clocks": 1000},
        "reliable": {"count": 1},
        "transient": {
            "markets": [str(market) for market in _MARKETS],
            "allocation_vcpus": 4,
            "max_vcpus": 16,
            "policy": "proteus",
        },
    }
)


class StillClock:
    """Market time that stands where it was put."""

    scale = 1.0

    def __init__(self, at_s: float) -> None:
        self.at_s = at_s

    def now_s(self) -> float:
        """Return market time."""
        return self.at_s

    def wait_until(self, at_s: float, wake: object = None) -> bool:
        """Refuse: a tick that waits is not measured for what it does."""
        raise AssertionError(f"the tick waits until {at_s}")


@dataclass(frozen=True)
class LateJob:
    """A job after many ticks, as its database, its blobs and the market remember it."""

    database: Path
    blobs: Path
    traces: TraceSet
    market: MarketState
    now_s: float

    @contextmanager
    def world(self, database: Path, at_s: float | None = None) -> Iterator[Runtime]:
        """Give the tasks of this process a copy of the job to work on."""
        shutil.copyfile(self.database, database)
        clock = StillClock(self.now_s if at_s is None else at_s)
        market = _market(self.traces, clock)
        market.restore(self.market)
        with _world(database, self.blobs, market, clock) as runtime:
            yield runtime


def late_job(scratch: Path, ticks: int) -> LateJob:
    """Return a job that was ticked so often in a generated market."""
    types = read_catalog().at(_BEGIN.date(), "us-east-1")
    from_s = int(_BEGIN.timestamp())
    start_s = from_s + _HISTORY_S
    on_demand = {market: types[market.instance_type].on_demand_micros for market in _MARKETS}
    until_s = start_s + (ticks + 1) * PERIOD_S
    traces = generate(on_demand, from_s, until_s, np.random.default_rng(0), climate=LIVELY)
    clock = StillClock(float(start_s))
    market = _market(traces, clock)
    database, blobs = scratch / "late.db", scratch / "blobs"
    with _world(database, blobs, market, clock) as runtime, without_prefect():
        job_engine = JobEngine(_JOB)
        record_job(_SPEC)
        fetch_prices(markets_of(_SPEC), history_days())
        open_job(_SPEC, job_engine)
        secure_reliable_tier(_SPEC, job_engine)
        runtime.store.jobs.set_controller(_JOB, "tcp://controller:1")
        runtime.store.jobs.observe(_JOB, start_s, ObservationKind.TRAINING_BEGUN, {"address": "tcp://controller:1"})
        for _ in range(ticks):
            prices = traces.prices_at(int(clock.at_s))
            for order in proteus_spot.tasks.market.decisions.decide(job_engine, observe_machines(_JOB), prices, {}):
                match order:
                    case Acquire():
                        buy(_SPEC, job_engine, order)
                    case Lapse():
                        let_go(_JOB, {order.allocation_id: order.instance_ids})
            clock.at_s += PERIOD_S
        book_ledger(_JOB)
    return LateJob(database, blobs, traces, market.state("generated"), clock.at_s)


def run(scratch: Path, ticks: int = TICKS, rounds: int = _ROUNDS, long_ticks: int = LONG_TICKS) -> list[Figure]:
    """Measure.

    Parameters
    ----------
    ticks : ticks that the job has had before the measured one.
    rounds : times that each is measured.
    long_ticks : ticks that the job has had whose tick is measured whole.
    """
    late = late_job(scratch, ticks)
    ours, limit = [], []
    for number in range(rounds):
        with late.world(scratch / f"limit-{number}.db") as runtime:
            limit.append(seconds(partial(_least, runtime, late)))
        with late.world(scratch / f"alone-{number}.db") as runtime, without_prefect():
            _take_one(runtime)
            ours.append(seconds(partial(_tick_that_buys, runtime, _tick)))
    with late.world(scratch / "counted.db") as runtime, without_prefect(), _counted() as counts:
        length = len(runtime.store.journals.entries(_JOB))
        counts.clear()
        _take_one(runtime)
        _tick_that_buys(runtime, _tick)
    (scratch / "long").mkdir()
    long = late_job(scratch / "long", long_ticks)
    whole, empty = zip(*_under_prefect(long, scratch / "long", rounds), strict=True)
    job = f"a tick that buys, on a journal of {ticks} ticks ({length:,} entries)"
    least = "one replay, one decision, one commit"
    alone = "describe, prices, decide, buy, book the ledger; what goes to Prefect left out"
    reads = f"{counts['entries']:,} entries read, {counts['commits']} commits"
    through = "through the deployed flow and its tasks, on a Prefect server of this machine"
    return [
        figure("tick", f"{job}: its work", "s", ours, limit, least, alone),
        figure("tick", f"{job}: loads of the engine", "loads", [float(counts["loads"])], [1.0], "one", reads),
        figure(
            "tick",
            f"a tick that buys, on a journal of {long_ticks:,} ticks: whole",
            "s",
            list(whole),
            list(empty),
            "an empty flow on the same server",
            through,
        ),
        candidates.run(rounds),
    ]


def _market(traces: TraceSet, clock: StillClock) -> SimSpotMarket:
    catalog = read_catalog()
    forgets = Ec2Behaviour(remember_s=HOUR_S)  # as EC2 does: what has ended is listed for an hour
    return SimSpotMarket(traces, lambda market: catalog.find(market, _BEGIN.date()), clock.now_s, behaviour=forgets)


@contextmanager
def _world(database: Path, blobs: Path, market: SimSpotMarket, clock: StillClock) -> Iterator[Runtime]:
    settings = Settings(blob_url=blobs.as_uri(), database_url=f"sqlite:///{database}", tick_s=PERIOD_S)
    with Store.open(settings.database_url) as store:
        runtime = Runtime(settings, clock, store, Blobs(settings.blob_url), market, read_catalog())
        with (
            patch.object(proteus_spot.tasks.task_runtime, "open_runtime", lambda: runtime),
            patch.object(
                proteus_spot.tasks.training.running_controller, "look", lambda address, since_clock: _status(market)
            ),
        ):
            yield runtime


def _status(market: SimSpotMarket) -> dict[str, Any]:
    """Return the status of the job's controller, which answers at once."""
    nodes = [{"name": fact.instance_id, "state": "ready"} for fact in market.describe() if fact.alive]
    return {
        "job_id": _JOB,
        "state": "running",
        "clock": market.now_s,
        "losses": [],
        "stage": 1,
        "nodes": nodes,
        "notices": [],
        "repeated_micro_tasks": 0,
    }


@contextmanager
def without_prefect() -> Iterator[None]:
    """Have a task be the function that it wraps, and send nothing to a server."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(Task, "__call__", lambda task, *args, **kwargs: task.fn(*args, **kwargs)))
        stack.enter_context(
            patch.object(proteus_spot.flows.allocation_tick, "show_job_now_and_then", lambda job_id: None)
        )
        stack.enter_context(patch.object(proteus_spot.tasks.market.renewals, "run_deployment", lambda name, **_: None))
        stack.enter_context(
            patch.object(proteus_spot.flows.allocation_tick, "get_run_logger", lambda: logging.getLogger(__name__))
        )
        yield


@contextmanager
def _counted() -> Iterator[Counter[str]]:
    """Count the loads of an engine, the entries that are read, and the commits to the journal."""
    counts = Counter[str]()
    read, append, restore = JournalTables.entries, JournalTables.append, JobEngine._restored

    def entries(journals: JournalTables, *args: Any, **options: Any) -> list[JournalEntry]:
        found = read(journals, *args, **options)
        counts["entries"] += len(found)
        return found

    def appended(journals: JournalTables, job_id: str, expected_seq: int, added: Sequence[Entry]) -> int:
        counts["commits"] += 1
        return append(journals, job_id, expected_seq, added)

    def restored(job_engine: JobEngine) -> Any:
        counts["loads"] += 1
        return restore(job_engine)

    with (
        patch.object(JournalTables, "entries", entries),
        patch.object(JournalTables, "append", appended),
        patch.object(JobEngine, "_restored", restored),
    ):
        yield counts


def _take_one(runtime: Runtime) -> None:
    """Have the market take the spot machines that were bought last, so that there is something to buy."""
    assert isinstance(runtime.market, SimSpotMarket)
    alive = [fact for fact in runtime.market.describe() if fact.alive and fact.bid_micros is not None]
    for fact in alive:
        if fact.token == alive[-1].token:
            runtime.market.add_fault(Fault(FaultKind.KILL, instance_id=fact.instance_id))


def _tick_that_buys(runtime: Runtime, tick: Callable[[], str]) -> None:
    done = tick()
    assert "acquire" in done, f"the tick bought nothing: {done}"
    assert not runtime.store.purchases.intents(_JOB, [IntentState.PLANNED]), "the purchase is written down"


def _least(runtime: Runtime, late: LateJob) -> None:
    """Do the necessary work of a tick: read and replay the journal, decide, and write the decision."""
    store, now_s = runtime.store, int(late.now_s)
    journal = store.journals.entries(_JOB)
    engine = replay(entry.record for entry in journal)
    event = TickDue(now_s, late.traces.prices_at(now_s))
    items: list[tuple[Literal["event", "order"], Any]] = [("event", event)]
    items += [("order", order) for order in engine.handle(event)]
    with store.transaction() as both:
        both.journals.append(
            _JOB, len(journal), [Entry(side, late.now_s, late.now_s, to_record(item)) for side, item in items]
        )


def _under_prefect(late: LateJob, scratch: Path, rounds: int) -> Iterator[tuple[float, float]]:
    """Measure the flow and an empty one on a Prefect server; the first runs, which load what all need, are left out."""
    server = LocalPrefect(scratch / "prefect", scratch / "server.log")
    server.start()
    try:
        server.wait_ready()
        with (
            patch.dict(os.environ, QUIET),
            temporary_settings({PREFECT_API_URL: server.api_url, PREFECT_HOME: scratch / "prefect"}),
        ):
            setup_logging()
            for number in range(1 + rounds):
                with late.world(scratch / f"flow-{number}.db") as runtime:
                    _take_one(runtime)
                    took = seconds(partial(_tick_that_buys, runtime, _flow_run))
                empty = seconds(lambda: asyncio.run(_empty()))
                if number:
                    yield took, empty
            APILogWorker.drain_all(timeout=20)
    finally:
        server.stop()


@flow(name="empty")
async def _empty() -> None:
    """Do nothing."""


def _tick() -> str:
    return proteus_spot.flows.allocation_tick.tick_job(_JOB)


def _flow_run() -> str:
    return str(asyncio.run(proteus_spot.flows.allocation_tick.allocation_tick(_JOB))[_JOB])
