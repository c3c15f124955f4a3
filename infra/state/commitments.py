"""The maximum of a job's ledger: what is booked, what is due, and what may still run. No I/O."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from proteus_spot.bidding.billing import BillingModel
from proteus_spot.bidding.market.catalog import Catalog
from proteus_spot.bidding.market.model import Allocation, EndCause, Market, Tier
from proteus_spot.bidding.market.money import Micros
from proteus_spot.bidding.market.traces import Trace
from proteus_spot.infra.state.charges.charge_prices import Planned, charging_model
from proteus_spot.infra.state.records import AllocationRecord, Intent, LedgerKind, LedgerLine


def most_owed(
    records: Sequence[AllocationRecord],
    booked: Sequence[LedgerLine],
    price_traces: Mapping[Market, Trace],
    catalog: Catalog,
    now_s: int,
    until_s: Callable[[AllocationRecord], int],
    spot_billing: BillingModel,
    planned: Planned = lambda market: None,
) -> Micros:
    """Return the maximum of the ledger if each machine runs until `until_s`, and nothing more is bought.

    Parameters
    ----------
    records : what was bought, and what was requested (see `requested`).
    booked : the lines of the ledger; a refund counts once it is among them.
    price_traces : known prices; an hour without one is charged at the bid.
    until_s : when a machine of an allocation is ended at the latest.
    planned : on-demand prices that stand where the catalogue has none.

    Raises
    ------
    BillingError
        If an on-demand price is not known.

    Notes
    -----
    A price after `now_s` is taken to be the bid, which no price that is paid can pass; so is that of a purchase without
    an answer, for its launch may be still to come.
    """
    charged = {(line.allocation_id, line.hour_index) for line in booked if line.kind is LedgerKind.CHARGE}
    total = sum(line.amount_micros for line in booked)
    for record in records:
        allocation = record.allocation
        model = charging_model(record, catalog, spot_billing, planned)
        known = price_traces.get(allocation.market) if record.instance_ids else None
        trace = _worst(allocation, known, now_s)
        for life in record.lives:
            end_s = max(until_s(record), allocation.launched_at_s + 1)
            if life.ended_at_s is not None:
                end_s = life.ended_at_s + 1
            charges = model.charges(trace, 1, allocation.launched_at_s, life.ended_at_s, life.end_cause, end_s)
            paid = _paid_before(record, model, trace)
            total += sum(
                max(charge.amount_micros - paid.get(charge.hour_index, 0), 0) * life.count
                for charge in charges
                if (record.allocation_id, charge.hour_index) not in charged
            )
    return total


def _paid_before(record: AllocationRecord, model: BillingModel, trace: Trace) -> dict[int, Micros]:
    """Return what another job has paid for each hour of a machine that the job of `record` took over."""
    from_s, launched_at_s = record.held_from_s, record.allocation.launched_at_s
    if from_s is None:
        return {}
    charges = model.charges(trace, 1, launched_at_s, from_s, EndCause.USER, from_s + 1)
    return {charge.hour_index: charge.amount_micros for charge in charges}


def requested(intent: Intent, job_id: str, tier: Tier = Tier.TRANSIENT) -> AllocationRecord:
    """Return a purchase without an answer as if it had been granted when it was planned."""
    allocation = Allocation(
        allocation_id=intent.order_id,
        market=Market.parse(intent.params["market"]),
        count=intent.params["count"],
        launched_at_s=int(intent.planned_at_s),
        tier=tier,
        bid_micros=intent.params["bid_micros"],
    )
    return AllocationRecord(job_id, allocation, (), intent.order_id)


def _worst(allocation: Allocation, trace: Trace | None, now_s: int) -> Trace:
    """Return the known prices of the allocation's life, then its bid; the bid also where no price is known."""
    bid, from_s = allocation.bid_micros or 0, allocation.launched_at_s
    shown = Trace(np.empty(0, np.int64), np.empty(0, np.int64)) if trace is None else trace
    first = shown.price_at(from_s)
    known = (shown.times_s > from_s) & (shown.times_s <= now_s)
    after_s = max(now_s, from_s) + 1
    return Trace(
        np.concatenate([[from_s], shown.times_s[known], [after_s]]),
        np.concatenate([[bid if first is None else first], shown.prices_micros[known], [bid]]),
    )
