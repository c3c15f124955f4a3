"""`CurveModel`: the implementation of `EvictionModel` by survival curves, with bins that give the state.

The models differ only in the fit of their curves. A model is an immutable value; `header` and `arrays` turn it into
JSON-able values and named arrays, and `from_record` back, to the last bit.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from proteus_spot.bidding.evictions.curves import Curves, Float64s, delta_index, survival
from proteus_spot.bidding.evictions.states import Bins, states_at
from proteus_spot.bidding.market.model import Market
from proteus_spot.bidding.market.time_window import TimeWindow
from proteus_spot.bidding.market.traces import Int64s, Trace

#: Version of the record's format.
SCHEMA = 1
#: The name of the model for markets where bids decide nothing.
BY_CAPACITY = "capacity"


@dataclass(frozen=True, eq=False)
class CurveModel:
    """An eviction model that consists of survival curves.

    Attributes
    ----------
    name : str
        One of `table`, `survival`, `conditioned`, `capacity`.
    markets : tuple of Market, sorted
    fitted : TimeWindow or None
        The window of the fit; None if the model does not come from a price history.
    curves : Curves
        Rows in the order of `markets`.
    bins : Bins
        Bins that give the state of a market; an unconditioned model has one state.
    grants : ndarray of int64, shape (markets, states, deltas)
        Number of bids from which each curve was estimated.
    notes : mapping
        JSON-able facts of the fit, for display.
    """

    name: str
    markets: tuple[Market, ...]
    fitted: TimeWindow | None
    curves: Curves
    bins: Bins
    grants: Int64s
    notes: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        shape = (len(self.markets), self.bins.n_states, len(self.curves.deltas_micros), len(self.curves.horizons_s))
        if self.curves.survival.shape != shape or self.grants.shape != shape[:3]:
            raise ValueError(
                f"curves of shape {self.curves.survival.shape} and grants of {self.grants.shape}, not {shape}"
            )
        if list(self.markets) != sorted(set(self.markets)):
            raise ValueError("the markets must be sorted, each once")
        if len(self.curves.known) != shape[0] or self.bins.level_micros.shape[0] != shape[0]:
            raise ValueError("want one row a market")
        for what, steps in (("deltas", self.curves.deltas_micros), ("horizons", self.curves.horizons_s)):
            if not len(steps) or steps[0] < 0 or (np.diff(steps) <= 0).any():
                raise ValueError(f"the {what} must rise from 0 or above")
        lived = self.curves.survival
        if not ((lived >= 0) & (lived <= 1)).all():  # also where it is not a number
            raise ValueError("a probability outside [0, 1]")
        if (np.diff(lived, axis=-1) > 0).any() or (np.diff(lived, axis=-2) < 0).any():
            raise ValueError("survival must fall with the time and not with the delta")

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, CurveModel)
            and self.header() == other.header()
            and all(np.array_equal(mine, theirs) for mine, theirs in zip(self._parts(), other._parts(), strict=True))
        )

    __hash__ = None  # type: ignore[assignment]

    @property
    def bids_decide(self) -> bool:
        """Whether an eviction depends on the bid."""
        return self.name != BY_CAPACITY

    @property
    def n_states(self) -> int:
        """Number of states of a market."""
        return self.bins.n_states

    def row(self, market: Market) -> int | None:
        """Return the row of a market; None if it is unknown."""
        return self.markets.index(market) if market in self.markets else None

    def states(self, market: Market, trace: Trace, at_s: ArrayLike, delta_micros: ArrayLike) -> Int64s:
        """Return the state of the market at each moment for each delta, shape (moments, deltas).

        Parameters
        ----------
        trace : the market's prices, up to the last moment at least; they are used from a day before the first moment.
        at_s : shape (moments,).
        delta_micros : shape (deltas,), in any order; a negative one counts as 0.
        """
        moments, row = np.asarray(at_s, dtype=np.int64), self.row(market)
        deltas, back = np.unique(np.maximum(np.asarray(delta_micros, dtype=np.int64), 0), return_inverse=True)
        if row is None:
            return np.zeros((len(moments), len(back)), dtype=np.int64)
        return states_at(trace, self.bins, row, deltas, moments)[:, back].astype(np.int64)

    def survival(
        self, market: Market, delta_micros: ArrayLike, ahead_s: ArrayLike, state: ArrayLike | None = None
    ) -> Float64s:
        """Return P(not taken in less than `ahead_s`), the arguments broadcast.

        `state` None is the mean over the states, weighted by their frequency. A market without history counts as never
        taken, a bid below the price as taken.
        """
        row = self.row(market)
        if row is None:
            shape = np.broadcast_shapes(*(np.shape(each) for each in (delta_micros, ahead_s, state or 0)))
            return np.ones(shape)
        if state is not None or self.n_states == 1:
            return survival(self.curves, row, 0 if state is None else state, delta_micros, ahead_s)
        deltas, ahead = np.broadcast_arrays(np.asarray(delta_micros, dtype=np.int64), np.asarray(ahead_s, np.float64))
        lived = survival(self.curves, row, np.arange(self.n_states), deltas[..., None], ahead[..., None])
        weights = self.weights(row).T[delta_index(self.curves.deltas_micros, deltas)]
        return np.asarray(np.minimum((lived * weights).sum(axis=-1), 1.0))

    def weights(self, row: int) -> Float64s:
        """Return the frequency of each state, shape (states, deltas), of sum 1 for each delta."""
        grants = self.grants[row].astype(np.float64)
        total = grants.sum(axis=0)
        return np.where(total > 0, grants / np.maximum(total, 1), 1 / self.n_states)

    def mean_curves(self, row: int) -> Float64s:
        """Return the mean over the states, shape (deltas, horizons)."""
        mean: Float64s = np.einsum("sd,sdh->dh", self.weights(row), self.curves.survival[row])
        return np.asarray(np.minimum(mean, 1.0))  # a sum of weights may be more by a bit

    # Saved and loaded

    def header(self) -> dict[str, Any]:
        """Return the fields that are not arrays, as JSON-able values."""
        fitted = None if self.fitted is None else [self.fitted.from_s, self.fitted.until_s]
        return {
            "schema": SCHEMA,
            "name": self.name,
            "markets": [str(market) for market in self.markets],
            "fitted": fitted,
            "notes": dict(self.notes),
        }

    def _parts(self) -> tuple[NDArray[Any], ...]:
        return (*self.curves, *self.bins, self.grants)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays by name."""
        return dict(zip(_ARRAYS, self._parts(), strict=True))

    @classmethod
    def from_record(cls, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> "CurveModel":
        """Return the model of `header()` and `arrays()`; `ValueError` for any other input."""
        try:
            if header["schema"] != SCHEMA:
                raise ValueError(f"has schema {header['schema']!r}; this program reads {SCHEMA}")
            parts = [np.ascontiguousarray(arrays[name], dtype=_ARRAYS[name]) for name in _ARRAYS]
            if any(part.ndim != dims for part, dims in zip(parts, _DIMS, strict=True)):
                raise ValueError("an array of another shape than a model's")
            return cls(
                str(header["name"]),
                tuple(Market.parse(name) for name in header["markets"]),
                None if header["fitted"] is None else TimeWindow(*map(int, header["fitted"])),
                Curves(*parts[:4]),
                Bins(*parts[4:7]),
                parts[7],
                dict(header["notes"]),
            )
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            raise ValueError(f"not an eviction model: {error!r}") from None


_ARRAYS: Mapping[str, Any] = MappingProxyType(
    dict.fromkeys((*Curves._fields, *Bins._fields, "grants"), np.int64) | {"survival": np.float64}
)
#: Dimensions of each, in that order.
_DIMS = (1, 1, 4, 1, 2, 1, 1, 3)
