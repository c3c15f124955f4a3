"""The ledger on random lives of machines: whenever it is booked, it ends as the bill."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proteus_spot.bidding.billing import (
    BillingModel,
    Flat,
    HourlyRefund,
    OnDemandHourly,
    OnDemandPerSecond,
    PerSecondFirstHourFree,
    Repricing,
    total_micros,
)
from proteus_spot.bidding.market.catalog import Catalog, CatalogRow
from proteus_spot.bidding.market.model import EndCause, InstanceType
from proteus_spot.bidding.market.traces import Trace, TraceSet
from proteus_spot.infra.state.ledger import book, charges_and_refunds, compare, due_lines, unpriced_hours
from proteus_spot.infra.state.records import AllocationRecord, LedgerLine
from proteus_spot.infra.state.store import Store
from tests.support.ledgers import CATALOG, HELD, HOUR, RELIABLE, SPOT, T0, TRACES, buy

#: A catalogue that has lost the type that is held on demand.
WITHOUT = Catalog([CatalogRow(InstanceType("c4.large", 2, 4.0, 100_000), "us-east-1")])
ENDS = st.none() | st.tuples(st.integers(0, 4 * HOUR) | st.sampled_from([HOUR, 2 * HOUR]), st.sampled_from(EndCause))


@st.composite
def lives(draw: st.DrawFn) -> list[AllocationRecord]:
    records = []
    for index in range(draw(st.integers(1, 4))):
        launched = T0 + draw(st.integers(0, 2 * HOUR))
        end = draw(ENDS)
        base = HELD if draw(st.booleans()) else RELIABLE
        allocation = replace(base, allocation_id=f"a-{index}", launched_at_s=launched, count=draw(st.integers(1, 9)))
        ended, cause = (None, None) if end is None else (launched + end[0], end[1])
        records.append(AllocationRecord("job-1", allocation, (), f"o-{index}", ended, cause))
    return records


STEP = 1200
#: Ends and bookings on a grid, so that they often meet within an hour, and at its boundary.
STEP_ENDS = st.tuples(st.integers(0, 2 * HOUR // STEP).map(lambda n: n * STEP), st.sampled_from(EndCause))


@st.composite
def ragged(draw: st.DrawFn) -> list[AllocationRecord]:
    """Return lives of which single instances end separately, before the others or with the last."""
    records = []
    for record in draw(lives()):
        a = record.allocation
        a = replace(a, launched_at_s=a.launched_at_s - (a.launched_at_s - T0) % STEP)
        names = tuple(f"i-{a.allocation_id}-{index}" for index in range(a.count))
        ends = {name: draw(STEP_ENDS | ENDS) for name in names}
        told = {name: (a.launched_at_s + end[0], end[1]) for name, end in ends.items() if end is not None}
        ended, cause = None, None
        if len(told) == a.count:
            ended, cause = max(told.values())
            if draw(st.booleans()):  # those that end with the allocation need not be named
                told = {name: end for name, end in told.items() if end != (ended, cause)}
        end = {"ended_at_s": ended, "end_cause": cause, "instance_ends": told}
        records.append(replace(record, allocation=a, instance_ids=names, **end))
    return records


TIMES = st.lists(st.integers(T0 - HOUR, T0 + 7 * HOUR), max_size=8)
STEP_TIMES = st.lists(st.integers(0, 7 * HOUR // STEP).map(lambda n: T0 + n * STEP), max_size=20)
LAST = T0 + 7 * HOUR
MODELS = st.sampled_from(
    [HourlyRefund(), PerSecondFirstHourFree(), PerSecondFirstHourFree(Repricing.CHANGE, 1000), Flat(14_003)]
)


def fold(
    records: list[AllocationRecord],
    ledger: dict[str, LedgerLine],
    now_s: int,
    model: BillingModel | None = None,
    traces: TraceSet = TRACES,
    catalog: Catalog = CATALOG,
) -> None:
    booked = list(ledger.values())
    due = due_lines(records, traces, catalog, now_s, model or HourlyRefund(), booked, lambda market: 140_000)
    booking = compare(records, booked, due, now_s)
    assert not booking.disputed
    for line in booking.added:
        assert line.entry_id not in ledger
        ledger[line.entry_id] = line


def booked(
    records: list[AllocationRecord], times: list[int], model: BillingModel | None = None
) -> dict[str, LedgerLine]:
    """Return the ledger of the machines' true lives, booked at these times."""
    ledger: dict[str, LedgerLine] = {}
    for now_s in times:
        fold(records, ledger, now_s, model)
    return ledger


@given(lives(), TIMES, MODELS)
def test_booking_at_any_times_in_any_order_ends_in_the_same_ledger(
    records: list[AllocationRecord], times: list[int], model: BillingModel
) -> None:
    once = booked(records, [LAST], model)
    assert booked(records, [*times, LAST, *times], model) == once


@given(lives(), TIMES, st.integers(0, 3 * HOUR), MODELS)
def test_ends_learned_of_late_cost_the_same(
    records: list[AllocationRecord], times: list[int], late_s: int, model: BillingModel
) -> None:
    once = booked(records, [LAST], model)
    often: dict[str, LedgerLine] = {}
    for now_s in sorted(times):
        unknown = [record.ended_at_s is None or record.ended_at_s + late_s > now_s for record in records]
        known = [
            replace(record, ended_at_s=None, end_cause=None) if hidden else record
            for record, hidden in zip(records, unknown, strict=True)
        ]
        fold(known, often, now_s, model)
    fold(records, often, LAST, model)
    assert sum(line.amount_micros for line in often.values()) == sum(line.amount_micros for line in once.values())


def bill(records: list[AllocationRecord], spot: BillingModel) -> int:
    """Return the market's total charge at the end of all, computed for each instance separately."""
    total = 0
    for record in records:
        a = record.allocation
        on_demand = OnDemandPerSecond(120_000) if spot.by_second else OnDemandHourly(120_000)
        model = spot if a.bid_micros is not None else on_demand
        trace = TRACES[SPOT]
        for name in record.instance_ids:
            end = record.instance_ends.get(name, (record.ended_at_s, record.end_cause))
            if end[1] is not EndCause.FAILED:
                total += total_micros(model.charges(trace, 1, a.launched_at_s, *end, LAST + 1))
    return total


@settings(max_examples=300, deadline=None)
@given(ragged(), TIMES | STEP_TIMES, MODELS)
def test_instances_that_end_by_themselves_are_billed_by_themselves_whenever_it_is_booked(
    records: list[AllocationRecord], times: list[int], model: BillingModel
) -> None:
    once = booked(records, [LAST], model)
    assert booked(records, [*times, LAST, *times], model) == once
    # an hour in progress whose seconds are paid is not booked yet
    settled = [r for r in records if not r.alive or not model.by_second]
    names = {record.allocation_id for record in settled}
    assert sum(line.amount_micros for line in once.values() if line.allocation_id in names) == bill(settled, model)


@given(ragged(), TIMES | STEP_TIMES, st.integers(0, 3 * HOUR), MODELS)
def test_single_ends_learned_of_late_cost_the_same(
    records: list[AllocationRecord], times: list[int], late_s: int, model: BillingModel
) -> None:
    ledger: dict[str, LedgerLine] = {}
    before = [now_s for now_s in sorted(times) if now_s <= LAST - HOUR]  # so that what they charge is settled at LAST
    for now_s in [*before, LAST]:
        late = late_s if now_s < LAST else -LAST
        known = []
        for record in records:
            seen = {name: end for name, end in record.instance_ends.items() if end[0] + late <= now_s}
            hidden = record.ended_at_s is None or record.ended_at_s + late > now_s
            held = replace(record, ended_at_s=None, end_cause=None) if hidden else record
            known.append(replace(held, instance_ends=seen))
        fold(known, ledger, now_s, model)
    spent = sum(line.amount_micros for line in ledger.values())
    once = booked(records, [LAST], model)
    owed = sum(line.amount_micros for line in once.values())
    assert spent == owed


@st.composite
def beliefs(draw: st.DrawFn) -> tuple[list[AllocationRecord], list[tuple[int, list[AllocationRecord]]]]:
    """Return lives, and what was believed of them at some times: any machine missing, alive or ended at any time."""
    records = draw(ragged())
    believed = []
    for now_s in sorted(draw(TIMES | STEP_TIMES)):
        if now_s > LAST - HOUR:
            continue
        seen = []
        for record in records:
            a, names = record.allocation, record.instance_ids
            names = names[: draw(st.integers(1, len(names)))]
            end = st.tuples(st.integers(0, max((now_s - a.launched_at_s) // STEP, 0)), st.sampled_from(EndCause))
            ends = {name: draw(st.none() | end) for name in names} if now_s >= a.launched_at_s else {}
            told = {name: (a.launched_at_s + end[0] * STEP, end[1]) for name, end in ends.items() if end is not None}
            last = max(told.values()) if len(told) == len(names) else (None, None)
            if now_s >= a.launched_at_s:
                a = replace(a, count=len(names))
                seen.append(AllocationRecord("job-1", a, names, record.order_id, *last, told))
        believed.append((now_s, seen))
    return records, believed


@settings(max_examples=300, deadline=None)
@given(beliefs(), MODELS)
def test_whatever_was_believed_of_machines_the_ledger_is_the_bill_when_it_is_known(
    lives_and_beliefs: tuple[list[AllocationRecord], list[tuple[int, list[AllocationRecord]]]], model: BillingModel
) -> None:
    records, believed = lives_and_beliefs
    ledger: dict[str, LedgerLine] = {}
    for now_s, seen in believed:
        fold(seen, ledger, now_s, model)
    fold(records, ledger, LAST, model)
    once = booked(records, [LAST], model)
    assert sum(line.amount_micros for line in ledger.values()) == sum(line.amount_micros for line in once.values())
    merged = charges_and_refunds(ledger.values())
    assert sum(c.amount_micros + (0 if r is None else r.amount_micros) for c, r in merged) == sum(
        line.amount_micros for line in ledger.values()
    )
    before = dict(ledger)
    fold(records, ledger, LAST, model)
    assert ledger == before


#: From when on prices are known, in seconds from the begin: from before it, never, or in between.
KNOWN = st.sampled_from([-HOUR, 0, 2 * STEP, HOUR + STEP, 9 * HOUR])


@settings(max_examples=300, deadline=None)
@given(beliefs(), MODELS, st.data())
def test_whatever_prices_were_missing_the_ledger_is_the_bill_when_they_are_known(
    lives_and_beliefs: tuple[list[AllocationRecord], list[tuple[int, list[AllocationRecord]]]],
    model: BillingModel,
    data: st.DataObject,
) -> None:
    records, believed = lives_and_beliefs
    ledger: dict[str, LedgerLine] = {}
    for now_s, seen in [*believed, (LAST, records)]:
        begins_s = data.draw(KNOWN)
        told = TRACES[SPOT].times_s >= T0 + begins_s
        known = TraceSet({SPOT: Trace(TRACES[SPOT].times_s[told], TRACES[SPOT].prices_micros[told])})
        fold(seen, ledger, now_s, model, known, data.draw(st.sampled_from([CATALOG, WITHOUT])))
        fold(seen, ledger, now_s, model, known)
    fold(records, ledger, LAST, model)
    once = booked(records, [LAST], model)
    assert sum(line.amount_micros for line in ledger.values()) == sum(line.amount_micros for line in once.values())
    assert unpriced_hours(ledger.values()) == []
    before = dict(ledger)
    fold(records, ledger, LAST, model)
    assert ledger == before


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(records=lives(), times=TIMES)
def test_the_store_ends_in_the_ledger_of_one_booking(
    tmp_path_factory: pytest.TempPathFactory, records: list[AllocationRecord], times: list[int]
) -> None:
    once = booked(records, [LAST])
    with Store.open(f"sqlite:///{tmp_path_factory.mktemp('state')}/state.db") as store:
        store.jobs.create_job("job-1", {}, T0)
        for record in records:
            buy(store, record.allocation)
            if record.ended_at_s is not None and record.end_cause is not None:
                store.purchases.end_allocation(record.allocation_id, record.ended_at_s, record.end_cause)
        for now_s in [*times, LAST]:
            book(store, "job-1", TRACES, CATALOG, now_s)
        assert {line.entry_id: line for line in store.purchases.ledger("job-1")} == once
        assert store.purchases.spent("job-1") == sum(line.amount_micros for line in once.values())
