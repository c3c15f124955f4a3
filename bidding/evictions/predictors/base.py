"""The `EvictionPredictor` Protocol: the estimator of one market."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from proteus_spot.bidding.evictions.curves import Float64s
from proteus_spot.bidding.evictions.lifetimes import grants_s
from proteus_spot.bidding.market.model import DAY_S, MINUTE_S
from proteus_spot.bidding.market.time_window import TimeWindow
from proteus_spot.bidding.market.traces import Int64s, Trace

#: What a fitted predictor consists of: numeric arrays by name.
Weights = Mapping[str, NDArray[Any]]

#: A market with fewer minutes than a day's is not fitted.
FEWEST_MOMENTS = DAY_S // MINUTE_S


class CannotFit(ValueError):
    """The prices of a market do not suffice for a fit; the text says why."""


class EvictionPredictor(Protocol):
    """Estimator of P(the price is above a limit at some time of the hour that begins), for one market."""

    def fit(self, trace: Trace, window: TimeWindow, seed: int) -> Self:
        """Return the predictor fitted to the prices of `window`; the same seed gives the same predictor.

        Prices outside the window are not read.

        Raises
        ------
        CannotFit
            If the window has less than a day of prices, or nothing to tell evictions from survivals by.
        """

    def predict_proba(self, trace: Trace, at_s: Int64s, limit_micros: Int64s) -> Float64s:
        """Return the probability in [0, 1] of each bid, shape (bids,).

        Parameters
        ----------
        trace : the market's prices; events after a moment are ignored for it.
        at_s : shape (bids,); a price is known at each.
        limit_micros : shape (bids,), the maximum price of each; not below the price of its moment.
        """

    def save(self) -> Weights:
        """Return the fitted arrays, from which `load` makes the same predictor."""

    @classmethod
    def load(cls, weights: Weights) -> Self:
        """Return the predictor of `save`; `ValueError` for arrays of another shape."""


@runtime_checkable
class NetworkPredictor(EvictionPredictor, Protocol):
    """An estimator that answers for many markets at once in less time than for one after another."""

    @classmethod
    def histories(cls, predictors: Sequence[Any], traces: Sequence[Trace], at_s: int) -> Any:
        """Return what the networks make of the prices up to a moment, the same for every bid.

        Parameters
        ----------
        predictors, traces : of this class; one of each market.
        """

    @classmethod
    def of_histories(cls, predictors: Sequence[Any], histories: Any, limit_micros: Int64s) -> Float64s:
        """Return the probability of one bid in each market by its history, both of shape (markets,)."""


def training_moments(trace: Trace, window: TimeWindow, most: int, rng: np.random.Generator) -> Int64s:
    """Return `most` minutes of the window to train on, rising; each once where it has as many.

    Raises
    ------
    CannotFit
        If fewer than `FEWEST_MOMENTS` minutes have a price and an hour left in the window.
    """
    minutes = grants_s(trace, window.from_s, window.until_s) if len(trace) else np.empty(0, dtype=np.int64)
    if len(minutes) < FEWEST_MOMENTS:
        raise CannotFit(f"{len(minutes)} minutes of prices in the window; a fit needs {FEWEST_MOMENTS}")
    return np.sort(rng.choice(minutes, size=most, replace=len(minutes) < most))


def require_both(came: NDArray[np.bool_]) -> None:
    """Refuse labels of one class alone.

    Raises
    ------
    CannotFit
        If all or none of the training limits were passed.
    """
    if came.all() or not came.any():
        raise CannotFit(f"{'all' if came.all() else 'none'} of the {len(came)} training limits were passed")


def require_shapes(weights: Weights, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, NDArray[np.float32]]:
    """Return the arrays as finite float32; `ValueError` if one is missing or has another shape."""
    found = {}
    for name, shape in shapes.items():
        if name not in weights:
            raise ValueError(f"has no weights {name!r}")
        array = np.ascontiguousarray(weights[name], dtype=np.float32)
        if array.shape != shape or not np.isfinite(array).all():
            raise ValueError(f"weights {name!r}: want finite numbers of shape {shape}, not {array.shape}")
        found[name] = array
    return found
