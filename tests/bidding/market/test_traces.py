"""Step functions on sorted arrays, held against a walk over the events."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proteus_spot.bidding.market.model import Market
from proteus_spot.bidding.market.traces import Trace, TraceSet

MARKET = Market("c4.large", "us-east-1a")
OTHER = Market("c4.large", "us-east-1b")

#: Few seconds and few prices, so that ties, repeats and exact hits are common.
EVENTS = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 6)), max_size=20).map(
    lambda rows: sorted(rows, key=lambda row: row[0])
)
MOMENTS = st.integers(-3, 34)


def trace(*events: tuple[int, int]) -> Trace:
    times, prices = zip(*events, strict=True) if events else ((), ())
    return Trace(np.array(times, dtype=np.int64), np.array(prices, dtype=np.int64))


def price_then(events: list[tuple[int, int]], at_s: float) -> int | None:
    price = None
    for time_s, value in events:
        if time_s <= at_s:
            price = value
    return price


def last_of_each_second(events: list[tuple[int, int]]) -> list[tuple[int, int]]:
    return sorted(dict(events).items())


@given(EVENTS, MOMENTS)
def test_a_price_holds_from_its_event_until_the_next(events: list[tuple[int, int]], at_s: int) -> None:
    assert trace(*events).price_at(at_s) == price_then(events, at_s)
    assert trace(*events).price_at(at_s + 0.5) == price_then(events, at_s + 0.5)


@given(EVENTS, MOMENTS, st.integers(0, 7))
def test_the_first_event_above_a_bid_is_strictly_later_and_strictly_above(
    events: list[tuple[int, int]], after_s: int, bid: int
) -> None:
    above = [time_s for time_s, price in last_of_each_second(events) if time_s > after_s and price > bid]
    assert trace(*events).first_above(bid, after_s) == (above[0] if above else None)


@given(EVENTS, MOMENTS, MOMENTS)
def test_a_part_knows_every_price_of_its_window_and_nothing_after_it(
    events: list[tuple[int, int]], from_s: int, until_s: int
) -> None:
    part = trace(*events).between(from_s, until_s)
    for at_s in range(from_s, until_s + 1):
        assert part.price_at(at_s) == price_then(events, at_s)
    assert all(time_s <= until_s for time_s in part.times_s)
    assert (part.times_s < from_s).sum() <= 1


@given(EVENTS)
def test_of_several_events_in_a_second_the_last_in_file_order_counts(events: list[tuple[int, int]]) -> None:
    assert trace(*events) == trace(*last_of_each_second(events))


def test_equality_is_not_above() -> None:
    prices = trace((0, 10), (5, 20), (9, 21))
    assert prices.first_above(20, 0) == 9
    assert prices.first_above(21, 0) is None
    assert prices.first_above(19, 5) == 9  # the event at 5 itself is not after 5


@pytest.mark.parametrize(
    ("times", "prices", "complaint"),
    [([2, 1], [1, 1], "time order"), ([1, 2], [1], "equally long"), ([[1]], [[1]], "equally long")],
)
def test_what_is_no_trace_is_refused(times: list, prices: list, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Trace(np.array(times), np.array(prices))


def test_a_trace_does_not_change_and_leaves_its_source_alone() -> None:
    times, prices = np.array([1, 2]), np.array([10, 20])
    made = Trace(times, prices)
    with pytest.raises(ValueError, match="read-only"):
        made.prices_micros[0] = 0
    prices[0] = 99
    assert made.price_at(1) == 10


def test_traces_differ_by_times_and_by_prices() -> None:
    assert trace((1, 10)) == trace((1, 10))
    assert trace((1, 10)) != trace((2, 10))
    assert trace((1, 10)) != trace((1, 11))
    assert trace((1, 10)) != "a trace"


def test_a_set_is_sorted_and_has_no_empty_traces() -> None:
    traces = TraceSet({OTHER: trace((5, 2), (9, 3)), MARKET: trace((7, 1)), Market("x", "y"): trace()})
    assert traces.markets == tuple(traces) == (MARKET, OTHER)
    assert (traces.first_s, traces.last_s) == (5, 9)
    assert repr(traces) == "TraceSet(2 markets, 3 events)"
    assert traces == TraceSet({MARKET: trace((7, 1)), OTHER: trace((5, 2), (9, 3))})


def test_prices_are_told_where_they_are_known() -> None:
    traces = TraceSet({OTHER: trace((5, 2)), MARKET: trace((7, 1))})
    assert traces.prices_at(4) == {}
    assert traces.prices_at(6) == {OTHER: 2}
    assert traces.prices_at(7) == {MARKET: 1, OTHER: 2}


def test_a_part_of_a_set_drops_markets_that_have_nothing_in_it() -> None:
    traces = TraceSet({OTHER: trace((5, 2), (6, 3)), MARKET: trace((7, 1))})
    assert traces.between(6, 6) == TraceSet({OTHER: trace((6, 3))})


def test_an_empty_set_has_no_times() -> None:
    with pytest.raises(ValueError, match="empty"):
        _ = TraceSet({}).first_s
