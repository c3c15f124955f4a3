"""The corners in which accountings go wrong, under each billing model, held against the second accounting."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from proteus_spot.bidding.billing import HourlyRefund
from proteus_spot.bidding.billing.bulk_requests import Bill, SpotRequest, bills
from tests.bidding.billing.test_bulk_requests import (
    AT,
    CASES,
    EVENTS,
    HIGH,
    LOW,
    MARKET,
    Events,
    H,
    in_dollars,
    naive,
    naively,
    trace,
)

WINDOW = {"window_ends_s": AT + 2 * H}

#: Prices, changes of a request (three machines, a bid of 0.010001 $), and its expected outcome under every model.
CORNERS: Mapping[str, tuple[Events, dict[str, Any], dict[str, Any]]] = {
    "the bid is the price": ([(0, LOW)], WINDOW, {"granted": True, "ended_at": AT + 2 * H}),
    "the price is a micro-dollar above the bid": ([(0, LOW + 1)], WINDOW, {"granted": False, "usable_s": 0}),
    "the price comes to equal the bid": ([(0, LOW - 1), (AT + 9, LOW)], WINDOW, {"evicted_at": None}),
    "a price above the bid as it is asked for": ([(0, LOW), (AT, HIGH)], WINDOW, {"granted": False}),
    "and in the next second": ([(0, LOW), (AT + 1, HIGH)], WINDOW, {"evicted_at": AT + 1, "usable_s": 1}),
    "evicted a second before the hour": ([(0, LOW), (AT + H - 1, HIGH)], WINDOW, {"evicted_at": AT + H - 1}),
    "evicted on the hour": ([(0, LOW), (AT + H, HIGH)], WINDOW, {"evicted_at": AT + H, "refunded": Decimal(0)}),
    "evicted a second after the hour": ([(0, LOW), (AT + H + 1, HIGH)], WINDOW, {"evicted_at": AT + H + 1}),
    "evicted on the second hour, which ends the window": ([(0, LOW), (AT + 2 * H, HIGH)], WINDOW, {"evicted_at": None}),
    "own end on the hour": (
        [(0, LOW)],
        {"leaves_at_s": AT + H, **WINDOW},
        {"ended_at": AT + H, "refunded": Decimal(0)},
    ),
    "own end a second after the hour": ([(0, LOW)], {"leaves_at_s": AT + H + 1}, {"usable_s": H + 1}),
    "window ends on the hour": ([(0, LOW)], {"window_ends_s": AT + H}, {"ended_at": AT + H}),
    "eviction and own end in one second": (
        [(0, LOW), (AT + 7, HIGH)], {"leaves_at_s": AT + 7, **WINDOW}, {"evicted_at": AT + 7}
    ),
    "eviction and own end in one second, on the hour": (
        [(0, LOW), (AT + H, HIGH)], {"leaves_at_s": AT + H, **WINDOW}, {"evicted_at": AT + H}
    ),
    "eviction as the window ends": ([(0, LOW), (AT + 7, HIGH)], {"window_ends_s": AT + 7}, {"evicted_at": None}),
    "of several prices in one second the last, below": (
        [(0, LOW), (AT + 7, HIGH), (AT + 7, LOW)], WINDOW, {"evicted_at": None}
    ),
    "of several prices in one second the last, above": (
        [(0, LOW), (AT + 7, LOW - 1), (AT + 7, HIGH)], WINDOW, {"evicted_at": AT + 7}
    ),
    "before the first price": ([(AT + 1, LOW)], WINDOW, {"granted": False, "ended_at": None}),
    "at the first price": ([(AT, LOW)], WINDOW, {"granted": True}),
    "without any price": ([], WINDOW, {"granted": False}),
    "long after the last price": ([(0, 7), (1, LOW)], WINDOW, {"granted": True, "ended_at": AT + 2 * H}),
    "another price at the start of the hour": ([(0, LOW), (AT + H, LOW - 5)], WINDOW, {"ended_at": AT + 2 * H}),
    "another price a second before it": ([(0, LOW), (AT + H - 1, LOW - 5)], WINDOW, {"ended_at": AT + 2 * H}),
    "own end at once": ([(0, LOW)], {"leaves_at_s": AT}, {"granted": True, "usable_s": 0, "total": Decimal(0)}),
}  # fmt: skip


def bill(events: Events, name: str, **changes: Any) -> tuple[SpotRequest, Bill]:
    request = SpotRequest(MARKET, **{"count": 3, "bid_micros": LOW, "at_s": AT, **changes})
    (found,) = bills({MARKET: trace(events)}, [request], CASES[name].model)
    return request, found


@pytest.mark.parametrize("model", CASES)
@pytest.mark.parametrize("corner", CORNERS)
def test_a_corner_costs_what_living_through_every_second_does(model: str, corner: str) -> None:
    events, changes, must = CORNERS[corner]
    request, found = bill(events, model, **changes)
    told = in_dollars(found)
    assert told == naively(naive(events, request, CASES[model]))
    if CASES[model].max_life is None:  # or it ends some of them before
        assert {key: told[key] for key in must} == must


def test_charges_are_rounded_one_by_one() -> None:
    """Whole hours of 7 and 9 micro-dollars, of the last one half."""
    request = SpotRequest(MARKET, 1, LOW, AT, AT + H + H // 2)
    events = [(0, 7), (AT + H, 9)]
    (found,) = bills({MARKET: trace(events)}, [request], HourlyRefund())
    assert [charge.amount_micros for charge in found.charges] == [7, 9]
    assert found.total_prorata_micros == 7 + 4, "4.5 of 9 micro-dollars, half to even"


@settings(deadline=None, max_examples=150)
@given(
    events=EVENTS,
    cents=st.lists(st.integers(1, 5), min_size=2, max_size=2).map(sorted),
    model=st.sampled_from(list(CASES)),
)
def test_a_higher_bid_is_never_evicted_sooner(events: Events, cents: list[int], model: str) -> None:
    lower, higher = (bill([(0, LOW), *events], model, bid_micros=10_000 * each + 1, **WINDOW)[1] for each in cents)
    lower_evicted, higher_evicted = lower.evicted_at_s is not None, higher.evicted_at_s is not None
    event(f"lower granted {lower.granted}, evicted {lower_evicted}; higher {higher_evicted}")
    if lower.granted:
        assert higher.granted
        assert higher.usable_s >= lower.usable_s
    if higher.evicted_at_s is not None and lower.granted:
        assert lower.evicted_at_s is not None
        assert lower.evicted_at_s <= higher.evicted_at_s
