"""Eviction models found by walking: one bid after the other, one event after the other."""

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from proteus_spot.bidding.evictions.states import LATELY_S, Bins
from proteus_spot.bidding.market.model import HOUR_S, Market
from proteus_spot.bidding.market.traces import Trace, TraceSet

MARKET, OTHER = Market("c4.large", "us-east-1a"), Market("c4.large", "us-east-1b")
DELTAS = (0, 100, 1_000, 50_000)
#: Of the price: some stand just a delta apart.
PRICES = (20_000, 20_100, 20_101, 21_000, 71_000, 500_000)
BINS = Bins(np.array([[20_101, 60_000]]), np.array([300, 3600]), np.array([1, 7200]))


def trace(*events: tuple[int, int]) -> Trace:
    times, prices = zip(*events, strict=True)
    return Trace(np.array(times, dtype=np.int64), np.array(prices, dtype=np.int64))


def traces(longest_s: int, most: int = 12) -> st.SearchStrategy[Trace]:
    """Traces whose events often fall on whole minutes."""
    moments = st.one_of(
        st.integers(0, longest_s), st.integers(0, longest_s // 60).map(lambda minute: 60 * minute), st.integers(0, 7200)
    )
    events = st.lists(st.tuples(moments, st.sampled_from(PRICES)), min_size=1, max_size=most)
    return events.map(lambda rows: trace(*sorted(rows, key=lambda row: row[0])))


def grants(prices: Trace, from_s: int, until_s: int) -> list[int]:
    return [at_s for at_s in range(from_s, until_s - HOUR_S + 1, 60) if prices.price_at(at_s) is not None]


def life(prices: Trace, delta: int, at_s: int) -> float:
    """How long a bid of that moment lives."""
    price = prices.price_at(at_s)
    assert price is not None
    taken_s = prices.first_above(price + delta, at_s)
    return float("inf") if taken_s is None else taken_s - at_s


def curve(prices: Trace, delta: int, from_s: int, until_s: int, horizons_s: Sequence[int]) -> list[float]:
    """The share that lived for each horizon, among those that have as much left; then the mean hazard goes on."""
    found: list[float] = []
    end, last_s = 1.0, 0
    for horizon in horizons_s:
        seen = [at_s for at_s in grants(prices, from_s, until_s) if at_s + horizon <= until_s]
        if seen:
            lived = sum(life(prices, delta, at_s) >= horizon for at_s in seen) / len(seen)
            end, last_s = min(lived, end), horizon
            found.append(end)
        else:
            found.append(end ** (horizon / last_s))
    return found


def state(prices: Trace, bins: Bins, delta: int, at_s: int) -> int:
    """The state of one moment, second by second where it must be."""
    now = bisect_right(prices.times_s.tolist(), at_s) - 1
    if now < 0:
        return 0
    price = int(prices.prices_micros[now])
    changed = now
    while changed > 0 and prices.prices_micros[changed - 1] == price:
        changed -= 1
    edges = [at_s - LATELY_S, *prices.times_s[: now + 1].tolist(), at_s]
    above_s = 0
    for index in range(now + 1):
        begin, end = max(edges[0], edges[index + 1]), edges[index + 2]
        if end > begin and prices.prices_micros[index] > price + delta:
            above_s += end - begin
    level, age, above = (
        bisect_right(of.tolist(), value)
        for of, value in (
            (bins.level_micros[0], price),
            (bins.age_s, at_s - int(prices.times_s[changed])),
            (bins.above_s, above_s),
        )
    )
    _, ages, aboves = bins.shape
    return (level * ages + age) * aboves + above


def two_state_market(rng: np.random.Generator, until_s: int, calm_s: float, storm_s: float) -> TraceSet:
    """A market that is calm and stormy in turn, each for an exponential time: how long a bid lives is then known.

    In calm (price 20,000) a bid under any delta below 50,000 is taken when the storm comes, which is without memory.
    """
    events, at_s, calm = [], 0.0, True
    while at_s < until_s:
        events.append((int(at_s), 20_000 if calm else 100_000))
        at_s += max(1.0, rng.exponential(calm_s if calm else storm_s))
        calm = not calm
    return TraceSet({MARKET: trace(*events)})
