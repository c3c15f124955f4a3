"""The most that a ledger can come to: what is booked, due, running and requested, at prices that may still rise."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proteus_spot.bidding.billing import BillingModel, Flat, HourlyRefund, PerSecondFirstHourFree, Repricing
from proteus_spot.bidding.market.catalog import Catalog, CatalogRow
from proteus_spot.bidding.market.model import HOUR_S, Allocation, EndCause, InstanceType, Market, Tier
from proteus_spot.bidding.market.traces import Trace
from proteus_spot.infra.state.commitments import most_owed, requested
from proteus_spot.infra.state.ledger import compare, due_lines
from proteus_spot.infra.state.records import AllocationRecord, Intent, IntentState, LedgerLine

T0 = 1_460_000_000
MARKET = Market("m4.large", "us-east-1a")
CATALOG = Catalog([CatalogRow(InstanceType("m4.large", 2, 8.0, 120_000), "us-east-1")])
TRACE = Trace(np.array([T0 - HOUR_S, T0 + 1800]), np.array([30_000, 40_000]))
BID = 90_000
MODELS = [HourlyRefund(), PerSecondFirstHourFree(), PerSecondFirstHourFree(Repricing.CHANGE), Flat(14_003)]


def held(name: str = "a", count: int = 2, bid: int | None = BID, launched_at_s: int = T0) -> AllocationRecord:
    tier = Tier.RELIABLE if bid is None else Tier.TRANSIENT
    names = tuple(f"i-{name}-{number}" for number in range(count))
    return AllocationRecord("job", Allocation(name, MARKET, count, launched_at_s, tier, bid), names, name)


def owed(records, model: BillingModel, now_s: int, until_s: int, booked=(), traces=None) -> int:
    known = {MARKET: TRACE} if traces is None else traces
    return most_owed(records, booked, known, CATALOG, now_s, lambda record: until_s, model)


@pytest.mark.parametrize(
    ("model", "micros"),
    [
        (HourlyRefund(), 2 * (30_000 + BID)),  # the second hour begins at a price that is not known yet
        (PerSecondFirstHourFree(), 2 * (30_000 + BID // 2)),
        (PerSecondFirstHourFree(Repricing.CHANGE), 2 * (8_350 + (BID * 4399 // 3600 + 1))),
        (Flat(14_000), 2 * 21_000),
    ],
)
def test_what_runs_is_charged_at_the_known_prices_and_then_at_the_bid(model, micros):
    assert owed([held()], model, T0 + 1000, T0 + 5400) == pytest.approx(micros, abs=100)


@pytest.mark.parametrize(("model", "micros"), [(HourlyRefund(), 240_000), (PerSecondFirstHourFree(), 180_000)])
def test_machines_on_demand_are_charged_as_spot_machines_are(model, micros):
    assert owed([held(bid=None, count=1)], model, T0 + 1000, T0 + 5400) == micros


def test_without_a_known_price_the_bid_stands_for_it():
    assert owed([held()], HourlyRefund(), T0 + 1000, T0 + 3000, traces={}) == 2 * BID


def test_what_is_booked_is_not_counted_again_and_counts_as_it_was_booked():
    booked = [
        replace(line, amount_micros=7) for line in due_lines([held()], {MARKET: TRACE}, CATALOG, T0, HourlyRefund())
    ]
    assert owed([held()], HourlyRefund(), T0 + 1000, T0 + 3000, booked) == 7


def test_a_refund_counts_when_it_is_booked_and_not_before():
    taken = replace(held(), ended_at_s=T0 + 600, end_cause=EndCause.EVICTED)
    due = due_lines([taken], {MARKET: TRACE}, CATALOG, T0 + 700, HourlyRefund())
    charges = [line for line in due if line.amount_micros > 0]
    assert owed([taken], HourlyRefund(), T0 + 700, T0 + 9000, charges) == 60_000
    assert owed([taken], HourlyRefund(), T0 + 700, T0 + 9000, due) == 0


def test_what_has_ended_costs_nothing_more():
    gone = replace(held(), ended_at_s=T0 + 600, end_cause=EndCause.USER)
    assert owed([gone], PerSecondFirstHourFree(), T0 + 700, T0 + 9000) == 2 * 5_000


def test_a_purchase_without_an_answer_counts_from_its_request_on_at_its_bid():
    params = {"market": str(MARKET), "count": 3, "bid_micros": BID}
    intent = Intent("job-buy-0", "job", "acquire", "token", params, IntentState.PLANNED, float(T0))
    record = requested(intent, "job")
    assert (record.allocation.count, record.allocation.bid_micros) == (3, BID)
    assert owed([record], HourlyRefund(), T0 + 100, T0 + 700) == 3 * BID
    assert owed([record], PerSecondFirstHourFree(), T0 + 100, T0 + 700) == 3 * BID * 700 // 3600


PRICES = st.lists(st.integers(1_000, BID), min_size=1, max_size=12)


@given(
    st.sampled_from(MODELS),
    PRICES,
    st.integers(0, 3 * HOUR_S),
    st.integers(1, 2 * HOUR_S),
    st.one_of(st.none(), st.integers(0, 5 * HOUR_S)),
    st.lists(st.integers(0, 5 * HOUR_S), max_size=6),
)
def test_whatever_prices_come_the_ledger_is_never_more(model, prices, now_s, more_s, taken_s, bookings):
    now_s, until_s = T0 + now_s, T0 + now_s + more_s
    times = T0 + np.arange(len(prices)) * 1500
    trace = Trace(times, np.array(prices))
    known = {MARKET: trace.between(T0, now_s)}
    whole = [held(count=3), held("od", 1, None)]
    booked: dict[str, LedgerLine] = {}
    for at_s in sorted(T0 + at_s for at_s in bookings if T0 + at_s <= now_s):
        due = due_lines(whole, {MARKET: trace}, CATALOG, at_s, model)
        booked |= {line.entry_id: line for line in compare(whole, list(booked.values()), due, at_s).added}
    most = owed(whole, model, now_s, until_s, list(booked.values()), known)
    ends = until_s if taken_s is None else min(max(T0 + taken_s, now_s), until_s)
    cause = EndCause.USER if taken_s is None else EndCause.EVICTED
    ended = [
        replace(whole[0], ended_at_s=ends, end_cause=cause),
        replace(whole[1], ended_at_s=until_s, end_cause=EndCause.USER),
    ]
    due = due_lines(ended, {MARKET: trace}, CATALOG, until_s + HOUR_S, model)
    booked |= {line.entry_id: line for line in compare(ended, list(booked.values()), due, until_s + HOUR_S).added}
    assert sum(line.amount_micros for line in booked.values()) <= most
