"""The ledger of a job, kept up with what the market charges.

What is due is computed anew each time, by the billing model, from the allocations and the prices; what the ledger lacks
is added. So a booking may be repeated, come late or be left out without harm, and no line is ever edited: money that
comes back is a line of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime

import numpy as np

from bidding.billing import BillingModel, Charge, HourlyRefund, OnDemandHourly
from bidding.catalog import Catalog
from bidding.model import EndCause, Market
from bidding.money import Micros
from bidding.traces import Trace
from infra.errors import ProteusError
from infra.records import AllocationRecord, LedgerKind, LedgerLine
from infra.store import Store

_NO_PRICES = Trace(np.empty(0, np.int64), np.empty(0, np.int64))


class BillingError(ProteusError):
    """What an allocation costs cannot be told, for want of a price."""


@dataclass(frozen=True, slots=True)
class Booking:
    """What a booking did.

    `added` are the new lines of the ledger. `disputed` are pairs (line as it was booked, line as it would be booked
    now) that differ in money: the prices were told differently then. The ledger keeps the first; somebody should look.
    """

    added: tuple[LedgerLine, ...]
    disputed: tuple[tuple[LedgerLine, LedgerLine], ...]


def book(
    store: Store,
    job_id: str,
    price_traces: Mapping[Market, Trace],
    catalog: Catalog,
    now_s: float,
    spot_billing: BillingModel | None = None,
) -> Booking:
    """Bring the ledger of a job up to `now_s`, in one transaction.

    Parameters
    ----------
    price_traces : a `TraceSet`, or the traces of the job's markets by market, from before each launch on.
    catalog : says what on-demand machines cost on the day of their launch.
    now_s : hours that begin, and ends that happen, at or before this time are booked.
    spot_billing : how spot allocations are charged; None is `HourlyRefund`.

    Raises
    ------
    BillingError
        Naming the allocation whose price is not known; nothing was booked.
    """
    with store.transaction() as both:
        records = both.allocations(job_id)
        due = due_lines(records, price_traces, catalog, int(now_s), spot_billing or HourlyRefund())
        booking = compare(records, both.ledger(job_id), due)
        both.add_lines(booking.added)
    return booking


def due_lines(
    records: Sequence[AllocationRecord],
    price_traces: Mapping[Market, Trace],
    catalog: Catalog,
    now_s: int,
    spot_billing: BillingModel,
) -> list[LedgerLine]:
    """Return every line that the ledger should hold at `now_s`. Pure."""
    prices_of_day: dict[date, Mapping[str, Micros]] = {}
    lines = []
    for record in records:
        allocation = record.allocation
        trace = price_traces.get(allocation.market, _NO_PRICES)
        model = spot_billing
        if allocation.bid_micros is None:
            day = datetime.fromtimestamp(allocation.launched_at_s, UTC).date()
            if day not in prices_of_day:
                prices_of_day[day] = {name: kind.on_demand_micros for name, kind in catalog.at(day).items()}
            model = OnDemandHourly(_on_demand_price(record, prices_of_day[day], day))
        known = record.ended_at_s is not None and record.ended_at_s <= now_s
        try:
            charges = model.charges(
                trace,
                allocation.count,
                allocation.launched_at_s,
                record.ended_at_s if known else None,
                record.end_cause if known else None,
                now_s + 1,  # an hour is charged the moment it begins
            )
        except ValueError as error:
            raise BillingError(f"allocation {record.allocation_id} in {allocation.market}: {error}") from None
        for charge in charges:
            lines.extend(_lines(record, charge))
    return lines


def compare(records: Sequence[AllocationRecord], booked: Sequence[LedgerLine], due: Sequence[LedgerLine]) -> Booking:
    """Return what `booked` lacks of `due`, and where the two differ. Pure.

    A charge booked for an hour that began at or after the allocation's end, because the end was learned of later, is
    taken back by a refund.
    """
    there = {line.entry_id: line for line in booked}
    added = [line for line in due if line.entry_id not in there]
    disputed = [
        (there[line.entry_id], line)
        for line in due
        if line.entry_id in there and there[line.entry_id].amount_micros != line.amount_micros
    ]
    ends = {record.allocation_id: record.ended_at_s for record in records if record.ended_at_s is not None}
    for line in booked:
        end_s = ends.get(line.allocation_id)
        if line.kind is LedgerKind.CHARGE and end_s is not None and line.at_s >= end_s:
            back = _refund(line, line.at_s, "ended before this hour began")
            if back.entry_id not in there:
                added.append(back)
    return Booking(tuple(added), tuple(disputed))


def _lines(record: AllocationRecord, charge: Charge) -> list[LedgerLine]:
    line = LedgerLine(
        job_id=record.job_id,
        allocation_id=record.allocation_id,
        hour_index=charge.hour_index,
        kind=LedgerKind.CHARGE,
        at_s=charge.hour_start_s,
        price_micros=charge.price_micros,
        amount_micros=charge.amount_micros,
        note="on demand" if record.allocation.bid_micros is None else "spot",
    )
    if not charge.refunded:
        return [line]
    assert record.ended_at_s is not None, "only an end brings a refund"
    return [line, _refund(line, record.ended_at_s, str(EndCause.EVICTED))]


def _refund(line: LedgerLine, at_s: int, note: str) -> LedgerLine:
    return LedgerLine(
        job_id=line.job_id,
        allocation_id=line.allocation_id,
        hour_index=line.hour_index,
        kind=LedgerKind.REFUND,
        at_s=at_s,
        price_micros=line.price_micros,
        amount_micros=-line.amount_micros,
        note=note,
    )


def _on_demand_price(record: AllocationRecord, prices: Mapping[str, Micros], day: date) -> Micros:
    name = record.allocation.market.instance_type
    if name not in prices:
        raise BillingError(
            f"allocation {record.allocation_id}: the catalogue has no on-demand price of {name} for {day}; add a row"
        )
    return prices[name]
