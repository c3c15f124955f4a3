"""Features and limits as inputs of a regression or a network: of the size of 1."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from proteus_spot.bidding.evictions.curves import Float64s
from proteus_spot.bidding.evictions.predictors.base import Weights, require_shapes
from proteus_spot.bidding.evictions.predictors.minute_features import FEATURES, Float32s
from proteus_spot.bidding.evictions.predictors.training_limits import MOST_DELTA_MICROS

#: Distance of a limit, in dollars, from which its logarithm counts.
_NEAR_USD = 1e-4
_FARTHEST = float(np.log1p(MOST_DELTA_MICROS / 1e6 / _NEAR_USD))
_LEAST_USD = 1e-6


@dataclass(frozen=True, eq=False)
class Scaling:
    """Mean and standard deviation of the features of a market's training records.

    Attributes
    ----------
    mean, deviation : ndarray of float32, shape (6,)
        Prices, counts and ages are logarithms.
    """

    mean: Float32s
    deviation: Float32s

    @classmethod
    def of_records(cls, records: Float64s) -> Self:
        """Return the scaling of training records, shape (…, 6)."""
        values = _logarithms(records).reshape(-1, len(FEATURES))
        deviation = values.std(axis=0)
        return cls(values.mean(axis=0).astype(np.float32), np.where(deviation > 1e-6, deviation, 1).astype(np.float32))

    def features(self, records: Float64s) -> Float32s:
        """Return `price_records` as inputs, of the same shape."""
        scaled = (_logarithms(records) - self.mean) / self.deviation
        return np.clip(scaled, -8, 8).astype(np.float32)

    def with_limits(self, records: Float64s, limit_usd: Float64s) -> Float32s:
        """Return the inputs with the limit of each record as the last one, shape (…, 7).

        Notes
        -----
        The limit is given by the logarithm of its distance from the record's price, with the sign of the distance: a
        hundredth of a cent and twenty cents are both seen, whatever the price is.
        """
        away = limit_usd - records[..., 0]
        limits = np.sign(away) * np.log1p(np.abs(away) / _NEAR_USD) / _FARTHEST
        return np.concatenate([self.features(records), limits[..., None].astype(np.float32)], axis=-1)

    def save(self) -> dict[str, Float32s]:
        """Return the arrays by name."""
        return {"mean": self.mean, "deviation": self.deviation}

    @classmethod
    def load(cls, weights: Weights) -> Self:
        """Return the scaling of `save`; `ValueError` for other arrays."""
        arrays = require_shapes(weights, {name: (len(FEATURES),) for name in ("mean", "deviation")})
        if not (arrays["deviation"] > 0).all():
            raise ValueError("weights 'deviation': must be above 0")
        return cls(arrays["mean"], arrays["deviation"])


def _logarithms(records: Float64s) -> Float64s:
    values = records.copy()
    values[..., :2] = np.log(np.maximum(records[..., :2], _LEAST_USD))
    values[..., 2:4] = np.log1p(records[..., 2:4])
    return values
