"""The ledger of a job: compute the lines that are due and add those that are missing.

The billing model computes the due lines again each time from the allocations and the prices. So a booking may be
repeated, late or skipped without harm, and no line is ever edited: a refund is a separate line, and so is a correction.

Every instance is billed separately; the lines of an hour are the sums over the instances of an allocation. An hour has
one refund, so that is booked when it can no longer grow: when the hour is over, or no instance lives. If seconds are
billed, the charge is booked then, too: until then the ledger lacks the cost of the hour in progress.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime

import numpy as np

from proteus_spot.bidding.billing import BillingModel, HourlyRefund, OnDemandHourly, OnDemandPerSecond
from proteus_spot.bidding.market.catalog import Catalog
from proteus_spot.bidding.market.model import HOUR_S, EndCause, Market
from proteus_spot.bidding.market.money import Micros
from proteus_spot.bidding.market.traces import Trace
from proteus_spot.infra.errors import ProteusError
from proteus_spot.infra.state.records import AllocationRecord, LedgerKind, LedgerLine
from proteus_spot.infra.state.store import Store

_NO_PRICES = Trace(np.empty(0, np.int64), np.empty(0, np.int64))

#: Notes of charges for the seconds of an hour, booked when the hour is over.
BY_SECOND = "spot, by the second"
ON_DEMAND_BY_SECOND = "on demand, by the second"
#: Note of a charge that takes a refund back: the instance lived on.
REFUND_REVOKED = "refund taken back: it lived on"
_ENDED_BEFORE = "ended before what was charged"


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
    after_s: float | None = None,
) -> Booking:
    """Bring the ledger of a job up to `now_s`, in one transaction.

    Parameters
    ----------
    price_traces : a `TraceSet`, or the traces of the job's markets by market, from before each launch on.
    catalog : on-demand prices by day; the day of the launch counts.
    now_s : hours that begin (if seconds are billed: end), and ends that happen, at or before this time are booked.
    spot_billing : how spot allocations are charged; None is `HourlyRefund`.
    after_s : allocations that ended before this time are booked; None: none is known to be.

    Raises
    ------
    BillingError
        Naming the allocation whose price is not known; nothing was booked.
    """
    with store.transaction() as shared:
        records = shared.allocations(job_id, after_s=after_s)
        due = due_lines(records, price_traces, catalog, int(now_s), spot_billing or HourlyRefund())
        booking = compare(records, shared.ledger(job_id, after_s), due, int(now_s))
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
        model = charging_model(record, catalog, spot_billing)
        try:
            lines.extend(_lines(record, model, trace, now_s))
        except ValueError as error:
            raise BillingError(f"allocation {record.allocation_id} in {allocation.market}: {error}") from None
    return lines


def charging_model(record: AllocationRecord, catalog: Catalog, spot_billing: BillingModel) -> BillingModel:
    """Return how an allocation is charged: machines on demand by the hour or by the second, as spot machines are.

    Raises
    ------
    BillingError
        If the catalogue has no on-demand price on the day of the launch.
    """
    allocation = record.allocation
    if allocation.bid_micros is not None:
        return spot_billing
    day = datetime.fromtimestamp(allocation.launched_at_s, UTC).date()
    price_micros = _on_demand_price(record, catalog, day)
    return OnDemandPerSecond(price_micros) if spot_billing.by_second else OnDemandHourly(price_micros)


def compare(
    records: Sequence[AllocationRecord], booked: Sequence[LedgerLine], due: Sequence[LedgerLine], now_s: int
) -> Booking:
    """Return the lines that `booked` lacks at `now_s`, and where it differs from `due` in the price; no I/O.

    The hour's refund takes back what was charged for instances whose end became known later: those that had ended when
    the hour began (if seconds are billed: before it was over). What becomes known after that (an instance that was
    found, or that lives although its end was booked) is corrected by further lines, when the hour is over or no
    instance lives: until then more may become known.
    """
    by_id = {record.allocation_id: record for record in records}
    due_by_id = {line.entry_id: line for line in due}
    hours: dict[tuple[str, int], list[LedgerLine]] = {}
    for line in booked:
        hours.setdefault((line.allocation_id, line.hour_index), []).append(line)
    added: list[LedgerLine] = []
    disputed: list[tuple[LedgerLine, LedgerLine]] = []
    for hour in dict.fromkeys([*((line.allocation_id, line.hour_index) for line in due), *hours]):
        name, index = hour
        charge, refund = (due_by_id.get(f"{name}/{index}/{kind}") for kind in (LedgerKind.CHARGE, LedgerKind.REFUND))
        lines = hours.get(hour, [])
        base = next((line for line in lines if line.kind is LedgerKind.CHARGE and not line.correction), None)
        if base is None:
            added += [line for line in (charge, refund) if line is not None and not lines]
        elif name in by_id:
            missing, differing = _compare_hour(by_id[name], base, lines, charge, refund, now_s)
            added += missing
            disputed += differing
    return Booking(tuple(added), tuple(disputed))


def _compare_hour(
    record: AllocationRecord,
    base: LedgerLine,
    lines: Sequence[LedgerLine],
    charge: LedgerLine | None,
    refund: LedgerLine | None,
    now_s: int,
) -> tuple[list[LedgerLine], list[tuple[LedgerLine, LedgerLine]]]:
    """Compare the `lines` of an hour, of which `base` is the first charge, with what is due for it."""
    is_over = base.at_s + HOUR_S <= now_s or not any(life.alive_at(now_s) for life in record.lives)
    same_price = charge is None or charge.price_micros == base.price_micros
    charged, refunded = _paid(lines)
    owed = _owed(record, base, charge if same_price else None, charged)
    excess = max(charged - owed, 0)
    first_refund = next((line for line in lines if line.kind is LedgerKind.REFUND and not line.correction), None)
    wanted: list[LedgerLine] = []
    disputed = []
    if first_refund is None:
        if refund is not None:
            wanted.append(replace(refund, amount_micros=refund.amount_micros - excess))
        elif excess and is_over:  # it can no longer grow
            wanted.append(_refund(base, base.at_s, excess, _ENDED_BEFORE))
    elif not same_price:
        if refund is not None and first_refund.amount_micros != refund.amount_micros - excess:
            disputed.append((first_refund, replace(refund, amount_micros=refund.amount_micros - excess)))
    elif is_over:
        more = excess - (0 if refund is None else refund.amount_micros) - refunded
        if more > 0:
            wanted.append(_correction(lines, _refund(base, base.at_s, more, _ENDED_BEFORE)))
        elif more < 0:
            wanted.append(_correction(lines, replace(base, amount_micros=-more, note=REFUND_REVOKED)))
    if charge is not None and not same_price and base.amount_micros - excess != charge.amount_micros:
        disputed.append((base, charge))
    if owed > charged and is_over:
        wanted.append(_correction([*lines, *wanted], replace(base, amount_micros=owed - charged)))
    return wanted, disputed


def charges_and_refunds(lines: Iterable[LedgerLine]) -> list[tuple[LedgerLine, LedgerLine | None]]:
    """Return the charge and the refund of each hour, with their corrections, in the order of the charges."""
    hours: dict[tuple[str, int], list[LedgerLine]] = {}
    for line in lines:
        hours.setdefault((line.allocation_id, line.hour_index), []).append(line)
    merged: list[tuple[LedgerLine, LedgerLine | None]] = []
    for booked in hours.values():
        base = next((line for line in booked if line.kind is LedgerKind.CHARGE and not line.correction), None)
        if base is None:
            continue
        charged, refunded = _paid(booked)
        first = next((line for line in booked if line.kind is LedgerKind.REFUND), None)
        refund = None if first is None or not refunded else replace(first, amount_micros=-refunded, correction=0)
        merged.append((replace(base, amount_micros=charged), refund))
    return merged


def _paid(lines: Iterable[LedgerLine]) -> tuple[Micros, Micros]:
    """Return what the lines of an hour charge, and what they refund."""
    charged = refunded = 0
    for line in lines:
        if line.kind is LedgerKind.REFUND or line.note == REFUND_REVOKED:
            refunded -= line.amount_micros
        else:
            charged += line.amount_micros
    return charged, refunded


def _owed(record: AllocationRecord, base: LedgerLine, charge: LedgerLine | None, charged: Micros) -> Micros:
    """Return what the hour should have been charged at its booked price; `charged` where that cannot be known.

    A difference because the price has changed since is no reason for a correction.
    """
    if charge is not None:
        return charge.amount_micros
    alive = sum(life.count for life in record.lives if life.alive_at(base.at_s))
    if is_by_second(base):
        return charged if alive else 0
    return alive * base.price_micros if alive < record.allocation.count else charged


def _correction(lines: Sequence[LedgerLine], line: LedgerLine) -> LedgerLine:
    """Return `line` as one more of its kind in the hour of `lines`."""
    return replace(line, correction=sum(other.kind is line.kind for other in lines))


def is_by_second(line: LedgerLine) -> bool:
    """Return whether the line charges the seconds of an hour, not the whole."""
    return line.note in (BY_SECOND, ON_DEMAND_BY_SECOND)


def _lines(record: AllocationRecord, model: BillingModel, trace: Trace, now_s: int) -> list[LedgerLine]:
    """Return the lines of one allocation: for each hour the charge of its instances and the refund.

    Each instance is charged separately, so it does not matter which of them end alike.
    """
    on_demand = record.allocation.bid_micros is None
    if model.by_second:
        note = ON_DEMAND_BY_SECOND if on_demand else BY_SECOND
    else:
        note = "on demand" if on_demand else "spot"
    charged: dict[int, LedgerLine] = {}
    refunds: dict[int, tuple[Micros, int]] = {}
    for life in record.lives:
        if life.end_cause is EndCause.FAILED:
            continue  # the market charges nothing for a launch that failed
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
