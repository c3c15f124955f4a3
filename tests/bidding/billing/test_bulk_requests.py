"""What requests come to, held against a second accounting that lives through every second."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proteus_spot.bidding.billing import (
    SPOT_BILLING,
    BillingModel,
    Flat,
    HourlyRefund,
    PerSecondFirstHourFree,
    Repricing,
)
from proteus_spot.bidding.billing.bulk_requests import REFUSED, Bill, SpotRequest, bills
from proteus_spot.bidding.market.model import HOUR_S, Market
from proteus_spot.bidding.market.traces import Trace, TraceSet
from tests.bidding.billing.naive_bill import NaiveBill, Rule, fixed, naive_bill, seconds, whole_hours

MARKET, OTHER = Market("c4.large", "us-east-1a"), Market("m4.large", "us-east-1a")
MICRO = Decimal("0.000001")
H = HOUR_S
AT = 1000

Events = list[tuple[int, int]]


@dataclass(frozen=True)
class Case:
    """A model, and how the second accounting knows it."""

    model: BillingModel
    rule: Rule
    max_life: int | None = None
    shown: Decimal | None = None


FLAT = Decimal("0.014003")
CASES: Mapping[str, Case] = {
    "hourly-refund": Case(HourlyRefund(), whole_hours),
    "per-second-first-hour-free": Case(PerSecondFirstHourFree(), seconds(at_once=False)),
    "per-second, at once": Case(PerSecondFirstHourFree(Repricing.CHANGE), seconds(at_once=True)),
    "per-second, no minimum": Case(PerSecondFirstHourFree(minimum_s=0), seconds(at_once=False, least=0)),
    "flat": Case(Flat(14_003), fixed(FLAT), shown=FLAT),
    "flat, an hour at most": Case(Flat(14_003, max_life_s=H), fixed(FLAT), H, FLAT),
    "flat, half an hour more": Case(Flat(14_003, max_life_s=H + H // 2), fixed(FLAT), H + H // 2, FLAT),
}

#: Where something can go wrong: on the hours, in the first minute, a second beside them, and anywhere.
MOMENTS = st.one_of(
    st.sampled_from([AT + about + off for about in (0, 60, H // 2, H, H + H // 2, 2 * H) for off in (-1, 0, 1)]),
    st.integers(AT - 20, AT + 2 * H + 10),
)
PRICES = st.integers(1, 5).map(lambda cents: 10_000 * cents + 1)
EVENTS = st.lists(st.tuples(MOMENTS, PRICES), max_size=8).map(lambda rows: sorted(rows, key=lambda row: row[0]))


@st.composite
def requests(draw: st.DrawFn) -> SpotRequest:
    at_s = draw(st.just(AT) | st.integers(AT - 15, AT + 15))
    leaves_at_s = draw(st.none() | MOMENTS.filter(lambda moment: moment >= at_s))
    window_ends_s = draw(MOMENTS.filter(lambda moment: moment > at_s))
    return SpotRequest(
        draw(st.sampled_from([MARKET, OTHER])),
        draw(st.integers(1, 7)),
        draw(PRICES | st.just(0)),
        at_s,
        leaves_at_s,
        None if leaves_at_s is not None and draw(st.booleans()) else window_ends_s,
    )


def trace(events: Events) -> Trace:
    return Trace(np.array([at for at, _ in events], np.int64), np.array([micros for _, micros in events], np.int64))


def naive(events: Events, request: SpotRequest, case: Case) -> NaiveBill:
    return naive_bill(
        [(second, micros * MICRO) for second, micros in events],
        *(request.count, request.bid_micros * MICRO, request.at_s, request.leaves_at_s, request.window_ends_s),
        *(case.rule, case.max_life, case.shown),
    )


def in_dollars(bill: Bill) -> dict[str, Any]:
    return {
        "granted": bill.granted,
        "evicted_at": bill.evicted_at_s,
        "ended_at": bill.ended_at_s,
        "charges": [
            (charge.hour_start_s, charge.price_micros * MICRO, charge.amount_micros * MICRO, charge.refunded)
            for charge in bill.charges
        ],
        "refunded": bill.refunded_micros * MICRO,
        "total": bill.total_micros * MICRO,
        "prorata": bill.total_prorata_micros * MICRO,
        "usable_s": bill.usable_s,
    }


def naively(bill: NaiveBill) -> dict[str, Any]:
    return {
        "granted": bill.granted,
        "evicted_at": bill.evicted_at,
        "ended_at": bill.ended_at,
        "charges": [(charge.hour_start, charge.price, charge.amount, charge.refunded) for charge in bill.charges],
        "refunded": bill.refunded,
        "total": bill.total,
        "prorata": bill.prorata,
        "usable_s": bill.usable_s,
    }


LOW, HIGH = 10_001, 50_001


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=60)
@given(here=EVENTS, there=EVENTS, asked=st.lists(requests(), max_size=4))
# Taken and left in one second: within the hour, on the hour, as the window ends; without a window.
@example([(0, LOW), (AT + 5, HIGH)], [], [SpotRequest(MARKET, 3, LOW, AT, AT + 5, AT + 2 * H)])
@example([(0, LOW), (AT + H, HIGH)], [], [SpotRequest(MARKET, 3, LOW, AT, AT + H, AT + 2 * H)])
@example([(0, LOW), (AT + 5, HIGH)], [], [SpotRequest(MARKET, 3, LOW, AT, AT + 5, AT + 5)])
@example([(0, LOW), (AT + 5, HIGH)], [], [SpotRequest(MARKET, 3, LOW, AT, AT + 5)])
def test_bills_are_what_living_through_every_second_costs(
    name: str, here: Events, there: Events, asked: list[SpotRequest]
) -> None:
    events = {MARKET: here, OTHER: there}
    found = bills(TraceSet({market: trace(rows) for market, rows in events.items()}), asked, CASES[name].model)
    for request, bill in zip(asked, found, strict=True):
        assert in_dollars(bill) == naively(naive(events[request.market], request, CASES[name]))


def test_every_named_model_is_held_against_the_second_accounting() -> None:
    assert {type(case.model) for case in CASES.values()} == set(SPOT_BILLING.values())


def bill(events: Events, model: BillingModel | None = None, **changes: int | None) -> Bill:
    """Return the bill of four instances at `AT`, two hours long, bid two cents."""
    asked: dict[str, Any] = {"count": 4, "bid_micros": 20_000, "at_s": AT, "window_ends_s": AT + 2 * H} | changes
    (found,) = bills({MARKET: trace(events)}, [SpotRequest(MARKET, **asked)], model or HourlyRefund())
    return found


def test_a_bid_of_exactly_the_price_is_granted_and_kept() -> None:
    assert bill([(0, 20_000), (AT + 9, 20_000), (AT + 10, 19_999), (AT + 11, 20_000)]).ended_at_s == AT + 2 * H
    assert bill([(0, 20_001)]) == REFUSED
    assert bill([(0, 20_000), (AT + 9, 20_001)]).evicted_at_s == AT + 9


def test_before_the_first_price_nothing_is_granted_and_after_the_last_one_that_holds() -> None:
    assert bill([(AT + 1, 1)]) == REFUSED
    assert bill([]) == REFUSED
    assert bill([(AT, 10_000)]).granted
    assert [charge.price_micros for charge in bill([(0, 10_000), (AT - 9, 15_000)]).charges] == [15_000, 15_000]


def test_of_several_prices_in_one_second_the_last_counts() -> None:
    assert bill([(AT, 30_000), (AT, 10_000)]).charges[0].price_micros == 10_000
    assert bill([(AT, 10_000), (AT, 30_000)]) == REFUSED
    assert bill([(0, 10_000), (AT + 5, 30_000), (AT + 5, 10_000)]).evicted_at_s is None
    assert bill([(0, 10_000), (AT + 5, 10_000), (AT + 5, 30_000)]).evicted_at_s == AT + 5


def test_an_eviction_on_the_hour_leaves_it_paid() -> None:
    found = bill([(0, 10_000), (AT + H, 30_000)])
    assert (found.evicted_at_s, found.total_micros, found.refunded_micros) == (AT + H, 40_000, 0)
    found = bill([(0, 10_000), (AT + H - 1, 30_000)])
    assert (found.evicted_at_s, found.total_micros, found.refunded_micros) == (AT + H - 1, 0, 40_000)


def test_what_comes_as_the_window_ends_has_not_happened() -> None:
    found = bill([(0, 10_000), (AT + 5, 30_000)], window_ends_s=AT + 5)
    assert (found.evicted_at_s, found.ended_at_s, found.total_micros) == (None, AT + 5, 40_000)


def test_of_eviction_and_own_end_in_one_second_the_eviction_counts() -> None:
    for window_ends_s in (None, AT + H):
        found = bill([(0, 10_000), (AT + 5, 30_000)], leaves_at_s=AT + 5, window_ends_s=window_ends_s)
        assert (found.evicted_at_s, found.total_micros, found.refunded_micros) == (AT + 5, 0, 40_000)


def test_who_leaves_as_he_comes_pays_nothing() -> None:
    found = bill([(0, 10_000)], leaves_at_s=AT)
    assert (found.granted, found.ended_at_s, found.charges, found.usable_s) == (True, AT, (), 0)


def test_a_maximum_life_takes_what_the_market_leaves() -> None:
    for life_s, evicted_at_s in ((H, AT + H), (2 * H - 1, AT + 2 * H - 1), (2 * H, None), (3 * H, None)):
        found = bill([(0, 10_000)], Flat(1_000, life_s))
        assert (found.evicted_at_s, found.refunded_micros) == (evicted_at_s, 0)
        assert found.ended_at_s == AT + min(life_s, 2 * H)
    assert bill([(0, 10_000), (AT + 7, 30_000)], Flat(1_000, H)).evicted_at_s == AT + 7


def test_a_market_without_prices_grants_nothing() -> None:
    assert list(bills({}, [SpotRequest(MARKET, 1, 1, 0, 1)], HourlyRefund())) == [REFUSED]
    assert list(bills({}, [], HourlyRefund())) == []


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"count": 0}, "0 instances"),
        ({"window_ends_s": None}, "without an end"),
        ({"leaves_at_s": AT - 1}, "ends before it"),
        ({"window_ends_s": AT}, "is over"),
    ],
)
def test_what_is_no_request_is_refused(changes: dict[str, int | None], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        bill([(0, 10_000)], **changes)
