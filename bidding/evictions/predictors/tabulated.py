"""The predictor `table`: the project's eviction table, which knows the distance of the limit alone."""

from typing import Self

import numpy as np

from proteus_spot.bidding.evictions import table as eviction
from proteus_spot.bidding.evictions.curves import Float64s, delta_index
from proteus_spot.bidding.evictions.predictors.base import FEWEST_MOMENTS, CannotFit, Weights
from proteus_spot.bidding.evictions.predictors.minute_features import prices_at
from proteus_spot.bidding.evictions.table import DELTAS_MICROS
from proteus_spot.bidding.market.model import MINUTE_S, Market
from proteus_spot.bidding.market.time_window import TimeWindow
from proteus_spot.bidding.market.traces import Int64s, Trace, TraceSet

#: The table of one market needs no name of it.
_MARKET = Market("any", "any")


class TablePredictor:
    """β of the paper's table, by the delta of the limit above the price; between two deltas the lower one applies."""

    def __init__(self, betas: Float64s | None = None) -> None:
        self._betas = np.zeros(len(DELTAS_MICROS)) if betas is None else betas

    def fit(self, trace: Trace, window: TimeWindow, seed: int) -> Self:
        """Return the table of the window, by `bidding.evictions.table.fit`."""
        del seed
        if window.until_s - window.from_s < FEWEST_MOMENTS * MINUTE_S:
            raise CannotFit("the window is shorter than a day")
        rows = eviction.fit(TraceSet({_MARKET: trace}), window.from_s, window.until_s).rows
        if _MARKET not in rows:
            raise CannotFit("no price in the window")
        return type(self)(np.array([beta for beta, _ in rows[_MARKET]]))

    def predict_proba(self, trace: Trace, at_s: Int64s, limit_micros: Int64s) -> Float64s:
        """Return β of each limit, shape (bids,)."""
        deltas = np.maximum(limit_micros - prices_at(trace, at_s), 0)
        return self._betas[delta_index(np.array(DELTAS_MICROS, dtype=np.int64), deltas)]

    def save(self) -> Weights:
        """Return β of each of the paper's deltas."""
        return {"betas": self._betas}

    @classmethod
    def load(cls, weights: Weights) -> Self:
        """Return the predictor of `save`; `ValueError` for other arrays."""
        betas = np.asarray(weights.get("betas", ()), dtype=np.float64)
        if betas.shape != (len(DELTAS_MICROS),) or not ((betas >= 0) & (betas <= 1)).all():
            raise ValueError(f"weights 'betas': want {len(DELTAS_MICROS)} probabilities")
        return cls(betas)
