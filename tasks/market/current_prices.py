"""Current prices of the markets, and whether they are recent enough to decide on.

A price holds until it changes, so one that has stood for days is not old: what ages is the feed that reported it. The
market is queried at every tick; its answer is as good as the feed behind it, which is taken to have stopped when no
market's price has been reported for `Settings.prices_max_age_s` (a replay that ended, a clock that runs ahead). EC2
reports some price of a region every few minutes, so a feed that did so, and is silent for `_SILENT_S`, has stopped.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np

from proteus_spot.bidding.market.model import HOUR_S, Market
from proteus_spot.bidding.market.money import Micros
from proteus_spot.bidding.market.spot_market import MarketError
from proteus_spot.bidding.market.traces import Trace, TraceSet
from proteus_spot.tasks.task_runtime import current_runtime, runtime_task

_log = logging.getLogger(__name__)
#: A feed that is silent for `_SILENT_S` has stopped if it reported some price in each `_OFTEN_S` of as long before.
_SILENT_S, _OFTEN_S = 3 * HOUR_S, HOUR_S // 2


@dataclass(frozen=True)
class Prices:
    """The prices to decide on, and the markets that are left out of the decision, each with the reason."""

    by_market: Mapping[Market, Micros]
    left_out: Mapping[Market, str] = field(default_factory=dict)


def history(markets: Sequence[Market], from_s: int, until_s: int) -> TraceSet:
    """Return the traces of `markets` in [from_s, until_s], with the prices that held at its beginning."""
    points = current_runtime().market.price_history(markets, from_s, until_s)
    points = sorted(points, key=lambda point: point.market)  # stable: in time order within a market
    return TraceSet(
        {
            market: Trace(
                np.array([point.at_s for point in rows], dtype=np.int64),
                np.array([point.price_micros for point in rows], dtype=np.int64),
            )
            for market, group in groupby(points, key=lambda point: point.market)
            if (rows := list(group))
        }
    )


@runtime_task("observe prices", market=True)
def observe_prices(markets: Sequence[Market]) -> Prices:
    """Return the current price of each market, and the markets without a recent enough price."""
    runtime = current_runtime()
    now_s = runtime.now_s()
    current = history(markets, now_s, now_s)
    limit_s = runtime.settings.prices_max_age_s
    # Recent markets are calm for weeks on end; all the others are queried only if none of ours has moved.
    if len(current) and now_s - current.last_s > min(limit_s, _SILENT_S) and (stopped := _stopped(now_s, limit_s)):
        return Prices({}, dict.fromkeys(markets, f"{stopped}: the feed has stopped"))
    prices = current.prices_at(now_s)
    return Prices(prices, {market: "the market reports no price" for market in markets if market not in prices})


def _stopped(now_s: int, limit_s: int) -> str:
    """Return for how long the market has reported no price at all, if that is too long; else an empty text."""
    market = current_runtime().market
    newest_s = market.newest_price_s(now_s - limit_s - 1, now_s)
    if newest_s is None:
        return f"no market's price was reported for {days(limit_s)} (PROTEUS_PRICES_MAX_AGE_S)"
    if now_s - newest_s <= _SILENT_S:
        return ""
    before_s = range(newest_s - _OFTEN_S, newest_s - _SILENT_S - 1, -_OFTEN_S)
    if all(market.newest_price_s(at_s - _OFTEN_S, at_s) is not None for at_s in before_s):
        return f"no market's price was reported for {_SILENT_S // HOUR_S} hours, and until then some every half-hour"
    return ""  # few markets, and calm ones: a replay


def prices_to_decide_on(markets: Sequence[Market]) -> Prices:
    """Return what `observe_prices` returns; if the market does not answer, every market is left out.

    So a tick without prices still renews, releases and records what has ended; it only buys nothing.
    """
    if not markets:
        return Prices({})
    try:
        prices = observe_prices(markets)
    except MarketError as error:
        prices = Prices({}, dict.fromkeys(markets, f"the market did not report its prices ({error.code})"))
    for why in sorted(set(prices.left_out.values())):
        names = ", ".join(str(market) for market in sorted(markets) if prices.left_out.get(market) == why)
        _log.warning("nothing is bought in %s: %s", names, why)
    return prices


def days(seconds: float) -> str:
    """Return a length of time in days, for a reader."""
    return f"{seconds / 86_400:.4g} days"
