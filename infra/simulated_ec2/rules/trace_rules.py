"""What the traces say: the prices that were published so far, and when a machine will be evicted."""

from collections.abc import Iterable

from proteus_spot.bidding.market.model import LaunchRequest, Market, PricePoint
from proteus_spot.bidding.market.traces import Trace, TraceSet


def published_prices(traces: TraceSet, markets: Iterable[Market], from_s: int, until_s: int) -> list[PricePoint]:
    """Return the price changes of markets in [from_s, until_s], in order of time; see `SpotMarket.price_history`."""
    points = []
    for market in sorted(set(markets)):
        if market in traces:
            rows = traces[market].between(from_s, until_s)
            pairs = zip(rows.times_s.tolist(), rows.prices_micros.tolist(), strict=True)
            points += [PricePoint(market, *pair) for pair in pairs]
    return sorted(points, key=lambda point: (point.at_s, point.market))


def newest_price_s(traces: TraceSet, after_s: int, until_s: int) -> int | None:
    """Return the time of the newest price in (after_s, until_s]; None if there is none."""
    past_times_s = [trace.times_s[trace.times_s <= until_s] for trace in traces.values()]
    newest_s = max((int(times_s[-1]) for times_s in past_times_s if times_s.size), default=after_s)
    return newest_s if newest_s > after_s else None


def eviction_s(request: LaunchRequest, prices: Trace | None, max_life_s: int | None, now_s: int) -> int | None:
    """Return the second at which its price or age evicts an instance launched now; None if never.

    Parameters
    ----------
    prices : the trace of its market.
    max_life_s : age at which a spot instance is taken; None: at no age.
    """
    if request.bid_micros is None:
        return None
    assert prices is not None, f"{request.market} was sold without a price"
    ends = [prices.first_above(request.bid_micros, now_s)]
    if max_life_s is not None:
        ends.append(now_s + max_life_s)
    return min((end for end in ends if end is not None), default=None)
