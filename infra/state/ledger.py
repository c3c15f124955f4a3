"""The ledger of a job: compute the lines that are due and add those that are missing.

The billing model computes the due lines anew each time from the allocations and the prices. So a booking may be
repeated, late or skipped without harm, and no line is ever edited: a refund is a separate line.

Every instance is billed separately; the lines of an hour are the sums over the instances of an allocation. An hour has
one refund, so that is booked when it can no longer grow: when the hour is over, or no instance lives. If seconds are
billed, the charge is booked then, too: until then the ledger lacks the cost of the hour in progress.
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

#: Note of a charge for the seconds of an hour, booked when the hour is over.
BY_SECOND = "spot, by the second"


class BillingError(ProteusError):
    """The cost of an allocation cannot be computed because a price is missing."""


@dataclass(frozen=True, slots=True)
class Booking:
    """The result of a booking.

    `added` are the new lines of the ledger. `disputed` are pairs (line as booked, line as it would be booked now) that
    differ in money, because the prices were reported differently then. The ledger keeps the first; check them by hand.
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
    catalog : on-demand prices by day; the day of the launch counts.
    now_s : hours that begin (if seconds are billed: end), and ends that happen, at or before this time are booked.
    spot_billing : how spot allocations are charged; None is `HourlyRefund`.

    Raises
    ------
    BillingError
        Naming the allocation whose price is not known; nothing was booked.
    """
    with store.transaction() as shared:
        records = shared.allocations(job_id)
        due = due_lines(records, price_traces, catalog, int(now_s), spot_billing or HourlyRefund())
        booking = compare(records, shared.ledger(job_id), due)
        shared.add_lines(booking.added)
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
    """Return the lines of `due` that `booked` lacks, and where the two differ; no I/O.

    The hour's refund takes back what was charged for instances whose end became known later: those that had ended when
    the hour began (if seconds are billed: before it was over).
    """
    booked_by_id = {line.entry_id: line for line in booked}
    excess = _excess(records, booked, due)
    wanted = {line.entry_id: line for line in due}
    last = {line.allocation_id: line.hour_index for line in due if line.kind is LedgerKind.CHARGE}
    ended = {record.allocation_id for record in records if not record.alive}
    for line_id, amount in excess.items():
        line = booked_by_id[line_id]
        correction = _refund(line, line.at_s, amount, "ended before what was charged")
        refund = wanted.get(correction.entry_id)
        if refund is not None:
            wanted[correction.entry_id] = replace(refund, amount_micros=refund.amount_micros - amount)
        elif line.allocation_id in ended or line.hour_index < last.get(line.allocation_id, 0):  # it can no longer grow
            wanted[correction.entry_id] = correction
    added = [line for line in wanted.values() if line.entry_id not in booked_by_id]
    disputed = [
        (booked_by_id[name], line)
        for name, line in wanted.items()
        if name in booked_by_id and booked_by_id[name].amount_micros - excess.get(name, 0) != line.amount_micros
    ]
    return Booking(tuple(added), tuple(disputed))


def _excess(
    records: Sequence[AllocationRecord], booked: Sequence[LedgerLine], due: Sequence[LedgerLine]
) -> dict[str, Micros]:
    """Return the amount overcharged for instances that had ended by then, by the charge's id.

    A difference because the price has changed since is no excess.
    """
    by_id = {record.allocation_id: record for record in records}
    due_by_id = {line.entry_id: line for line in due}
    excess = {}
    for line in booked:
        record = by_id.get(line.allocation_id)
        if record is None or line.kind is not LedgerKind.CHARGE:
            continue
        alive = sum(life.count for life in record.lives if life.alive_at(line.at_s))
        owed = alive * line.price_micros if alive < record.allocation.count else line.amount_micros
        if line.note == BY_SECOND and alive:
            due_now = due_by_id.get(line.entry_id, line)
            owed = due_now.amount_micros if due_now.price_micros == line.price_micros else line.amount_micros
        if line.amount_micros > owed:
            excess[line.entry_id] = line.amount_micros - owed
    return excess


def _lines(record: AllocationRecord, model: BillingModel, trace: Trace, now_s: int) -> list[LedgerLine]:
    """Return the lines of one allocation: for each hour the charge of its instances and the refund.

    Each instance is charged separately, so it does not matter which of them end alike.
    """
    note = "on demand" if record.allocation.bid_micros is None else BY_SECOND if model.by_second else "spot"
    charged: dict[int, LedgerLine] = {}
    refunds: dict[int, tuple[Micros, int]] = {}
    for life in record.lives:
        has_ended = not life.alive_at(now_s)
        charges = model.charges(
            trace,
            1,
            record.allocation.launched_at_s,
            life.ended_at_s if has_ended else None,
            life.end_cause if has_ended else None,
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
                earlier, at_s = refunds.get(line.hour_index, (0, 0))
                refunds[line.hour_index] = (earlier + amount, max(at_s, life.ended_at_s))
    all_ended = not any(life.alive_at(now_s) for life in record.lives)
    lines = []
    for hour, line in sorted(charged.items()):
        is_over = all_ended or line.at_s + HOUR_S <= now_s
        if is_over or not model.by_second:
            lines.append(line)
        if hour in refunds and is_over:
            amount, at_s = refunds[hour]
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
            f"allocation {record.allocation_id}: the catalogue has no on-demand price of "
            f"{record.allocation.market} for "
            f"{day}; add a row"
        )
    return kind.on_demand_micros
