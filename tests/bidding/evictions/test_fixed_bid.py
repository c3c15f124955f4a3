"""β of a bid of so many dollars: against a walk over the minutes, and in the corners."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proteus_spot.bidding.evictions.fixed_bid import eviction_prob
from proteus_spot.bidding.market.model import Market
from proteus_spot.bidding.market.traces import Trace, TraceSet
from tests.support.markets import PROPERTY

HOUR = 3600
A, B = Market("m4.large", "a"), Market("m4.large", "b")


def one(*events: tuple[int, int]) -> TraceSet:
    times_s, prices = np.array(events, dtype=np.int64).T
    return TraceSet({A: Trace(times_s, prices)})


@PROPERTY
@given(
    st.lists(st.tuples(st.integers(1, 900), st.integers(1, 6)), min_size=1, max_size=60),
    st.integers(0, 4000),
    st.integers(1, 6),
)
def test_it_is_the_share_of_the_minutes_that_are_granted(steps: list[tuple[int, int]], from_s: int, bid: int) -> None:
    times_s = np.cumsum([after_s for after_s, _ in steps])
    traces = one(*((int(at_s), price) for at_s, (_, price) in zip(times_s, steps, strict=True)))
    trace, until_s = traces[A], 5 * HOUR
    lived = []
    for at_s in range(from_s, until_s - HOUR + 1, 60):
        price = trace.price_at(at_s)
        if price is not None and price <= bid:
            taken_s = trace.first_above(bid, at_s)
            lived.append(taken_s is None or taken_s >= at_s + HOUR)
    expected = lived.count(False) / len(lived) if lived else None
    assert eviction_prob(traces, {A: bid}, from_s, until_s) == expected


def test_an_event_on_the_hour_takes_nothing_and_one_at_the_bid_neither() -> None:
    assert eviction_prob(one((0, 10), (HOUR, 20)), {A: 10}, 0, HOUR) == 0
    assert eviction_prob(one((0, 10), (HOUR - 1, 20)), {A: 10}, 0, HOUR) == 1
    assert eviction_prob(one((0, 10), (HOUR - 1, 20)), {A: 20}, 0, HOUR) == 0


def test_markets_weigh_by_the_minutes_at_which_they_grant() -> None:
    taken = Trace(np.array([0, 60]), np.array([10, 20]))  # one minute, and it ends
    calm = Trace(np.array([0]), np.array([10]))
    both = TraceSet({A: taken, B: calm})
    assert eviction_prob(both, {A: 10, B: 10}, 0, HOUR + 540) == pytest.approx(1 / 11)


def test_where_nothing_is_granted_nothing_is_known() -> None:
    assert eviction_prob(one((0, 10)), {A: 9}, 0, 3 * HOUR) is None
    assert eviction_prob(one((0, 10)), {A: 10}, 0, HOUR - 1) is None
