"""Grants and evictions by price, held against one search at a time."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from proteus_spot.bidding.market.grants import NEVER_S, granted, taken_at
from proteus_spot.bidding.market.traces import Trace

#: Longer than a few of the blocks that the search steps over, mostly calm.
TRACES = st.lists(st.tuples(st.integers(1, 3), st.sampled_from([1, 1, 1, 2, 3, 9])), min_size=1, max_size=400)
ASKED = st.lists(st.tuples(st.integers(0, 9), st.integers(-5, 900), st.integers(-5, 1300)), max_size=20)


@given(TRACES, ASKED)
def test_many_at_once_are_as_one_at_a_time(steps: list[tuple[int, int]], asked: list[tuple[int, int, int]]) -> None:
    gaps, prices = zip(*steps, strict=True)
    trace = Trace(np.cumsum(gaps), np.array(prices))
    bids, after_s, before_s = (
        (np.array(column, dtype=np.int64) for column in zip(*asked, strict=True))
        if asked
        else (np.empty(0, np.int64),) * 3
    )
    found = zip(granted(trace, bids, after_s).tolist(), taken_at(trace, bids, after_s, before_s).tolist(), strict=True)
    for (bid, after, before), (is_granted, taken_s) in zip(asked, found, strict=True):
        price, above = trace.price_at(after), trace.first_above(bid, after)
        assert is_granted == (price is not None and price <= bid)
        assert taken_s == (above if above is not None and above < before else NEVER_S)


def test_a_search_steps_over_calm_blocks_and_finds_the_last_event() -> None:
    prices = np.ones(64 * 50 + 1, dtype=np.int64)
    prices[-1] = 2
    trace = Trace(np.arange(len(prices)), prices)
    bids, after_s = np.array([1, 1, 2]), np.array([0, 70, 0])
    last = len(prices) - 1
    assert taken_at(trace, bids, after_s, np.array([last + 1, last, last + 1])).tolist() == [last, NEVER_S, NEVER_S]
