"""What compiled functions look up, beside the same question to the project's plain ones."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proteus_spot.bidding.backtest.eviction_arrays import of_bid, pack_table
from proteus_spot.bidding.backtest.price_arrays import NEVER_S, event_at, pack, passed_at
from proteus_spot.bidding.backtest.simulate import prorated
from proteus_spot.bidding.backtest.view import FOLLOWED, price_at
from proteus_spot.bidding.evictions.table import EvictionTable
from proteus_spot.bidding.jit import compiled
from proteus_spot.bidding.market.money import prorate
from proteus_spot.bidding.market.traces import Trace, TraceSet
from tests.bidding.backtest.cases import DELTAS, TYPES, A, B, C
from tests.support.markets import CELLS, PROPERTY

# Parts are compiled without a way in from Python.


@partial(compiled, cache=False)
def prices(markets, market, times_s, followed):
    followed[market].event = event_at(markets, market, times_s[0])
    found = np.empty_like(times_s)
    for i in range(len(times_s)):
        found[i] = price_at(markets, followed, market, times_s[i])
    return found


@partial(compiled, cache=False)
def passed(markets, market, after_s, bid_micros, before_s):
    return passed_at(markets, market, event_at(markets, market, after_s), bid_micros, before_s)


@partial(compiled, cache=False)
def looked_up(table, market, delta_micros):
    return of_bid(table, market, delta_micros)


@partial(compiled, cache=False)
def share(amount, part_s, whole_s):
    return prorated(amount, part_s, whole_s)


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Long enough for several blocks of 64 events, with prices that repeat."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    events = draw(st.integers(1, 400))
    return Trace(np.cumsum(rng.integers(1, 4, events)), rng.integers(1, draw(st.sampled_from([3, 1000])), events))


@PROPERTY
@given(a=traces(), b=traces(), seed=st.integers(0, 2**32 - 1))
def test_prices_and_crossings_are_those_of_the_traces(a: Trace, b: Trace, seed: int) -> None:
    both = TraceSet({A: a, B: b})
    markets = pack(both, (A, B), TYPES)
    rng = np.random.default_rng(seed)
    for market, trace in enumerate((a, b)):
        times = np.sort(rng.integers(-2, trace.times_s[-1] + 3, 50))
        found = prices(markets, market, times, np.zeros(2, dtype=FOLLOWED))
        assert found.tolist() == [-1 if (p := trace.price_at(t)) is None else p for t in times]
        for after_s in times:
            bid = max(trace.price_at(after_s) or 0, int(rng.integers(0, trace.prices_micros.max() + 1)))
            crossing = trace.first_above(bid, after_s)
            assert passed(markets, market, after_s, bid, NEVER_S) == (NEVER_S if crossing is None else crossing)
            if crossing is not None:
                assert passed(markets, market, after_s, bid, crossing) == NEVER_S, "not before the end"
                assert passed(markets, market, after_s, bid, crossing + 1) == crossing


def test_packing_keeps_the_markets_apart_and_leaves_out_what_repeats_a_price() -> None:
    both = TraceSet({A: Trace(np.array([1, 2, 3]), np.array([5, 5, 6])), B: Trace(np.array([1, 2]), np.array([6, 7]))})
    markets = pack(both, (B, A), TYPES)
    assert markets.events["at_s"].tolist() == [1, 2, 1, 3]
    assert markets.facts.tolist() == [(0, 2, 8, 440_000), (2, 4, 2, 100_000)]


def test_a_market_without_a_trace_or_a_type_cannot_be_packed() -> None:
    one = TraceSet({A: Trace(np.array([1]), np.array([5]))})
    with pytest.raises(KeyError):
        pack(one, (A, C), TYPES)
    with pytest.raises(KeyError):
        pack(one, (A,), {})


@PROPERTY
@given(
    rows=st.lists(CELLS, min_size=3, max_size=3).map(tuple),
    delta=st.one_of(
        st.sampled_from([-1, 0, *(d + off for d in DELTAS for off in (-1, 0, 1))]), st.integers(-10, 500_000)
    ),
)
def test_a_bid_is_looked_up_as_in_the_table(rows: tuple[tuple[float, float], ...], delta: int) -> None:
    table = EvictionTable(DELTAS, {B: rows})
    packed = pack_table(table, (A, B))
    assert packed.known.tolist() == [0, 1]
    for index, market in enumerate((A, B)):
        assert looked_up(packed, index, delta) == table.of_bid(market, delta)


@given(amount=st.integers(0, 10**10), part_s=st.integers(0, 3600))
def test_shares_are_rounded_as_money_is(amount: int, part_s: int) -> None:
    assert share(amount, part_s, 3600) == prorate(amount, part_s, 3600)
