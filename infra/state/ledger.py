"""The ledger of a job, kept up with what the market charges.

What is due is computed anew each time, by the billing model, from the allocations and the prices; what the ledger lacks
is added. So a booking may be repeated, come late or be left out without harm, and no line is ever edited: money that
comes back is a line of its own.

Every instance is billed by itself; the lines of an hour are the sums over the instances of an allocation. As an hour has
one refund, that is booked when it can grow no more: when the hour is over, or no instance lives. Where seconds are paid,
so is the charge itself: until then an hour in progress costs what the ledger does not say yet.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime

import numpy as np

from bidding.billing import BillingModel, HourlyRefund, OnDemandHourly
from bidding.market.catalog import Catalog
from bidding.market.model import HOUR_S, EndCause, Market
from bidding.market.money import Micros
from bidding.market.traces import Trace
from infra.errors import ProteusError
from infra.state.records import AllocationRecord, LedgerKind, LedgerLine
from infra.state.store import Store

_NO_PRICES = Trace(np.empty(0, np.int64), np.empty(0, np.int64))


#: The note of a charge for the seconds of an hour, which is booked when that is over.
BY_SECOND = "spot, by the second"


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
    now_s : hours that begin (where seconds are paid: end), and ends that happen, at or before this time are booked.
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
    lines = []
    for record in records:
        allocation = record.allocation
        trace = price_traces.get(allocation.market, _NO_PRICES)
        model = spot_billing
        if allocation.bid_micros is None:
            day = datetime.fromtimestamp(allocation.launched_at_s, UTC).date()
            model = OnDemandHourly(_on_demand_price(record, catalog, day))
        try:
            lines.extend(_lines(record, model, trace, now_s))
        except ValueError as error:
            raise BillingError(f"allocation {record.allocation_id} in {allocation.market}: {error}") from None
    return lines


def compare(records: Sequence[AllocationRecord], booked: Sequence[LedgerLine], due: Sequence[LedgerLine]) -> Booking:
    """Return what `booked` lacks of `due`, and where the two differ. Pure.

    What was charged for instances that had ended when the hour began (where seconds are paid: before it was over), because
    their end was learned of later, is taken back by the hour's refund.
    """
    there = {line.entry_id: line for line in booked}
    excess = _excess(records, booked, due)
    wanted = {line.entry_id: line for line in due}
    last = {line.allocation_id: line.hour_index for line in due if line.kind is LedgerKind.CHARGE}
    ended = {record.allocation_id for record in records if not record.alive}
    for line_id, amount in excess.items():
        line = there[line_id]
        back = _refund(line, line.at_s, amount, "ended before what was charged")
        with_it = wanted.get(back.entry_id)
        if with_it is not None:
            wanted[back.entry_id] = replace(with_it, amount_micros=with_it.amount_micros - amount)
        elif line.allocation_id in ended or line.hour_index < last.get(line.allocation_id, 0):  # it can grow no more
            wanted[back.entry_id] = back
    added = [line for line in wanted.values() if line.entry_id not in there]
    disputed = [
        (there[name], line)
        for name, line in wanted.items()
        if name in there and there[name].amount_micros - excess.get(name, 0) != line.amount_micros
    ]
    return Booking(tuple(added), tuple(disputed))


def _excess(
    records: Sequence[AllocationRecord], booked: Sequence[LedgerLine], due: Sequence[LedgerLine]
) -> dict[str, Micros]:
    """Return how much too much was charged for instances that had ended by then, by the charge's id.

    Where the price is another one now, the difference is no such excess.
    """
    by_id = {record.allocation_id: record for record in records}
    dues = {line.entry_id: line for line in due}
    found = {}
    for line in booked:
        record = by_id.get(line.allocation_id)
        if record is None or line.kind is not LedgerKind.CHARGE:
            continue
        alive = sum(life.count for life in record.lives if life.alive_at(line.at_s))
        owed = alive * line.price_micros if alive < record.allocation.count else line.amount_micros
        if line.note == BY_SECOND and alive:
            now = dues.get(line.entry_id, line)
            owed = now.amount_micros if now.price_micros == line.price_micros else line.amount_micros
        if line.amount_micros > owed:
            found[line.entry_id] = line.amount_micros - owed
    return found


def _lines(record: AllocationRecord, model: BillingModel, trace: Trace, now_s: int) -> list[LedgerLine]:
    """Return the lines of one allocation: for each hour what its instances are charged, and what of it comes back.

    Each instance is charged by itself, so that it does not matter which of them end alike.
    """
    note = "on demand" if record.allocation.bid_micros is None else BY_SECOND if model.by_second else "spot"
    charged: dict[int, LedgerLine] = {}
    back: dict[int, tuple[Micros, int]] = {}
    for life in record.lives:
        known = not life.alive_at(now_s)
        charges = model.charges(
            trace,
            1,
            record.allocation.launched_at_s,
            life.ended_at_s if known else None,
            life.end_cause if known else None,
            now_s + 1,  # an hour is charged the moment it begins
        )
        for charge in charges:
            line = charged.get(charge.hour_index) or LedgerLine(
                job_id=record.job_id,
                allocation_id=record.allocation_id,
                hour_index=charge.hour_index,
                kind=LedgerKind.CHARGE,
                at_s=charge.hour_start_s,
                price_micros=charge.price_micros,
                amount_micros=0,
                note=note,
            )
            amount = charge.amount_micros * life.count
            charged[line.hour_index] = replace(line, amount_micros=line.amount_micros + amount)
            if charge.refunded:
                assert life.ended_at_s is not None, "only an end brings a refund"
                before, at_s = back.get(line.hour_index, (0, 0))
                back[line.hour_index] = (before + amount, max(at_s, life.ended_at_s))
    all_gone = not any(life.alive_at(now_s) for life in record.lives)
    lines = []
    for hour, line in sorted(charged.items()):
        is_over = all_gone or line.at_s + HOUR_S <= now_s
        if is_over or not model.by_second:
            lines.append(line)
        if hour in back and is_over:
            amount, at_s = back[hour]
            lines.append(_refund(line, at_s, amount, str(EndCause.EVICTED)))
    return lines


def _refund(line: LedgerLine, at_s: int, amount: Micros, note: str) -> LedgerLine:
    return LedgerLine(
        job_id=line.job_id,
        allocation_id=line.allocation_id,
        hour_index=line.hour_index,
        kind=LedgerKind.REFUND,
        at_s=at_s,
        price_micros=line.price_micros,
        amount_micros=-amount,
        note=note,
    )


def _on_demand_price(record: AllocationRecord, catalog: Catalog, day: date) -> Micros:
    kind = catalog.find(record.allocation.market, day)
    if kind is None:
        raise BillingError(
            f"allocation {record.allocation_id}: the catalogue has no on-demand price of {record.allocation.market} for "
            f"{day}; add a row"
        )
    return kind.on_demand_micros
