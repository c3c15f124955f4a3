"""Features of the recent past of the markets that a job may bid in, for policies that weigh it.

The price store holds most of it; only the rest is requested from the market, so that a tick does not request a week.
"""

import logging
from collections.abc import Mapping, Sequence

import numpy as np

from proteus_spot.bidding.forecast import MarketFeatures, features_of
from proteus_spot.bidding.forecast.features import LOOKBACK_S
from proteus_spot.bidding.market.model import Market
from proteus_spot.bidding.market.spot_market import MarketError
from proteus_spot.bidding.market.traces import Trace, TraceSet
from proteus_spot.infra.storage.blobs import BlobError
from proteus_spot.infra.storage.price_store import PriceStore
from proteus_spot.tasks.market.current_prices import Prices, history
from proteus_spot.tasks.market.engine_journal import JobEngine
from proteus_spot.tasks.task_runtime import current_runtime, runtime_task

_log = logging.getLogger(__name__)


@runtime_task("observe signals", market=True)
def observe_signals(markets: Sequence[Market]) -> dict[Market, MarketFeatures]:
    """Return the signal of each market that has a price.

    Notes
    -----
    A market without stored prices has the signal of the prices that the market reports since the others were stored.
    """
    runtime = current_runtime()
    now_s = runtime.now_s()
    from_s = now_s - LOOKBACK_S
    store = PriceStore(runtime.blobs)
    stored = store.read(markets, from_s, now_s)
    segments = store.segments()
    ends_s = (max(each.until_s for each in segments if str(market) in each.markets) for market in stored)
    recent = history(markets, max(from_s, min([now_s, *ends_s])), now_s)
    return features_of(_joined(stored, recent).between(from_s, now_s), now_s)


def signals_to_decide_on(job_engine: JobEngine, prices: Prices) -> dict[Market, MarketFeatures]:
    """Return the signals of the markets that have a price to decide on; none if the job's policy does not use them.

    If the market, or the bucket, does not answer there are none either, and nothing is bought.
    """
    engine = job_engine.cached()
    if engine.holdings.job_id is None or engine.holdings.opened.foresight is None or not prices.by_market:
        return {}
    try:
        return observe_signals(sorted(prices.by_market))
    except MarketError as error:
        _log.warning("nothing is bought: the market did not report its recent prices (%s)", error.code)
    except BlobError as error:
        _log.warning("nothing is bought: the stored prices cannot be read: %s", error)
    return {}


def _joined(stored: Mapping[Market, Trace], recent: Mapping[Market, Trace]) -> TraceSet:
    """Return both in one; of two prices of one second the recent one counts."""
    joined = dict(stored)
    for market, trace in recent.items():
        if market in joined:
            times = np.append(joined[market].times_s, trace.times_s)
            prices = np.append(joined[market].prices_micros, trace.prices_micros)
            order = np.argsort(times, kind="stable")
            trace = Trace(times[order], prices[order])
        joined[market] = trace
    return TraceSet(joined)
