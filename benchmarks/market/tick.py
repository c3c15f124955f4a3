"""A tick late in a long job: its journal of 600 ticks read, replayed, and one more decision made and written."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from benchmarks.figure import Figure, figure, seconds
from bidding.economics.job_model import JobModel
from bidding.engine.engine import AllocationState, BidEngine
from bidding.engine.events import AllocationGone, AllocationGranted, Event, JobOpened, TickDue
from bidding.engine.journal import replay, to_record
from bidding.engine.orders import Acquire, Lapse, Order
from bidding.evictions.table import fit
from bidding.market.model import Allocation, EndCause, Market
from bidding.market.traces import TraceSet
from bidding.synthetic.renewal_market import LIVELY, generate
from infra.market_data.catalogs import read_catalog
from infra.state.records import Entry
from infra.state.store import Store

TICKS = 600
PERIOD_S = 120
_BEGIN = datetime(2016, 6, 1, tzinfo=UTC)
_HISTORY_S = 14 * 86_400
_TYPES = ("c4.large", "c4.xlarge", "m4.large", "r3.large")
_ZONES = ("us-east-1a", "us-east-1b")
_ROUNDS = 5
_JOB = "bench"


def story(ticks: int) -> tuple[list[Entry], TraceSet, int]:
    """Return the journal of a job that was ticked so often in a generated market, the market, and when the next is due.

    What is ordered is granted at once, and taken when the price passes the bid.
    """
    types = read_catalog().at(_BEGIN.date())
    types = {name: types[name] for name in _TYPES}
    from_s = int(_BEGIN.timestamp())
    start_s = from_s + _HISTORY_S
    markets = {Market(name, zone): types[name].on_demand_micros for name in _TYPES for zone in _ZONES}
    until_s = start_s + (ticks + 1) * PERIOD_S
    traces = generate(markets, from_s, until_s, np.random.default_rng(0), climate=LIVELY)
    engine, entries = BidEngine(), []

    def enter(event: Event) -> Sequence[Order]:
        orders = engine.handle(event)
        entries.append(Entry("event", float(event.at_s), float(event.at_s), to_record(event)))
        entries.extend(Entry("order", float(event.at_s), float(event.at_s), to_record(order)) for order in orders)
        return orders

    job = JobModel(allocation_vcpus=4, max_spot_vcpus=16)
    table = fit(traces.between(from_s, start_s), from_s, start_s)
    enter(JobOpened(start_s, _JOB, job, "proteus", types, tuple(sorted(markets)), table))
    for now_s in range(start_s, start_s + ticks * PERIOD_S, PERIOD_S):
        for name, position in engine.positions.items():
            held = position.allocation
            assert held.bid_micros is not None
            taken_s = traces[held.market].first_above(held.bid_micros, held.launched_at_s)
            if position.standing is not AllocationState.GONE and taken_s is not None and taken_s <= now_s:
                enter(AllocationGone(taken_s, name, EndCause.EVICTED))
        for order in enter(TickDue(now_s, traces.prices_at(now_s))):
            match order:
                case Acquire():
                    bought = Allocation(
                        order.order_id, order.market, order.count, now_s, bid_micros=order.bid_micros
                    )  # fmt: skip
                    enter(AllocationGranted(now_s, order.order_id, bought))
                case Lapse():
                    enter(AllocationGone(now_s, order.allocation_id, EndCause.USER))
    return entries, traces, start_s + ticks * PERIOD_S


def run(scratch: Path) -> list[Figure]:
    """Measure."""
    entries, traces, now_s = story(TICKS)
    with Store.open(f"sqlite:///{scratch / 'tick.db'}") as store:
        store.create_job(_JOB, {}, 0.0)
        store.append(_JOB, 0, entries)

        def tick() -> None:
            journal = store.journal(_JOB)
            engine = replay(entry.record for entry in journal)
            event = TickDue(now_s, traces.prices_at(now_s))
            orders = engine.handle(event)
            at_s = float(now_s)
            new = [Entry("event", at_s, at_s, to_record(event))]
            new += [Entry("order", at_s, at_s, to_record(order)) for order in orders]
            with store.transaction() as both:
                both.append(_JOB, len(journal), new)

        took = [seconds(tick) for _ in range(_ROUNDS)]
    what = f"a tick on a journal of {TICKS} ticks ({len(entries):,} entries)"
    return [figure("tick", what, "s", took, [float(PERIOD_S)], "the period of 120 s", "read, replay, decide, write")]
