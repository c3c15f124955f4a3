"""The tick: look at prices and machines, decide what to buy, hold and let go, and do it.

A tick may die at any line: orders are written down before they are carried out, every purchase has a token, and the
next tick compares what was planned, requested and observed.
"""

from collections.abc import Mapping

from prefect import flow

from bidding.actions import Acquire, Lapse, Order, Renew, Wait
from tasks.claims import claimed
from tasks.clocks import stale
from tasks.decisions import decide, opened_markets, publish
from tasks.jobs import close_job, is_open, job_spec, saved_result, ticking_jobs
from tasks.ledger import book_ledger
from tasks.machines import buy, let_go, machine_names, observe_machines, release_reliable_tier
from tasks.prices import observe_prices
from tasks.training import drain

#: Real seconds that a machine has to hand its work over before it is let go.
_DRAIN_S = 5.0


@flow(name="allocation-tick", validate_parameters=True)
async def allocation_tick(job_id: str | None = None) -> dict[str, str]:
    """Make one decision for every job that is open, or for one; return what was done, by job."""
    if stale():
        return {"skipped": "a later tick is due already"}
    return {name: tick_job(name) for name in ticking_jobs(job_id)}


def tick_job(job_id: str, notices: Mapping[str, int] | None = None, patience_s: float = 0.0) -> str:
    """Reconcile, decide and act for one job; return that in a few words.

    Parameters
    ----------
    notices : allocations that the market has said it will take, and when.
    patience_s : market seconds to wait for another tick of the job to end.
    """
    with claimed(job_id, patience_s) as mine:
        if not mine:
            return "somebody else is at it"
        result = saved_result(job_id)
        if result is not None:
            close_job(job_id, result)  # its flow died after the work was done
            release_reliable_tier(job_id)
        facts = observe_machines(job_id)
        prices = observe_prices(opened_markets(job_id))
        orders = decide(job_id, facts, prices, notices or {})
        for order in orders:
            carry_out(job_id, order)
        book_ledger(job_id)
        publish(job_id, orders)
    return ", ".join(type(order).__name__.lower() for order in orders) or "nothing to do"


def carry_out(job_id: str, order: Order) -> None:
    """Do what the engine ordered."""
    match order:
        case Acquire():
            buy(job_spec(job_id), order)
        case Lapse():
            if is_open(job_id):
                drain(job_id, machine_names(job_id, order.allocation_id), _DRAIN_S)
            let_go(job_id, [order.allocation_id])
        case Renew() | Wait():
            pass  # what is held stays held; the ledger books its hour when it begins
