"""Signals: a second implementation, price by price; and nothing that lies before the lookback, or ahead, tells."""

import math
from dataclasses import astuple
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from proteus_spot.bidding.forecast import MarketFeatures, features_of
from proteus_spot.bidding.forecast.features import LOOKBACK_S
from proteus_spot.bidding.market.model import DAY_S, HOUR_S, Market
from proteus_spot.bidding.market.traces import Trace, TraceSet
from tests.support.forecasts import signals
from tests.support.markets import PROPERTY

A, B = Market("small", "a"), Market("small", "b")
NOW_S = 20 * DAY_S
GAPS = st.one_of(
    st.sampled_from([1, 60, HOUR_S, 6 * HOUR_S, DAY_S, LOOKBACK_S]),
    st.integers(1, 3 * HOUR_S),
    st.integers(1, 2 * DAY_S),
)


@st.composite
def pasts(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Return (second, price) of a market, the last one at or before `NOW_S`; some repeat the price before them."""
    at_s, rows = NOW_S - draw(st.sampled_from([0, 1, HOUR_S, LOOKBACK_S]) | st.integers(0, 3 * DAY_S)), []
    for gap in draw(st.lists(GAPS, min_size=1, max_size=30)):
        rows.append((at_s, draw(st.sampled_from([20_000, 20_000, 30_000, 100_000]))))
        at_s -= gap
    return rows[::-1]


def trace(rows: list[tuple[int, int]]) -> Trace:
    times, prices = zip(*rows, strict=True)
    return Trace(np.array(times), np.array(prices))


def plainly(rows: list[tuple[int, int]], now_s: int) -> MarketFeatures:
    """Return the signal of (second, price), some of them before `now_s`, by what the words of `MarketFeatures` say."""
    begin_s = now_s - LOOKBACK_S
    rows = [row for row in rows if row[0] <= now_s]
    ends = [at_s for at_s, _ in rows[1:]] + [now_s]
    spans = [(max(at_s, begin_s), end_s, price) for (at_s, price), end_s in zip(rows, ends, strict=True)]
    spans = [span for span in spans if span[0] < span[1]] or [(now_s, now_s, rows[-1][1])]
    if rows[-1][0] == now_s and spans[-1][0] != now_s:  # it has only just come
        spans.append((now_s, now_s, rows[-1][1]))
    price = spans[-1][2]
    since_s, before = begin_s, price
    for (_, _, earlier), (from_s, _, later) in pairwise(spans):
        if earlier != later:
            since_s, before = from_s, earlier
    if before == price:
        since_s = spans[0][0]  # it has not changed in all that is known

    def rises(back_s: int) -> int:
        pairs = pairwise(spans)
        return sum(later > earlier for (_, _, earlier), (at_s, _, later) in pairs if at_s > now_s - back_s)

    def mean(back_s: int) -> float:
        parts = [(end - max(start, now_s - back_s), paid) for start, end, paid in spans]
        known = [(seconds, paid) for seconds, paid in parts if seconds > 0]
        total_s = sum(seconds for seconds, _ in known)
        return sum(seconds * paid for seconds, paid in known) / total_s if total_s else float(price)

    return MarketFeatures(
        price, before, now_s - since_s, rises(6 * HOUR_S), rises(DAY_S), mean(HOUR_S), mean(DAY_S), mean(LOOKBACK_S)
    )


@PROPERTY
@given(pasts())
def test_a_signal_is_what_its_words_say(rows: list[tuple[int, int]]) -> None:
    expected = plainly(rows, NOW_S)
    event(f"stood for all of the lookback: {expected.age_s == LOOKBACK_S}, rises {min(expected.rises_24h, 2)}")
    found = features_of(TraceSet({A: trace(rows)}), NOW_S)[A]
    assert astuple(found) == pytest.approx(astuple(expected), rel=1e-12)
    assert astuple(found)[:5] == astuple(expected)[:5]


@PROPERTY
@given(pasts(), pasts())
def test_neither_what_comes_nor_what_lies_before_the_lookback_tells(
    rows: list[tuple[int, int]], others: list[tuple[int, int]]
) -> None:
    """To the last bit: a live job reads seven days, the backtest has all that ever was, and what comes."""
    later = [(at_s + 1 + 2 * (NOW_S - at_s), price) for at_s, price in reversed(others)]
    known = TraceSet({A: trace(rows), B: trace(others)})
    everything = TraceSet({A: trace([*rows, *later]), B: trace(others)})
    whole = features_of(everything, NOW_S)
    assert whole == features_of(known, NOW_S)
    assert whole == features_of(known.between(NOW_S - LOOKBACK_S, NOW_S), NOW_S)


def test_a_market_without_a_price_yet_has_no_signal() -> None:
    assert set(features_of(TraceSet({A: trace([(10, 5)]), B: trace([(11, 5)])}), 10)) == {A}


def test_a_signal_of_an_hour_by_hand() -> None:
    """20 cents for half an hour, 30 for a quarter, 10 since."""
    rows = [(NOW_S - 3600, 200_000), (NOW_S - 1800, 300_000), (NOW_S - 900, 100_000)]
    mean = (1800 * 200_000 + 900 * 300_000 + 900 * 100_000) / 3600
    signal = features_of(TraceSet({A: trace(rows)}), NOW_S)[A]
    assert signal == MarketFeatures(100_000, 300_000, 900, 1, 1, mean, mean, mean)
    expected = [900, 0.25, math.log(1 / 3), 1, 1, *[math.log(100_000 / mean)] * 3]
    assert signal.features(400_000).tolist() == pytest.approx(expected)


@PROPERTY
@given(signals())
def test_a_record_gives_the_signal_again(signal: MarketFeatures) -> None:
    assert MarketFeatures.from_record(signal.to_record()) == signal
    assert np.isfinite(signal.features(1)).all()
