"""`Forecast`: an additive model of log-odds, one step function per feature, for each bid delta and horizon."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from proteus_spot.bidding.forecast.features import FEATURES
from proteus_spot.bidding.jit import entry, inline_jit
from proteus_spot.bidding.market.model import HOUR_S

Floats = NDArray[np.float64]

#: Bid deltas as shares of the price.
SHARES: tuple[float, ...] = (0.0, 0.03, 0.1, 0.3, 1.0)
#: Seconds within which a bid may be taken; the last one is the billing hour.
HORIZONS_S: tuple[int, ...] = (300, 900, 1800, HOUR_S)


class Weights(NamedTuple):
    """A model as arrays, for compiled callers.

    Attributes
    ----------
    shares : shape (deltas,); horizons_s : shape (horizons,).
    edges : shape (FEATURES, bins - 1)
        Lower edges of a feature's bins, rising; infinite where it has fewer.
    intercepts : shape (deltas, horizons); log-odds.
    weights : shape (deltas, horizons, FEATURES, bins); addition of a feature's bin to the log-odds.
    """

    shares: Floats
    horizons_s: Floats
    edges: Floats
    intercepts: Floats
    weights: Floats


#: An empty model, without bid deltas.
BLIND = Weights(np.empty(0), np.empty(0), np.empty((0, 0)), np.empty((0, 0)), np.empty((0, 0, 0, 0)))


@dataclass(frozen=True, eq=False)
class Forecast:
    """Chances of bids, given the signals of their markets; an immutable value, stored with the job that uses it."""

    arrays: Weights

    def __post_init__(self) -> None:
        shares, horizons, edges, intercepts, weights = self.arrays
        deltas, bins = len(shares), edges.shape[-1] + 1
        if edges.shape != (FEATURES, bins - 1) or weights.shape != (deltas, len(horizons), FEATURES, bins):
            raise ValueError("the parts of a foresight do not fit together")
        if intercepts.shape != (deltas, len(horizons)) or not deltas or shares[0] != 0:
            raise ValueError("a foresight needs log-odds for each delta and horizon, the first delta being 0")
        rising = all(low < high for low, high in (*pairwise(shares), *pairwise(horizons)))
        if not rising or horizons[-1] != HOUR_S or np.isnan(edges).any() or (edges[:, 1:] < edges[:, :-1]).any():
            raise ValueError("deltas, horizons and bins of a foresight must rise, and the last horizon be the hour")
        if not (np.isfinite(intercepts).all() and np.isfinite(weights).all()):
            raise ValueError("the weights of a foresight must be finite")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Forecast) and all(map(np.array_equal, self.arrays, other.arrays))

    def __hash__(self) -> int:
        return hash(self.arrays.weights.tobytes())

    def outlooks(self, features: Floats) -> tuple[Floats, Floats]:
        """Return (β, ω in seconds) of a bid with each delta in markets with these `features`.

        `features` has shape (markets, FEATURES). β is the probability of being taken within the hour, ω the expected
        time until then, at most an hour; both have shape (markets, deltas).
        """
        out = np.empty((2, len(features), len(self.arrays.shares)))
        _outlooks(self.arrays, np.ascontiguousarray(features), out)
        return out[0], out[1]

    def outlook(self, features: Floats, delta: int) -> tuple[float, float]:
        """Return (β, ω in seconds) of a bid with the delta of this index in a market with these `features`."""
        beta, useful_s = self.outlooks(features[np.newaxis])
        return float(beta[0, delta]), float(useful_s[0, delta])

    def to_json(self) -> dict[str, Any]:
        """Return the model as JSON-able values; `from_json` gives the same model again, to the last bit."""
        record: dict[str, Any] = {name: values.tolist() for name, values in self.arrays._asdict().items()}
        record["edges"] = [[edge for edge in row if np.isfinite(edge)] for row in record["edges"]]
        return record

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "Forecast":
        """Return the model that `to_json` wrote; `ValueError` for any other input."""
        try:
            parts = {name: np.array(record[name], dtype=np.float64) for name in Weights._fields if name != "edges"}
            edges = np.full((FEATURES, parts["weights"].shape[-1] - 1), np.inf)
            for row, given in zip(edges, record["edges"], strict=True):
                row[: len(given)] = given
            return cls(Weights(edges=edges, **parts))
        except (KeyError, TypeError, IndexError, ValueError) as error:
            raise ValueError(f"not a foresight: {error}") from None


@inline_jit
def _bins_of(model: Weights, features: Floats, out: NDArray[np.int64]) -> None:
    """Write the bin of each feature."""
    for feature in range(len(features)):
        low, high = 0, model.edges.shape[1]
        while low < high:
            middle = (low + high) // 2
            if model.edges[feature, middle] <= features[feature]:
                low = middle + 1
            else:
                high = middle
        out[feature] = low


@inline_jit
def _outlook(model: Weights, delta: int, bins: NDArray[np.int64]) -> tuple[float, float]:
    """Return (β, ω): the probability of being taken within the hour, and the area under the survival curve.

    A later horizon never has the lower probability.
    """
    taken, useful_s, before_s = 0.0, 0.0, 0.0
    for horizon in range(len(model.horizons_s)):
        odds = model.intercepts[delta, horizon]
        for feature in range(len(bins)):
            odds += model.weights[delta, horizon, feature, bins[feature]]
        now = max(taken, 1.0 / (1.0 + np.exp(-odds)))
        until_s = model.horizons_s[horizon]
        useful_s += (until_s - before_s) * (1.0 - 0.5 * (taken + now))
        taken, before_s = now, until_s
    return taken, useful_s


@inline_jit
def outlooks(model: Weights, features: Floats, beta: Floats, useful_s: Floats) -> None:
    """Write (β, ω in seconds) of a bid with each delta in a market with these `features`, shape (deltas,) each."""
    bins = np.empty(FEATURES, dtype=np.int64)
    _bins_of(model, features, bins)
    for delta in range(len(model.shares)):
        beta[delta], useful_s[delta] = _outlook(model, delta, bins)


def _of_markets(version: int) -> Callable[..., int]:
    def of_markets(model: Weights, features: Floats, out: Floats) -> int:
        for market in range(len(features)):
            outlooks(model, features[market], out[0, market], out[1, market])
        return version

    return of_markets


_outlooks = entry(_of_markets)
