"""The ledger: the cost of every hour of every allocation, brought up to date with the market."""

import logging

from bidding.market.money import usd
from bidding.market.spot_market import MarketError
from bidding.market.traces import TraceSet
from infra.state.ledger import book
from tasks.job_records import job_spec
from tasks.market.prices import history
from tasks.runtime import current_runtime, runtime_task

_log = logging.getLogger(__name__)


def book_or_postpone(job_id: str) -> int | None:
    """Do what `book_ledger` does; return None if the market reports no prices: a later tick books the same."""
    try:
        return book_ledger(job_id)
    except MarketError as error:
        _log.warning("the ledger waits for the next tick: the market did not report its prices (%s)", error.code)
        return None


@runtime_task("book the ledger", market=True)
def book_ledger(job_id: str) -> int:
    """Bring the job's ledger up to now; return how many lines were added."""
    runtime = current_runtime()
    records = runtime.store.allocations(job_id)
    spot = [record.allocation for record in records if record.allocation.bid_micros is not None]
    now_s = runtime.now_s()
    traces = (
        history(sorted({a.market for a in spot}), min(a.launched_at_s for a in spot), now_s) if spot else TraceSet({})
    )
    billing = job_spec(job_id).transient.billing_model
    booking = book(runtime.store, job_id, traces, runtime.catalog, now_s, billing)
    for booked, due in booking.disputed:
        _log.warning(
            "%s: booked as %s, and would be %s by the prices that are reported now; the ledger keeps the first",
            booked.entry_id,
            usd(booked.amount_micros),
            usd(due.amount_micros),
        )
    return len(booking.added)
