"""The predictor `none`: no evictions are expected."""

from typing import Self

import numpy as np

from proteus_spot.bidding.evictions.curves import Float64s
from proteus_spot.bidding.evictions.predictors.base import Weights
from proteus_spot.bidding.market.time_window import TimeWindow
from proteus_spot.bidding.market.traces import Int64s, Trace


class NoPredictor:
    """The probability is 0, so that a sweep decides by price and speed alone."""

    def fit(self, trace: Trace, window: TimeWindow, seed: int) -> Self:
        """Return the predictor: there is nothing to fit."""
        del trace, window, seed
        return self

    def predict_proba(self, trace: Trace, at_s: Int64s, limit_micros: Int64s) -> Float64s:
        """Return zeros, shape (bids,)."""
        del trace, limit_micros
        return np.zeros(len(at_s))

    def save(self) -> Weights:
        """Return no arrays."""
        return {}

    @classmethod
    def load(cls, weights: Weights) -> Self:
        """Return the predictor."""
        del weights
        return cls()
