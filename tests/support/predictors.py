"""Questions to eviction predictors."""

from collections.abc import Mapping

import numpy as np

from proteus_spot.bidding.evictions.predictors.predictor_model import PredictorModel
from proteus_spot.bidding.market.model import Market
from proteus_spot.bidding.market.traces import Trace


def chance(model: PredictorModel, traces: Mapping[Market, Trace], market: Market, at_s: int, limit: int) -> float:
    """Return the probability of one bid in one market, as a sweep asks for it."""
    return float(model.of_markets(traces, [market], at_s, np.array([limit], dtype=np.int64))[0])
