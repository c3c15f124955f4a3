"""RevPred, SpotTune's predictor: two parts, class weights, and a correction for the shares of the classes.

The 59 one-minute records of the past hour go through an LSTM of three layers, the present record with the limit through
three dense layers; both together give one probability.

Source: SpotTune (2020), section III-B. Differs: widths and the training's length are ours, for the paper names none;
the limit enters as its distance from the price (`bidding.evictions.predictors.input_scaling`).
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Self

import numpy as np

from proteus_spot.bidding.evictions.curves import Float64s
from proteus_spot.bidding.evictions.neural.networks import (
    DENSE_LAYERS,
    N_FEATURES,
    N_WITH_LIMIT,
    WIDTH,
    dense,
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
from proteus_spot.bidding.evictions.predictors.training_limits import border_limits, is_passed, random_limits
from proteus_spot.bidding.market.time_window import TimeWindow
from proteus_spot.bidding.market.traces import Int64s, Trace

#: Training moments of a market.
MOMENTS = 4096
SHAPES = MappingProxyType(
    {
        **lstm_shapes(N_FEATURES),
        **dense_shapes("dense", (N_WITH_LIMIT, *[WIDTH] * DENSE_LAYERS)),
        **dense_shapes("out", (2 * WIDTH, 1)),
    }
)
#: Moments whose histories are held at once in a prediction.
_AT_ONCE = 4096


class RevPred:
    """The two-part network of one market, and the share of positives in its training."""

    moments = MOMENTS
    epochs = 12
    #: Share of the training limits that are random, as those of bids are; the paper's is 0.
    random_share = 0.0

    def __init__(
        self, scaling: Scaling | None = None, network: Mapping[str, Float32s] | None = None, positives: float = 0.5
    ) -> None:
        zeros = np.zeros(N_FEATURES, dtype=np.float32)
        self._scaling = Scaling(zeros, zeros + 1) if scaling is None else scaling
        self._network = {name: np.zeros(shape, np.float32) for name, shape in SHAPES.items()} | dict(network or {})
        self._positives = positives

    def fit(self, trace: Trace, window: TimeWindow, seed: int) -> Self:
        """Return the predictor trained on limits near the border (Algorithm 2), with class weights."""
        from proteus_spot.bidding.evictions.neural.network_training import TrainingPlan, train

        rng = np.random.default_rng(seed)
        own = trace.between(window.from_s, window.until_s)
        at_s = training_moments(own, window, self.moments, rng)
        random = rng.random(len(at_s)) < self.random_share
        limits = np.where(random, random_limits(own, at_s, rng), border_limits(own, at_s))
        came = is_passed(own, at_s, limits)
        require_both(came)
        records = price_records(own, past_minutes(at_s))
        scaling = Scaling.of_records(records)
        positives = float(came.mean())
        # The share of the other class, relative to the mean of these weights.
        importance = np.where(came, 1 - positives, positives) / (2 * positives * (1 - positives))
        inputs = {
            "past": scaling.features(records[:, :-1]),
            "present": scaling.with_limits(records[:, -1], limits / 1e6),
        }
        network, _ = train(
            _logits,
            initial_weights(SHAPES, rng),
            inputs,
            came.astype(np.float32),
            importance.astype(np.float32),
            TrainingPlan(epochs=self.epochs),
            seed,
        )
        return type(self)(scaling, network, positives)

    def predict_proba(self, trace: Trace, at_s: Int64s, limit_micros: Int64s) -> Float64s:
        """Return the probability of each limit by formula (3), shape (bids,)."""
        moments, row = np.unique(at_s, return_inverse=True)
        past, present = np.empty((len(moments), WIDTH), np.float32), np.empty((len(moments), N_FEATURES))
        for first in range(0, len(moments), _AT_ONCE):
            some = slice(first, first + _AT_ONCE)
            records = price_records(trace, past_minutes(moments[some]))
            past[some] = embed(self._network, self._scaling.features(records[:, :-1]))
            present[some] = records[:, -1]
        inputs = self._scaling.with_limits(present[row], limit_micros / 1e6)
        logits = _joined(np, self._network, past[row], inputs).astype(np.float64)
        return corrected(0.5 * (1 + np.tanh(logits / 2)), self._positives)

    @classmethod
    def histories(cls, predictors: Sequence[Self], traces: Sequence[Trace], at_s: int) -> tuple[Float32s, Float64s]:
        """Return the LSTM's last output and the present record of each market; see `NetworkPredictor`."""
        minutes = past_minutes(np.array([at_s], dtype=np.int64))
        records = [price_records(trace, minutes) for trace in traces]
        past = [one._scaling.features(rows[:, :-1]) for one, rows in zip(predictors, records, strict=True)]
        return embed(_weights(tuple(predictors)), np.stack(past)), np.stack([rows[:, -1] for rows in records])

    @classmethod
    def of_histories(
        cls, predictors: Sequence[Self], histories: tuple[Float32s, Float64s], limit_micros: Int64s
    ) -> Float64s:
        """Return the probability of one bid in each market by formula (3); see `NetworkPredictor`."""
        past, present = histories
        each = zip(predictors, present, limit_micros[:, None] / 1e6, strict=True)
        inputs = np.stack([one._scaling.with_limits(rows, limit) for one, rows, limit in each])
        logits = _joined(np, _weights(tuple(predictors)), past, inputs)[:, 0].astype(np.float64)
        return corrected(0.5 * (1 + np.tanh(logits / 2)), np.array([one._positives for one in predictors]))

    def save(self) -> Weights:
        """Return the network's weights, the scaling, and the share of positives."""
        return {**self._network, **self._scaling.save(), "positives": np.array([self._positives])}

    @classmethod
    def load(cls, weights: Weights) -> Self:
        """Return the predictor of `save`; `ValueError` for other arrays."""
        positives = np.asarray(weights.get("positives", ()), dtype=np.float64)
        if positives.shape != (1,) or not 0 < positives[0] < 1:
            raise ValueError("weights 'positives': want one share between 0 and 1")
        return cls(Scaling.load(weights), require_shapes(weights, SHAPES), float(positives[0]))


@lru_cache(maxsize=4)
def _weights(predictors: tuple[RevPred, ...]) -> dict[str, Float32s]:
    return stacked([one._network for one in predictors])


def corrected(outputs: Float64s, positives: float | Float64s) -> Float64s:
    """Return p = f+ q / (f+ q + f- (1 - q)) of the network's outputs q: formula (3).

    Class weights make the network's output that of equally frequent classes; this undoes it.
    """
    positive, negative = positives * outputs, (1 - positives) * (1 - outputs)
    return positive / (positive + negative)


def _logits(weights: Mapping[str, Any], inputs: Mapping[str, Any]) -> Any:
    import jax.numpy as jnp

    from proteus_spot.bidding.evictions.neural.network_training import scan

    return _joined(jnp, weights, scan(weights, inputs["past"]), inputs["present"])


def _joined(xp: Any, weights: Mapping[str, Any], past: Any, present: Any) -> Any:
    return out(weights, xp.concatenate([past, dense(xp, weights, "dense", present, DENSE_LAYERS)], axis=-1))
