"""The ledger: charges, refunds, and corrections of what is learned late."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from proteus_spot.bidding.billing import BillingModel, Flat, HourlyRefund, PerSecondFirstHourFree
from proteus_spot.bidding.market.catalog import Catalog, CatalogRow
from proteus_spot.bidding.market.model import Allocation, EndCause, InstanceType, Market
from proteus_spot.bidding.market.traces import Trace, TraceSet
from proteus_spot.infra.state.ledger import REFUND_REVOKED, Booking, book, charges_and_refunds, unpriced_hours
from proteus_spot.infra.state.records import LedgerKind, LedgerLine
from proteus_spot.infra.state.store import Store
from tests.support.ledgers import CATALOG, HELD, HOUR, RELIABLE, SPOT, T0, TRACES, buy


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(f"sqlite:///{tmp_path}/state.db") as opened:
        opened.jobs.create_job("job-1", {}, T0)
        yield opened


def amounts(store: Store) -> dict[str, int]:
    return {line.entry_id: line.amount_micros for line in store.purchases.ledger("job-1")}


def test_hours_are_charged_as_they_begin_and_an_eviction_refunds_the_last(store: Store) -> None:
    buy(store, HELD)
    assert book(store, "job-1", TRACES, CATALOG, T0 - 1).added == ()
    assert [line.entry_id for line in book(store, "job-1", TRACES, CATALOG, T0).added] == ["a-1/0/charge"]
    assert book(store, "job-1", TRACES, CATALOG, T0 + HOUR - 1).added == ()
    book(store, "job-1", TRACES, CATALOG, T0 + HOUR + 0.7)
    assert amounts(store) == {"a-1/0/charge": 60_000, "a-1/1/charge": 90_000}
    store.purchases.end_allocation("a-1", T0 + 7000, EndCause.EVICTED)
    assert book(store, "job-1", TRACES, CATALOG, T0 + 6999).added == ()
    (refund,) = book(store, "job-1", TRACES, CATALOG, T0 + 7000).added
    assert refund == LedgerLine(
        "job-1", "a-1", 1, LedgerKind.REFUND, T0 + 7000, price_micros=30_000, amount_micros=-90_000, note="evicted"
    )
    assert store.purchases.spent("job-1") == 60_000
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
    store.purchases.end_allocation("a-2", T0 + 1800, EndCause.EVICTED)
    assert booked(T0 + HOUR - 1) == ["a-2/0/charge 10000 spot, by the second", "a-2/0/refund -10000 evicted"]
    assert booked(T0 + HOUR) == ["a-1/0/charge 60000 spot, by the second"]
    store.purchases.end_allocation("a-1", T0 + HOUR + 1200, EndCause.EVICTED)
    assert booked(T0 + HOUR + 1200) == ["a-1/1/charge 30000 spot, by the second"]
    assert store.purchases.spent("job-1") == 90_000


def test_seconds_charged_after_an_end_that_was_learned_of_late_are_taken_back_once(store: Store) -> None:
    def booked(now_s: int) -> list[str]:
        added = book(store, "job-1", TRACES, CATALOG, now_s, Flat(36_000)).added
        return [f"{line.entry_id} {line.amount_micros}" for line in added]

    buy(store, HELD)
    assert booked(T0 + HOUR) == ["a-1/0/charge 108000"]  # its end after half an hour is not known yet
    store.purchases.end_allocation("a-1", T0 + 1800, EndCause.EVICTED)
    assert booked(T0 + HOUR + 60) == ["a-1/0/refund -54000"]
    assert booked(T0 + 5 * HOUR) == []


def test_who_ends_an_allocation_himself_pays_for_the_hour_he_began(store: Store) -> None:
    buy(store, HELD)
    store.purchases.end_allocation("a-1", T0 + HOUR + 1, EndCause.USER)
    book(store, "job-1", TRACES, CATALOG, T0 + 9 * HOUR)
    assert amounts(store) == {"a-1/0/charge": 60_000, "a-1/1/charge": 90_000}


def test_on_demand_machines_pay_for_started_hours_at_the_price_of_their_first_day(store: Store) -> None:
    later = replace(RELIABLE, allocation_id="r-2", launched_at_s=T0 + 24 * HOUR)
    buy(store, RELIABLE)
    buy(store, later)
    store.purchases.end_allocation("r-1", T0 + HOUR + 1, EndCause.USER)
    book(store, "job-1", {}, CATALOG, T0 + 24 * HOUR)
    assert amounts(store) == {"r-1/0/charge": 240_000, "r-1/1/charge": 240_000, "r-2/0/charge": 200_000}
    assert {line.note for line in store.purchases.ledger("job-1")} == {"on demand"}


def test_a_charge_for_an_hour_after_an_end_that_was_learned_of_late_is_taken_back_once(store: Store) -> None:
    buy(store, HELD)
    book(store, "job-1", TRACES, CATALOG, T0 + HOUR)  # its end on the hour is not known yet
    store.purchases.end_allocation("a-1", T0 + HOUR, EndCause.EVICTED)
    (back,) = book(store, "job-1", TRACES, CATALOG, T0 + HOUR + 60).added
    assert (back.entry_id, back.amount_micros) == ("a-1/1/refund", -90_000)
    assert book(store, "job-1", TRACES, CATALOG, T0 + 5 * HOUR).added == ()
    assert store.purchases.spent("job-1") == 60_000


def test_a_machine_that_ends_early_is_refunded_when_its_hour_is_over_and_charged_no_more(store: Store) -> None:
    store.purchases.record_allocation("job-1", "order", HELD, ["i-1", "i-2", "i-3"])
    book(store, "job-1", TRACES, CATALOG, T0)
    store.purchases.record_instance_ends(
        "a-1", {"i-1": (T0 + 600, EndCause.EVICTED), "i-2": (T0 + HOUR, EndCause.EVICTED)}
    )
    assert book(store, "job-1", TRACES, CATALOG, T0 + HOUR - 1).added == (), "another may be taken within the hour"
    book(store, "job-1", TRACES, CATALOG, T0 + HOUR)
    assert amounts(store) == {"a-1/0/charge": 60_000, "a-1/0/refund": -20_000, "a-1/1/charge": 30_000}
    (refund,) = (line for line in store.purchases.ledger("job-1") if line.kind is LedgerKind.REFUND)
    assert (refund.at_s, refund.note) == (T0 + 600, "evicted")
    store.purchases.record_instance_ends("a-1", {"i-3": (T0 + HOUR + 60, EndCause.EVICTED)})
    store.purchases.end_allocation("a-1", T0 + HOUR + 60, EndCause.EVICTED)
    book(store, "job-1", TRACES, CATALOG, T0 + HOUR + 60)
    assert store.purchases.spent("job-1") == 40_000, "no instance lives, so the refund is booked"


def test_a_charge_for_a_machine_that_had_ended_is_taken_back_when_its_hour_is_over(store: Store) -> None:
    store.purchases.record_allocation("job-1", "order", HELD, ["i-1", "i-2", "i-3"])
    book(store, "job-1", TRACES, CATALOG, T0 + HOUR)  # the end of one on the hour is not known yet
    store.purchases.record_instance_ends(
        "a-1", {"i-1": (T0 + HOUR, EndCause.USER), "i-2": (T0 + HOUR + 9, EndCause.EVICTED)}
    )
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
    store.purchases.record_allocation("job-1", "order", allocation, machines)
    book(store, "job-1", TRACES, CATALOG, T0 + 10, billing)
    store.purchases.record_instance_ends(name, {machine: (T0 + 30, EndCause.FAILED) for machine in machines})
    store.purchases.end_allocation(name, T0 + 30, EndCause.USER)
    book(store, "job-1", TRACES, CATALOG, T0 + 2 * HOUR, billing)
    assert store.purchases.spent("job-1") == 0


def test_a_line_is_never_edited_and_a_difference_is_told(store: Store) -> None:
    buy(store, HELD)
    book(store, "job-1", TRACES, CATALOG, T0)
    dearer = TraceSet({SPOT: Trace(np.array([T0 - 10]), np.array([21_000]))})
    booking = book(store, "job-1", dearer, CATALOG, T0 + 60)
    assert booking.added == ()
    assert [(was.amount_micros, now.amount_micros) for was, now in booking.disputed] == [(60_000, 63_000)]
    assert amounts(store) == {"a-1/0/charge": 60_000}


def test_an_allocation_without_a_price_is_named_and_the_others_are_booked(store: Store) -> None:
    buy(store, replace(RELIABLE, allocation_id="fine", launched_at_s=T0 - 100))
    buy(store, replace(RELIABLE, market=Market("x1.large", "z")))
    booking = book(store, "job-1", TRACES, CATALOG, T0 + 10)
    (error,) = booking.errors
    assert str(error) == "allocation r-1: the catalogue has no on-demand price of x1.large/z for 2016-04-07; add a row"
    assert list(amounts(store)) == ["fine/0/charge"]


def test_an_hour_without_a_price_stands_at_the_bid_until_the_price_is_known(store: Store) -> None:
    buy(store, HELD)
    buy(store, replace(RELIABLE, count=1))
    unknown = TraceSet({})
    book(store, "job-1", unknown, CATALOG, T0)
    assert amounts(store) == {"a-1/0/charge": 150_000, "r-1/0/charge": 120_000}
    assert [line.allocation_id for line in unpriced_hours(store.purchases.ledger("job-1"))] == ["a-1"]
    assert book(store, "job-1", unknown, CATALOG, T0 + 60) == Booking((), ())
    booking = book(store, "job-1", TRACES, CATALOG, T0 + 120)
    assert [(line.entry_id, line.amount_micros) for line in booking.added] == [("a-1/0/refund/1", -90_000)]
    assert booking.disputed == ()
    (charge, _), *_ = charges_and_refunds(store.purchases.ledger("job-1"))
    assert (charge.amount_micros, charge.price_micros) == (60_000, 20_000)
    assert unpriced_hours(store.purchases.ledger("job-1")) == []
    for traces in (unknown, TRACES):  # what was known once stands
        assert book(store, "job-1", traces, CATALOG, T0 + 180) == Booking((), ())
    dearer = TraceSet({SPOT: Trace(np.array([T0 - 10]), np.array([21_000]))})
    assert len(book(store, "job-1", dearer, CATALOG, T0 + 180).disputed) == 1


def test_a_refund_at_the_bid_is_corrected_with_its_charge(store: Store) -> None:
    buy(store, HELD)
    book(store, "job-1", TraceSet({}), CATALOG, T0)
    store.purchases.end_allocation("a-1", T0 + 600, EndCause.EVICTED)
    book(store, "job-1", TraceSet({}), CATALOG, T0 + 700)
    assert (store.purchases.spent("job-1"), unpriced_hours(store.purchases.ledger("job-1"))) == (0, [])
    book(store, "job-1", TRACES, CATALOG, T0 + 800)
    assert store.purchases.spent("job-1") == 0
    ((charge, refund),) = charges_and_refunds(store.purchases.ledger("job-1"))
    assert (charge.amount_micros, refund and refund.amount_micros) == (60_000, -60_000)


def test_an_on_demand_price_that_the_catalogue_lost_stands_as_planned_until_it_is_back(store: Store) -> None:
    buy(store, RELIABLE)
    empty = Catalog([CatalogRow(InstanceType("c4.large", 2, 4.0, 100_000), "us-east-1")])
    booking = book(store, "job-1", {}, empty, T0, planned=lambda market: 130_000)
    assert [line.amount_micros for line in booking.added] == [260_000]
    assert len(unpriced_hours(store.purchases.ledger("job-1"))) == 1
    assert book(store, "job-1", {}, empty, T0 + 60, planned=lambda market: 130_000) == Booking((), ())
    book(store, "job-1", {}, CATALOG, T0 + 60)
    assert (store.purchases.spent("job-1"), unpriced_hours(store.purchases.ledger("job-1"))) == (240_000, [])


def test_a_refund_of_a_machine_that_lives_after_all_is_taken_back_and_a_machine_that_is_found_is_charged(
    store: Store,
) -> None:
    store.purchases.record_allocation("job-1", "order", replace(HELD, count=2), ["i-1", "i-2"])
    store.purchases.end_allocation("a-1", T0 + 600, EndCause.EVICTED)
    book(store, "job-1", TRACES, CATALOG, T0 + 700)
    assert amounts(store) == {"a-1/0/charge": 40_000, "a-1/0/refund": -40_000}
    for name in ("i-1", "i-3"):
        store.purchases.record_instance("a-1", name)
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
    assert store.purchases.spent("job-1") == 20_000 * 2 + 30_000 * 2
    first, second = charges_and_refunds(store.purchases.ledger("job-1"))
    assert (first[0].amount_micros, first[1] and first[1].amount_micros) == (60_000, -20_000)
    assert (second[0].amount_micros, second[1]) == (60_000, None)


def test_an_on_demand_machine_costs_what_its_own_region_asks(store: Store) -> None:
    catalog = Catalog(
        CatalogRow(InstanceType("m4.large", 2, 8.0, price), region)
        for region, price in (("us-east-1", 120_000), ("eu-west-1", 132_000))
    )
    for name, zone in (("east", "us-east-1a"), ("west", "eu-west-1b")):
        buy(store, replace(RELIABLE, allocation_id=name, market=Market("m4.large", zone), count=1))
    book(store, "job-1", TRACES, catalog, T0)
    assert amounts(store) == {"east/0/charge": 120_000, "west/0/charge": 132_000}
