"""The `EvictionModel` Protocol, and figures derived from it: β, median time to an eviction, the paper's table."""

from collections.abc import Collection, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from proteus_spot.bidding.evictions.curves import Float64s
from proteus_spot.bidding.evictions.table import DELTAS_MICROS, EvictionTable
from proteus_spot.bidding.market.model import HOUR_S, MINUTE_S, Market
from proteus_spot.bidding.market.money import Micros
from proteus_spot.bidding.market.time_window import TimeWindow
from proteus_spot.bidding.market.traces import Int64s, Trace


class EvictionModel(Protocol):
    """Survival of a bid, from any moment of its life on.

    A bid is described by its delta above the *present* price, whenever it was placed: its remaining life is that of a
    bid placed now with the same delta.
    """

    @property
    def name(self) -> str:
        """The kind of model."""

    @property
    def markets(self) -> tuple[Market, ...]:
        """The markets of the model, sorted."""

    @property
    def fitted(self) -> TimeWindow | None:
        """The window of the fit; None if the model does not come from a price history."""

    @property
    def bids_decide(self) -> bool:
        """Whether an eviction depends on the bid; False for capacity models."""

    @property
    def n_states(self) -> int:
        """Number of states of a market; 1 for a model that ignores the present."""

    def states(self, market: Market, trace: Trace, at_s: ArrayLike, delta_micros: ArrayLike) -> Int64s:
        """Return the state of the market at each moment for each delta, shape (moments, deltas)."""

    def survival(
        self, market: Market, delta_micros: ArrayLike, ahead_s: ArrayLike, state: ArrayLike | None = None
    ) -> Float64s:
        """Return P(not taken in less than `ahead_s`), the arguments broadcast; `state` None is the mean over states."""


def beta(
    model: EvictionModel,
    market: Market,
    delta_micros: ArrayLike,
    state: ArrayLike | None = None,
    within_s: float = HOUR_S,
) -> Float64s:
    """Return P(taken in less than `within_s`); for an hour, β of the paper."""
    return 1 - model.survival(market, delta_micros, within_s, state)


def median_s(
    model: EvictionModel, market: Market, delta_micros: Micros, state: int | None = None, within_s: int = HOUR_S
) -> float:
    """Return the median time to an eviction, given that it comes within `within_s`; `within_s` if none ever does."""
    minutes = np.unique(np.append(np.arange(0, within_s, MINUTE_S), within_s))
    taken = 1 - model.survival(market, delta_micros, minutes, state)
    if taken[-1] <= 0:
        return float(within_s)
    half = taken[-1] / 2
    until = int((taken >= half).argmax())
    if until == 0:  # a bid below the price is being taken
        return 0.0
    seconds = np.arange(minutes[until - 1], minutes[until] + 1)
    taken = 1 - model.survival(market, delta_micros, seconds, state)
    after = int((taken >= half).argmax())
    low, high = taken[after - 1], taken[after]
    return float(seconds[after - 1] + (half - low) / (high - low))


def as_table(
    model: EvictionModel, deltas_micros: Sequence[Micros] | None = None, markets: Collection[Market] | None = None
) -> EvictionTable:
    """Return the model as the paper's table, the mean over its states, for callers that take no other form.

    Parameters
    ----------
    deltas_micros : rising; None: the paper's. Where bids decide nothing these are all alike, so that the highest stands
        for all: a price that creeps upwards evicts no bid.
    markets : the markets to include; None: all of the model's.
    """
    if deltas_micros is None:
        deltas_micros = DELTAS_MICROS if model.bids_decide else DELTAS_MICROS[-1:]
    deltas = np.array(deltas_micros, dtype=np.int64)
    rows = {}
    for market in model.markets:
        if markets is None or market in markets:
            betas = np.clip(beta(model, market, deltas), 0, 1)
            medians = [median_s(model, market, delta) for delta in deltas_micros]
            rows[market] = tuple(zip(betas.tolist(), medians, strict=True))
    return EvictionTable(tuple(deltas_micros), rows, model.bids_decide)
