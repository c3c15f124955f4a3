"""Tributary's predictor, RevPred's baseline: all 60 records, each with the limit, through one LSTM.

Source: SpotTune (2020), section IV-D, which had to rebuild it too: random limits in training, no class weights, no
correction of the output.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Self

import numpy as np

from proteus_spot.bidding.evictions.curves import Float64s
from proteus_spot.bidding.evictions.neural.networks import (
    N_FEATURES,
    N_WITH_LIMIT,
    WIDTH,
    dense_shapes,
    embed,
    initial_weights,
    lstm_shapes,
    out,
    stacked,
)
from proteus_spot.bidding.evictions.predictors.base import Weights, require_both, require_shapes, training_moments
from proteus_spot.bidding.evictions.predictors.input_scaling import Scaling
from proteus_spot.bidding.evictions.predictors.minute_features import Float32s, past_minutes, price_records
from proteus_spot.bidding.evictions.predictors.training_limits import is_passed, random_limits
from proteus_spot.bidding.market.time_window import TimeWindow
from proteus_spot.bidding.market.traces import Int64s, Trace

#: Training moments of a market.
MOMENTS = 4096
SHAPES = MappingProxyType({**lstm_shapes(N_WITH_LIMIT), **dense_shapes("out", (WIDTH, 1))})
#: Bids whose histories are held at once in a prediction.
_AT_ONCE = 4096


class Tributary:
    """The LSTM of one market."""

    moments = MOMENTS
    epochs = 12

    def __init__(self, scaling: Scaling | None = None, network: Mapping[str, Float32s] | None = None) -> None:
        zeros = np.zeros(N_FEATURES, dtype=np.float32)
        self._scaling = Scaling(zeros, zeros + 1) if scaling is None else scaling
        self._network = {name: np.zeros(shape, np.float32) for name, shape in SHAPES.items()} | dict(network or {})

    def fit(self, trace: Trace, window: TimeWindow, seed: int) -> Self:
        """Return the predictor trained on random limits."""
        from proteus_spot.bidding.evictions.neural.network_training import TrainingPlan, train

        rng = np.random.default_rng(seed)
        own = trace.between(window.from_s, window.until_s)
        at_s = training_moments(own, window, self.moments, rng)
        limits = random_limits(own, at_s, rng)
        came = is_passed(own, at_s, limits)
        require_both(came)
        records = price_records(own, past_minutes(at_s))
        scaling = Scaling.of_records(records)
        network, _ = train(
            _logits,
            initial_weights(SHAPES, rng),
            {"records": scaling.with_limits(records, limits[:, None] / 1e6)},
            came.astype(np.float32),
            np.ones(len(came), dtype=np.float32),
            TrainingPlan(epochs=self.epochs),
            seed,
        )
        return type(self)(scaling, network)

    def predict_proba(self, trace: Trace, at_s: Int64s, limit_micros: Int64s) -> Float64s:
        """Return the probability of each limit, shape (bids,)."""
        logits = np.empty(len(at_s))
        for first in range(0, len(at_s), _AT_ONCE):
            some = slice(first, first + _AT_ONCE)
            records = price_records(trace, past_minutes(at_s[some]))
            inputs = self._scaling.with_limits(records, limit_micros[some, None] / 1e6)
            logits[some] = out(self._network, embed(self._network, inputs))
        return 0.5 * (1 + np.tanh(logits / 2))

    @classmethod
    def histories(cls, predictors: Sequence[Self], traces: Sequence[Trace], at_s: int) -> Float64s:
        """Return the records of each market; see `NetworkPredictor`. The limit enters with each of them."""
        minutes = past_minutes(np.array([at_s], dtype=np.int64))
        return np.stack([price_records(trace, minutes) for trace in traces])

    @classmethod
    def of_histories(cls, predictors: Sequence[Self], histories: Float64s, limit_micros: Int64s) -> Float64s:
        """Return the probability of one bid in each market; see `NetworkPredictor`."""
        each = zip(predictors, histories, limit_micros[:, None, None] / 1e6, strict=True)
        inputs = np.stack([one._scaling.with_limits(records, limit) for one, records, limit in each])
        weights = _weights(tuple(predictors))
        logits: Float64s = out(weights, embed(weights, inputs))[:, 0].astype(np.float64)
        return 0.5 * (1 + np.tanh(logits / 2))

    def save(self) -> Weights:
        """Return the network's weights and the scaling."""
        return {**self._network, **self._scaling.save()}

    @classmethod
    def load(cls, weights: Weights) -> Self:
        """Return the predictor of `save`; `ValueError` for other arrays."""
        return cls(Scaling.load(weights), require_shapes(weights, SHAPES))


@lru_cache(maxsize=4)
def _weights(predictors: tuple[Tributary, ...]) -> dict[str, Float32s]:
    return stacked([one._network for one in predictors])


def _logits(weights: Mapping[str, Any], inputs: Mapping[str, Any]) -> Any:
    from proteus_spot.bidding.evictions.neural.network_training import scan

    return out(weights, scan(weights, inputs["records"]))
