"""The predictor `logistic`: logistic regression on the present record and the limit."""

from typing import Self

import numpy as np
from numpy.typing import NDArray

from proteus_spot.bidding.evictions.curves import Float64s
from proteus_spot.bidding.evictions.predictors.base import Weights, require_both, require_shapes, training_moments
from proteus_spot.bidding.evictions.predictors.input_scaling import Scaling
from proteus_spot.bidding.evictions.predictors.minute_features import FEATURES, Float32s, price_records
from proteus_spot.bidding.evictions.predictors.training_limits import is_passed, random_limits
from proteus_spot.bidding.market.time_window import TimeWindow
from proteus_spot.bidding.market.traces import Int64s, Trace

#: Training moments of a market, at most.
MOMENTS = 8192
_INPUTS = len(FEATURES) + 2  # the limit, and 1 for the intercept
#: Penalty of the squared coefficients, in examples; it keeps them finite where the classes are separable.
_RIDGE = 1.0
_STEPS = 25


class LogisticPredictor:
    """P = 1 / (1 + exp(-coefficients · inputs)), by maximum likelihood with a small penalty."""

    def __init__(self, scaling: Scaling | None = None, coefficients: Float32s | None = None) -> None:
        zeros = np.zeros(len(FEATURES), dtype=np.float32)
        self._scaling = Scaling(zeros, zeros + 1) if scaling is None else scaling
        self._coefficients = np.zeros(_INPUTS, dtype=np.float32) if coefficients is None else coefficients

    def fit(self, trace: Trace, window: TimeWindow, seed: int) -> Self:
        """Return the predictor fitted to random limits of the window's minutes."""
        rng = np.random.default_rng(seed)
        own = trace.between(window.from_s, window.until_s)
        at_s = training_moments(own, window, MOMENTS, rng)
        limits = random_limits(own, at_s, rng)
        came = is_passed(own, at_s, limits)
        require_both(came)
        records = price_records(own, at_s)
        scaling = Scaling.of_records(records)
        inputs = _inputs(scaling, records, limits)
        return type(self)(scaling, _fitted(inputs, came).astype(np.float32))

    def predict_proba(self, trace: Trace, at_s: Int64s, limit_micros: Int64s) -> Float64s:
        """Return the probability of each limit, shape (bids,)."""
        inputs = _inputs(self._scaling, price_records(trace, at_s), limit_micros)
        return _sigmoid(inputs @ self._coefficients.astype(np.float64))

    def save(self) -> Weights:
        """Return the coefficients and the scaling."""
        return {"coefficients": self._coefficients, **self._scaling.save()}

    @classmethod
    def load(cls, weights: Weights) -> Self:
        """Return the predictor of `save`; `ValueError` for other arrays."""
        return cls(Scaling.load(weights), require_shapes(weights, {"coefficients": (_INPUTS,)})["coefficients"])


def _inputs(scaling: Scaling, records: Float64s, limits: Int64s) -> Float64s:
    inputs = scaling.with_limits(records, limits / 1e6).astype(np.float64)
    return np.concatenate([inputs, np.ones((len(inputs), 1))], axis=1)


def _fitted(inputs: Float64s, came: NDArray[np.bool_]) -> Float64s:
    """Return the coefficients after Newton's steps (iteratively reweighted least squares)."""
    penalty = _RIDGE * np.eye(_INPUTS)
    coefficients = np.zeros(_INPUTS)
    for _ in range(_STEPS):
        chance = _sigmoid(inputs @ coefficients)
        slope = inputs.T @ (chance - came) + penalty @ coefficients
        curvature = (inputs * (chance * (1 - chance))[:, None]).T @ inputs + penalty
        step = np.linalg.solve(curvature, slope)
        coefficients = coefficients - step * min(1.0, 5.0 / max(float(np.abs(step).max()), 1e-12))
        if np.abs(step).max() < 1e-8:
            break
    return coefficients


def _sigmoid(logit: Float64s) -> Float64s:
    return np.asarray(0.5 * (1 + np.tanh(logit / 2)))
