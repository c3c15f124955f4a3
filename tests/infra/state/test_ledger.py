from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bidding.billing import (
    BillingModel,
    Flat,
    HourlyRefund,
    OnDemandHourly,
    OnDemandPerSecond,
    PerSecondFirstHourFree,
    Repricing,
    total_micros,
)
from bidding.market.catalog import Catalog, CatalogRow
from bidding.market.model import Allocation, EndCause, InstanceType, Market, Tier
from bidding.market.traces import Trace, TraceSet
from infra.state.ledger import (
    REFUND_REVOKED,
    BillingError,
    Booking,
    book,
    charges_and_refunds,
    compare,
    due_lines,
)
from infra.state.records import AllocationRecord, LedgerKind, LedgerLine
from infra.state.store import Store

HOUR = 3600
T0 = 1_460_000_000  # 2016-04-07
SPOT = Market("c4.large", "us-east-1a")
CATALOG = Catalog(
    [
        CatalogRow(InstanceType("m4.large", 2, 8.0, 120_000), "us-east-1"),
        CatalogRow(InstanceType("m4.large", 2, 8.0, 100_000), "us-east-1", date(2016, 4, 8)),
    ]
)
#: 20000 at first, 30000 after 50 minutes, 40000 after 100 minutes.
TRACES = TraceSet({SPOT: Trace(np.array([T0 - 10, T0 + 3000, T0 + 6000]), np.array([20_000, 30_000, 40_000]))})
HELD = Allocation("a-1", SPOT, 3, T0, Tier.TRANSIENT, 50_000)
RELIABLE = Allocation("r-1", Market("m4.large", "us-east-1a"), 2, T0, Tier.RELIABLE)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(f"sqlite:///{tmp_path}/state.db") as opened:
        opened.create_job("job-1", {}, T0)
        yield opened


def buy(store: Store, allocation: Allocation) -> None:
    store.record_allocation("job-1", f"order-{allocation.allocation_id}", allocation, [])


def amounts(store: Store) -> dict[str, int]:
    return {line.entry_id: line.amount_micros for line in store.ledger("job-1")}


def test_hours_are_charged_as_they_begin_and_an_eviction_refunds_the_last(store: Store) -> None:
    buy(store, HELD)
    assert book(store, "job-1", TRACES, CATALOG, T0 - 1).added == ()
    assert [line.entry_id for line in book(store, "job-1", TRACES, CATALOG, T0).added] == ["a-1/0/charge"]
    assert book(store, "job-1", TRACES, CATALOG, T0 + HOUR - 1).added == ()
    book(store, "job-1", TRACES, CATALOG, T0 + HOUR + 0.7)
    assert amounts(store) == {"a-1/0/charge": 60_000, "a-1/1/charge": 90_000}
    store.end_allocation("a-1", T0 + 7000, EndCause.EVICTED)
    assert book(store, "job-1", TRACES, CATALOG, T0 + 6999).added == ()
    (refund,) = book(store, "job-1", TRACES, CATALOG, T0 + 7000).added
    assert refund == LedgerLine(
        "job-1", "a-1", 1, LedgerKind.REFUND, T0 + 7000, price_micros=30_000, amount_micros=-90_000, note="evicted"
    )
    assert store.spent("job-1") == 60_000
    assert book(store, "job-1", TRACES, CATALOG, T0 + 90 * HOUR).added == ()


def test_the_seconds_of_an_hour_are_booked_when_it_is_over_and_the_first_comes_back_if_it_is_broken_off(
    store: Store,
) -> None:
    def booked(now_s: int) -> list[str]:
        added = book(store, "job-1", TRACES, CATALOG, now_s, PerSecondFirstHourFree()).added
        return [f"{line.entry_id} {line.amount_micros} {line.note}" for line in added]

    buy(store, HELD)
    buy(store, replace(HELD, allocation_id="a-2", count=1))
    assert booked(T0 + HOUR - 1) == []
    store.end_allocation("a-2", T0 + 1800, EndCause.EVICTED)
    assert booked(T0 + HOUR - 1) == ["a-2/0/charge 10000 spot, by the second", "a-2/0/refund -10000 evicted"]
    assert booked(T0 + HOUR) == ["a-1/0/charge 60000 spot, by the second"]
    store.end_allocation("a-1", T0 + HOUR + 1200, EndCause.EVICTED)
    assert booked(T0 + HOUR + 1200) == ["a-1/1/charge 30000 spot, by the second"]
    assert store.spent("job-1") == 90_000


def test_seconds_charged_after_an_end_that_was_learned_of_late_are_taken_back_once(store: Store) -> None:
    def booked(now_s: int) -> list[str]:
        added = book(store, "job-1", TRACES, CATALOG, now_s, Flat(36_000)).added
        return [f"{line.entry_id} {line.amount_micros}" for line in added]

    buy(store, HELD)
    assert booked(T0 + HOUR) == ["a-1/0/charge 108000"]  # its end after half an hour is not known yet
    store.end_allocation("a-1", T0 + 1800, EndCause.EVICTED)
    assert booked(T0 + HOUR + 60) == ["a-1/0/refund -54000"]
    assert booked(T0 + 5 * HOUR) == []


def test_who_ends_an_allocation_himself_pays_for_the_hour_he_began(store: Store) -> None:
    buy(store, HELD)
    store.end_allocation("a-1", T0 + HOUR + 1, EndCause.USER)
    book(store, "job-1", TRACES, CATALOG, T0 + 9 * HOUR)
    assert amounts(store) == {"a-1/0/charge": 60_000, "a-1/1/charge": 90_000}


def test_on_demand_machines_pay_for_started_hours_at_the_price_of_their_first_day(store: Store) -> None:
    later = replace(RELIABLE, allocation_id="r-2", launched_at_s=T0 + 24 * HOUR)
    buy(store, RELIABLE)
    buy(store, later)
    store.end_allocation("r-1", T0 + HOUR + 1, EndCause.USER)
    book(store, "job-1", {}, CATALOG, T0 + 24 * HOUR)
    assert amounts(store) == {"r-1/0/charge": 240_000, "r-1/1/charge": 240_000, "r-2/0/charge": 200_000}
    assert {line.note for line in store.ledger("job-1")} == {"on demand"}


def test_a_charge_for_an_hour_after_an_end_that_was_learned_of_late_is_taken_back_once(store: Store) -> None:
    buy(store, HELD)
    book(store, "job-1", TRACES, CATALOG, T0 + HOUR)  # its end on the hour is not known yet
    store.end_allocation("a-1", T0 + HOUR, EndCause.EVICTED)
    (back,) = book(store, "job-1", TRACES, CATALOG, T0 + HOUR + 60).added
    assert (back.entry_id, back.amount_micros) == ("a-1/1/refund", -90_000)
    assert book(store, "job-1", TRACES, CATALOG, T0 + 5 * HOUR).added == ()
    assert store.spent("job-1") == 60_000


def test_a_machine_that_ends_early_is_refunded_when_its_hour_is_over_and_charged_no_more(store: Store) -> None:
    store.record_allocation("job-1", "order", HELD, ["i-1", "i-2", "i-3"])
    book(store, "job-1", TRACES, CATALOG, T0)
    store.record_instance_ends("a-1", {"i-1": (T0 + 600, EndCause.EVICTED), "i-2": (T0 + HOUR, EndCause.EVICTED)})
    assert book(store, "job-1", TRACES, CATALOG, T0 + HOUR - 1).added == (), "another may be taken within the hour"
    book(store, "job-1", TRACES, CATALOG, T0 + HOUR)
    assert amounts(store) == {"a-1/0/charge": 60_000, "a-1/0/refund": -20_000, "a-1/1/charge": 30_000}
    (refund,) = (line for line in store.ledger("job-1") if line.kind is LedgerKind.REFUND)
    assert (refund.at_s, refund.note) == (T0 + 600, "evicted")
    store.record_instance_ends("a-1", {"i-3": (T0 + HOUR + 60, EndCause.EVICTED)})
    store.end_allocation("a-1", T0 + HOUR + 60, EndCause.EVICTED)
    book(store, "job-1", TRACES, CATALOG, T0 + HOUR + 60)
    assert store.spent("job-1") == 40_000, "no instance lives, so the refund is booked"


def test_a_charge_for_a_machine_that_had_ended_is_taken_back_when_its_hour_is_over(store: Store) -> None:
    store.record_allocation("job-1", "order", HELD, ["i-1", "i-2", "i-3"])
    book(store, "job-1", TRACES, CATALOG, T0 + HOUR)  # the end of one on the hour is not known yet
    store.record_instance_ends("a-1", {"i-1": (T0 + HOUR, EndCause.USER), "i-2": (T0 + HOUR + 9, EndCause.EVICTED)})
    assert book(store, "job-1", TRACES, CATALOG, T0 + HOUR + 60) == Booking((), ())
    booking = book(store, "job-1", TRACES, CATALOG, T0 + 2 * HOUR)
    assert [line.entry_id for line in booking.added] == ["a-1/1/refund", "a-1/2/charge"]
    assert booking.disputed == ()
    assert amounts(store)["a-1/1/refund"] == -60_000
    assert book(store, "job-1", TRACES, CATALOG, T0 + 2 * HOUR + 60) == Booking((), ())


@pytest.mark.parametrize("billing", [HourlyRefund(), PerSecondFirstHourFree()])
@pytest.mark.parametrize("allocation", [HELD, replace(RELIABLE, count=3)])
def test_a_launch_that_failed_costs_nothing_also_if_its_hour_was_charged(
    store: Store, billing: BillingModel, allocation: Allocation
) -> None:
    name, machines = allocation.allocation_id, ["i-1", "i-2", "i-3"]
    store.record_allocation("job-1", "order", allocation, machines)
    book(store, "job-1", TRACES, CATALOG, T0 + 10, billing)
    store.record_instance_ends(name, {machine: (T0 + 30, EndCause.FAILED) for machine in machines})
    store.end_allocation(name, T0 + 30, EndCause.USER)
    book(store, "job-1", TRACES, CATALOG, T0 + 2 * HOUR, billing)
    assert store.spent("job-1") == 0


def test_a_line_is_never_edited_and_a_difference_is_told(store: Store) -> None:
    buy(store, HELD)
    book(store, "job-1", TRACES, CATALOG, T0)
    dearer = TraceSet({SPOT: Trace(np.array([T0 - 10]), np.array([21_000]))})
    booking = book(store, "job-1", dearer, CATALOG, T0 + 60)
    assert booking.added == ()
    assert [(was.amount_micros, now.amount_micros) for was, now in booking.disputed] == [(60_000, 63_000)]
    assert amounts(store) == {"a-1/0/charge": 60_000}


@pytest.mark.parametrize(
    ("allocation", "traces", "reason"),
    [
        (HELD, TraceSet({}), "a-1 in c4.large/us-east-1a: no price is known"),
        (replace(HELD, launched_at_s=T0 - 11), TRACES, "no price is known at"),
        (replace(RELIABLE, market=Market("x1.large", "z")), TRACES, "no on-demand price of x1.large/z for 2016-04-07"),
    ],
)
def test_a_price_that_is_not_known_is_told_and_nothing_booked(
    store: Store, allocation: Allocation, traces: TraceSet, reason: str
) -> None:
    buy(store, replace(RELIABLE, allocation_id="fine", launched_at_s=T0 - 100))
    buy(store, allocation)
    with pytest.raises(BillingError, match=reason) as caught:
        book(store, "job-1", traces, CATALOG, T0 + 10)
    assert "\n" not in str(caught.value)
    assert store.ledger("job-1") == []


# ---- properties

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
    records: list[AllocationRecord], ledger: dict[str, LedgerLine], now_s: int, model: BillingModel | None = None
) -> None:
    due = due_lines(records, TRACES, CATALOG, now_s, model or HourlyRefund())
    booking = compare(records, list(ledger.values()), due, now_s)
    assert not booking.disputed
    for line in booking.added:
        assert line.entry_id not in ledger
        ledger[line.entry_id] = line


@given(lives(), TIMES, MODELS)
def test_booking_at_any_times_in_any_order_ends_in_the_same_ledger(
    records: list[AllocationRecord], times: list[int], model: BillingModel
) -> None:
    once: dict[str, LedgerLine] = {}
    fold(records, once, LAST, model)
    often: dict[str, LedgerLine] = {}
    for now_s in [*times, LAST, *times]:
        fold(records, often, now_s, model)
    assert often == once


@given(lives(), TIMES, st.integers(0, 3 * HOUR), MODELS)
def test_ends_learned_of_late_cost_the_same(
    records: list[AllocationRecord], times: list[int], late_s: int, model: BillingModel
) -> None:
    once: dict[str, LedgerLine] = {}
    fold(records, once, LAST, model)
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
    once: dict[str, LedgerLine] = {}
    fold(records, once, LAST, model)
    often: dict[str, LedgerLine] = {}
    for now_s in [*times, LAST, *times]:
        fold(records, often, now_s, model)
    assert often == once
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
    once: dict[str, LedgerLine] = {}
    fold(records, once, LAST, model)
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
    once: dict[str, LedgerLine] = {}
    fold(records, once, LAST, model)
    assert sum(line.amount_micros for line in ledger.values()) == sum(line.amount_micros for line in once.values())
    merged = charges_and_refunds(ledger.values())
    assert sum(c.amount_micros + (0 if r is None else r.amount_micros) for c, r in merged) == sum(
        line.amount_micros for line in ledger.values()
    )
    before = dict(ledger)
    fold(records, ledger, LAST, model)
    assert ledger == before


def test_a_refund_of_a_machine_that_lives_after_all_is_taken_back_and_a_machine_that_is_found_is_charged(
    store: Store,
) -> None:
    store.record_allocation("job-1", "order", replace(HELD, count=2), ["i-1", "i-2"])
    store.end_allocation("a-1", T0 + 600, EndCause.EVICTED)
    book(store, "job-1", TRACES, CATALOG, T0 + 700)
    assert amounts(store) == {"a-1/0/charge": 40_000, "a-1/0/refund": -40_000}
    for name in ("i-1", "i-3"):
        store.record_instance("a-1", name)
    assert book(store, "job-1", TRACES, CATALOG, T0 + 800) == Booking((), ()), "more may be known when the hour is over"
    booking = book(store, "job-1", TRACES, CATALOG, T0 + HOUR)
    assert [(line.entry_id, line.amount_micros) for line in booking.added] == [
        ("a-1/0/charge/1", 20_000),
        ("a-1/0/charge/2", 20_000),
        ("a-1/1/charge", 60_000),
    ]
    assert booking.disputed == ()
    assert {line.note for line in booking.added} == {"spot", REFUND_REVOKED}
    assert book(store, "job-1", TRACES, CATALOG, T0 + HOUR) == Booking((), ())
    assert store.spent("job-1") == 20_000 * 2 + 30_000 * 2
    first, second = charges_and_refunds(store.ledger("job-1"))
    assert (first[0].amount_micros, first[1] and first[1].amount_micros) == (60_000, -20_000)
    assert (second[0].amount_micros, second[1]) == (60_000, None)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(records=lives(), times=TIMES)
def test_the_store_ends_in_the_ledger_of_one_booking(
    tmp_path_factory: pytest.TempPathFactory, records: list[AllocationRecord], times: list[int]
) -> None:
    once: dict[str, LedgerLine] = {}
    fold(records, once, LAST)
    with Store.open(f"sqlite:///{tmp_path_factory.mktemp('state')}/state.db") as store:
        store.create_job("job-1", {}, T0)
        for record in records:
            buy(store, record.allocation)
            if record.ended_at_s is not None and record.end_cause is not None:
                store.end_allocation(record.allocation_id, record.ended_at_s, record.end_cause)
        for now_s in [*times, LAST]:
            book(store, "job-1", TRACES, CATALOG, now_s)
        assert {line.entry_id: line for line in store.ledger("job-1")} == once
        assert store.spent("job-1") == sum(line.amount_micros for line in once.values())


def test_an_on_demand_machine_costs_what_its_own_region_asks(store: Store) -> None:
    catalog = Catalog(
        CatalogRow(InstanceType("m4.large", 2, 8.0, price), region)
        for region, price in (("us-east-1", 120_000), ("eu-west-1", 132_000))
    )
    for name, zone in (("east", "us-east-1a"), ("west", "eu-west-1b")):
        buy(store, replace(RELIABLE, allocation_id=name, market=Market("m4.large", zone), count=1))
    book(store, "job-1", TRACES, catalog, T0)
    assert amounts(store) == {"east/0/charge": 120_000, "west/0/charge": 132_000}
