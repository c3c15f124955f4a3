"""What the markets of a sweep offer at a tick: price, its average of the last hour, the limit that is bid, its risk.

The eviction predictor is fitted or found when the sweep opens, kept with the sweep, and asked at each tick.
"""

import logging
from collections.abc import Mapping

import numpy as np

from proteus_spot.bidding.evictions.predictors.predictor_model import PredictorModel
from proteus_spot.bidding.market.model import HOUR_S, InstanceType, Market
from proteus_spot.bidding.market.money import Micros
from proteus_spot.bidding.market.spot_market import MarketError
from proteus_spot.bidding.market.time_window import TimeWindow
from proteus_spot.bidding.market.traces import Trace, TraceSet
from proteus_spot.bidding.tuning.provisioning.bids import draw_bid
from proteus_spot.bidding.tuning.sweep_events import Offer
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.market_data.eviction_model_files import model_bytes, model_from_bytes
from proteus_spot.infra.storage.job_paths import JobPaths
from proteus_spot.studies.market_data.predictors import sweep_predictors
from proteus_spot.tasks.market.current_prices import Prices, history
from proteus_spot.tasks.sweeps.sweep_spec import SweepSpec
from proteus_spot.tasks.task_runtime import current_runtime, runtime_task

_log = logging.getLogger(__name__)
#: Seconds of prices that a tick looks at: predictors read the last hour, and at each of its minutes the hour before.
_LOOKBACK_S = 3 * HOUR_S


def fit_predictor(spec: SweepSpec, traces: TraceSet, window: TimeWindow) -> None:
    """Fit the sweep's predictor to stored prices, or find the kept one, and keep it with the sweep."""
    model = sweep_predictors(spec.predictor, traces, window)
    for market, why in model.without.items():
        _log.warning("sweep %s: %s uses the survival curves of its prices: %s", spec.job_id, market, why)
    current_runtime().blobs.write_bytes(_predictor_name(spec.job_id), model_bytes(model))


def predictor_of(spec: SweepSpec) -> PredictorModel:
    """Return the predictor that was kept with the sweep.

    Raises
    ------
    BlobError, InputError
        If it cannot be read.
    """
    blobs, name = current_runtime().blobs, _predictor_name(spec.job_id)
    model = model_from_bytes(blobs.read_bytes(name), blobs.url_of(name))
    if not isinstance(model, PredictorModel):
        raise InputError(f"{blobs.url_of(name)}: holds no predictor")
    return model


@runtime_task("observe recent prices", market=True)
def observe_recent(markets: tuple[Market, ...]) -> TraceSet:
    """Return the prices of the last hours."""
    now_s = current_runtime().now_s()
    return history(markets, now_s - _LOOKBACK_S, now_s)


def recent_prices(prices: Prices) -> TraceSet:
    """Return the recent prices of the markets with a price to decide on; none where the market does not answer."""
    if not prices.by_market:
        return TraceSet({})
    try:
        return observe_recent(tuple(sorted(prices.by_market)))
    except MarketError as error:
        _log.warning("nothing is bought: the market did not report its recent prices (%s)", error.code)
        return TraceSet({})


def offers_at(
    prices: Mapping[Market, Micros],
    recent: TraceSet,
    types: Mapping[str, InstanceType],
    predictor: PredictorModel,
    seed: int,
    decision: int,
    now_s: int,
    today: bool = False,
) -> dict[Market, Offer]:
    """Return the offer of each market with recent prices and an on-demand price.

    Parameters
    ----------
    recent : prices of the last hours.
    predictor : returns the probability that the limit of exactly this tick is passed within the hour.
    decision : number of the decision point, of which the limit is drawn.
    today : whether bids decide nothing: the limit is the price on demand, and none is sent.
    """
    markets = [market for market in prices if market.instance_type in types and market in recent]
    on_demand = [types[market.instance_type].on_demand_micros for market in markets]
    limits = [
        max(prices[m], most) if today else draw_bid(seed, m, decision, prices[m], most)
        for m, most in zip(markets, on_demand, strict=True)
    ]
    chances = predictor.of_markets(recent, markets, now_s, np.array(limits, dtype=np.int64)).tolist()
    offers = {}
    for market, limit, p_evicted, most in zip(markets, limits, chances, on_demand, strict=True):
        average = average_micros(recent[market], now_s - HOUR_S, now_s)
        offers[market] = Offer(prices[market], average, limit, p_evicted, most)
    return offers


def average_micros(trace: Trace, from_s: int, until_s: int) -> Micros:
    """Return the average price over [from_s, until_s], weighted by time, from where the trace begins."""
    part = trace.between(from_s, until_s)
    times = np.clip(np.append(part.times_s, until_s), from_s, until_s)
    seconds = np.diff(times)
    if not seconds.sum():
        return int(part.prices_micros[-1])
    return round(float((part.prices_micros * seconds).sum() / seconds.sum()))


def _predictor_name(sweep_id: str) -> str:
    return f"{JobPaths(sweep_id).root}/predictor.npz"
