"""Prices as the market tells them."""

from collections.abc import Sequence
from itertools import groupby

import numpy as np

from bidding.model import Market
from bidding.money import Micros
from bidding.traces import Trace, TraceSet
from tasks.world import touch, world


def history(markets: Sequence[Market], from_s: int, until_s: int) -> TraceSet:
    """Return the traces of `markets` in [from_s, until_s], with the prices that held at its beginning."""
    points = world().market.price_history(markets, from_s, until_s)
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


@touch("observe prices", market=True)
def observe_prices(markets: Sequence[Market]) -> dict[Market, Micros]:
    """Return the present price of each market where one is known."""
    now_s = world().now_s()
    return history(markets, now_s, now_s).prices_at(now_s)
