"""The ledger of a job: compute the lines that are due and add those that are missing.

The billing model computes the due lines again each time from the allocations and the prices. So a booking may be
repeated, late or skipped without harm, and no line is ever edited: a refund is a separate line, and so is a correction.
An hour without a price is booked, too (`infra.state.charges.charge_prices`).

Every instance is billed separately; the lines of an hour are the sums over the instances of an allocation. An hour has
one refund, so that is booked when it can no longer grow: when the hour is over, or no instance lives. If seconds are
billed, the charge is booked then, too: until then the ledger lacks the cost of the hour in progress.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from proteus_spot.bidding.billing import BillingModel, HourlyRefund
from proteus_spot.bidding.market.catalog import Catalog
from proteus_spot.bidding.market.model import HOUR_S, EndCause, Market
from proteus_spot.bidding.market.money import Micros
from proteus_spot.bidding.market.traces import Trace
from proteus_spot.infra.state.charges.charge_prices import (
    BY_SECOND,
    ON_DEMAND_BY_SECOND,
    BillingError,
    Charging,
    Planned,
    charging,
    corrected,
    is_by_second,
    is_correction_of_price,
    is_provisional,
)
from proteus_spot.infra.state.records import AllocationRecord, LedgerKind, LedgerLine
from proteus_spot.infra.state.store import Store

_NO_PRICES = Trace(np.empty(0, np.int64), np.empty(0, np.int64))

#: Note of a charge that takes a refund back: the instance lived on.
REFUND_REVOKED = "refund taken back: it lived on"
_ENDED_BEFORE = "ended before what was charged"


@dataclass(frozen=True, slots=True)
class Booking:
    """The result of a booking.

    `added` are the new lines of the ledger. `disputed` are pairs (line as booked, line as it would be booked now) that
    differ in money, because the prices were reported differently then. The ledger keeps the first; check them by hand.
    `errors` name the allocations of which nothing can be booked.
    """

    added: tuple[LedgerLine, ...]
    disputed: tuple[tuple[LedgerLine, LedgerLine], ...]
    errors: tuple[BillingError, ...] = ()


def book(
    store: Store,
    job_id: str,
    price_traces: Mapping[Market, Trace],
    catalog: Catalog,
    now_s: float,
    spot_billing: BillingModel | None = None,
    after_s: float | None = None,
    planned: Planned = lambda market: None,
) -> Booking:
    """Bring the ledger of a job up to `now_s`, in one transaction.

    Parameters
    ----------
    price_traces : a `TraceSet`, or the traces of the job's markets by market, from before each launch on.
    catalog : on-demand prices by day; the day of the launch counts.
    now_s : hours that begin (if seconds are billed: end), and ends that happen, at or before this time are booked.
    spot_billing : how spot allocations are charged; None is `HourlyRefund`.
    after_s : allocations that ended before this time are booked; None: none is known to be.
    planned : on-demand prices that stand where the catalogue has none.
    """
    errors: list[BillingError] = []
    with store.transaction() as shared:
        records, booked = (
            shared.purchases.allocations(job_id, after_s=after_s),
            shared.purchases.ledger(job_id, after_s),
        )
        bookable, due = [], []
        for record in records:
            try:
                due += due_lines(
                    [record], price_traces, catalog, int(now_s), spot_billing or HourlyRefund(), booked, planned
                )
            except BillingError as error:
                errors.append(error)
            else:
                bookable.append(record)
        booking = compare(bookable, booked, due, int(now_s))
        shared.purchases.add_lines(booking.added)
    return replace(booking, errors=tuple(errors))


def due_lines(
    records: Sequence[AllocationRecord],
    price_traces: Mapping[Market, Trace],
    catalog: Catalog,
    now_s: int,
    spot_billing: BillingModel,
    booked: Sequence[LedgerLine] = (),
    planned: Planned = lambda market: None,
) -> list[LedgerLine]:
    """Return every line that the ledger should hold at `now_s`. Pure.

    Parameters
    ----------
    booked : the lines of the ledger: a price that is not known any more stands as it was booked.
    planned : on-demand prices that stand where the catalogue has none.

    Raises
    ------
    BillingError
        Naming the allocation whose price is not known.
    """
    lines = []
    prices = _booked_prices(booked)
    for record in records:
        allocation = record.allocation
        trace = price_traces.get(allocation.market, _NO_PRICES)
        try:
            charged_as = charging(record, trace, catalog, spot_billing, planned, prices, now_s)
            lines.extend(_own_lines(record, charged_as, now_s))
        except ValueError as error:
            raise BillingError(f"allocation {record.allocation_id} in {allocation.market}: {error}") from None
    return lines


def _booked_prices(booked: Sequence[LedgerLine]) -> dict[tuple[str, int], Micros]:
    """Return the price of each hour that was booked at a known one, by allocation and hour."""
    return {
        (line.allocation_id, line.hour_index): line.price_micros
        for line in booked
        if is_correction_of_price(line) or (line.kind is LedgerKind.CHARGE and _has_its_price(line))
    }


def _has_its_price(charge: LedgerLine) -> bool:
    return not is_provisional(charge) and charge.note != REFUND_REVOKED  # that may take back what had none


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
        base = _base(lines)
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
    """Compare the `lines` of an hour, whose price is that of `base`, with what is due for it."""
    if charge is not None and is_provisional(base) and not is_provisional(charge):
        return _at_its_price(lines, charge, refund), []
    is_over = base.at_s + HOUR_S <= now_s or not any(life.alive_at(now_s) for life in record.lives)
    same_price = charge is None or charge.price_micros == base.price_micros
    charged, refunded = _paid(lines)
    owed = _owed(record, base, charge if same_price else None, charged)
    excess = max(charged - owed, 0)
    first_refund = next((line for line in lines if _is_refund(line)), None)
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


def _base(lines: Iterable[LedgerLine]) -> LedgerLine | None:
    """Return the first charge of an hour, at its price: where that became known later, as it was corrected then."""
    hour = list(lines)
    first = next((line for line in hour if line.kind is LedgerKind.CHARGE and not line.correction), None)
    later = next((line for line in hour if is_correction_of_price(line)), None)
    if first is None or later is None:
        return first
    return replace(first, price_micros=later.price_micros, note=later.note)


def _at_its_price(lines: Sequence[LedgerLine], charge: LedgerLine, refund: LedgerLine | None) -> list[LedgerLine]:
    """Return the lines that bring an hour that was booked without its price to what is due for it."""
    charged, refunded = _paid(lines)
    more = replace(charge, amount_micros=charge.amount_micros - charged, note=corrected(charge))
    if more.amount_micros < 0:
        more = replace(more, kind=LedgerKind.REFUND)
    wanted = [_correction(lines, more)]
    back = refunded + (0 if refund is None else refund.amount_micros)
    if refund is not None and back < 0:
        is_first = not any(_is_refund(line) for line in lines)
        wanted.append(refund if is_first else _correction([*lines, *wanted], replace(refund, amount_micros=back)))
    elif back > 0:
        wanted.append(_correction([*lines, *wanted], replace(charge, amount_micros=back, note=REFUND_REVOKED)))
    return wanted


def unpriced_hours(lines: Iterable[LedgerLine]) -> list[LedgerLine]:
    """Return the charges of the hours that are booked without their price, and cost something."""
    return [charge for charge, refund in charges_and_refunds(lines) if is_provisional(charge) and _net(charge, refund)]


def unpriced_line(lines: Iterable[LedgerLine], records: Iterable[AllocationRecord]) -> str:
    """Return a line on the hours that are booked without their price; empty if there are none."""
    hours = unpriced_hours(lines)
    if not hours:
        return ""
    named = {line.allocation_id for line in hours}
    markets = {str(record.allocation.market) for record in records if record.allocation_id in named}
    many = "1 hour is" if len(hours) == 1 else f"{len(hours)} hours are"
    stands = "at the bid, or the planned on-demand price"
    return f"no price is known in {', '.join(sorted(markets))}: {many} booked {stands}, until it is"


def _net(charge: LedgerLine, refund: LedgerLine | None) -> Micros:
    return charge.amount_micros + (0 if refund is None else refund.amount_micros)


def charges_and_refunds(lines: Iterable[LedgerLine]) -> list[tuple[LedgerLine, LedgerLine | None]]:
    """Return the charge and the refund of each hour, with their corrections, in the order of the charges."""
    hours: dict[tuple[str, int], list[LedgerLine]] = {}
    for line in lines:
        hours.setdefault((line.allocation_id, line.hour_index), []).append(line)
    merged: list[tuple[LedgerLine, LedgerLine | None]] = []
    for booked in hours.values():
        base = _base(booked)
        if base is None:
            continue
        charged, refunded = _paid(booked)
        first = next((line for line in booked if _is_refund(line)), None)
        refund = None if first is None or not refunded else replace(first, amount_micros=-refunded, correction=0)
        merged.append((replace(base, amount_micros=charged), refund))
    return merged


def _paid(lines: Iterable[LedgerLine]) -> tuple[Micros, Micros]:
    """Return what the lines of an hour charge, and what they refund."""
    charged = refunded = 0
    for line in lines:
        if _is_refund(line) or line.note == REFUND_REVOKED:
            refunded -= line.amount_micros
        else:
            charged += line.amount_micros
    return charged, refunded


def refunded_micros(lines: Iterable[LedgerLine]) -> Micros:
    """Return what the market has refunded by these lines; corrections of a price are no refund."""
    return _paid(lines)[1]


def _is_refund(line: LedgerLine) -> bool:
    return line.kind is LedgerKind.REFUND and not is_correction_of_price(line)


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
    """Return `line` as a correction of its kind in the hour of `lines`."""
    return replace(line, correction=1 + max([0, *(other.correction for other in lines if other.kind is line.kind)]))


def _own_lines(record: AllocationRecord, charged_as: Charging, now_s: int) -> list[LedgerLine]:
    """Return the lines of one allocation that the job of `record` pays.

    Of machines that it took over from another job these are the lines of their whole life without those that the other
    paid, as if it had ended them then: together the two ledgers are the bill. A refund goes to the job that holds them.
    """
    lines = _lines(record, charged_as, now_s)
    if record.held_from_s is None:
        return lines
    until_then = replace(record, ended_at_s=record.held_from_s, end_cause=EndCause.USER, instance_ends={})
    paid = {line.hour_index: line.amount_micros for line in _lines(until_then, charged_as, now_s)}
    refunds = {line.hour_index: line for line in lines if line.kind is LedgerKind.REFUND}
    own = []
    for charge in (line for line in lines if line.kind is LedgerKind.CHARGE):
        amount = charge.amount_micros - paid.get(charge.hour_index, 0)
        refund = refunds.get(charge.hour_index)
        if amount < 0:  # they had ended before they were handed over, which nobody had seen
            back = -amount if refund is None else -amount - refund.amount_micros
            refund, amount = _refund(charge, charge.at_s, back, _ENDED_BEFORE), 0
        if amount or refund is not None:
            own.append(replace(charge, amount_micros=amount))
            own += [] if refund is None else [refund]
    return own


def _lines(record: AllocationRecord, charged_as: Charging, now_s: int) -> list[LedgerLine]:
    """Return the lines of one allocation: for each hour the charge of its instances and the refund.

    Each instance is charged separately, so it does not matter which of them end alike.
    """
    model, on_demand = charged_as.model, record.allocation.bid_micros is None
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
            charged_as.trace,
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
                note=charged_as.note(note, charge.hour_index),
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
