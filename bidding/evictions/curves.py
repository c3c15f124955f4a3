"""Survival curves as arrays, by market, state, bid delta and horizon, and their interpolation."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from proteus_spot.bidding.evictions.table import DELTAS_MICROS
from proteus_spot.bidding.market.model import HOUR_S
from proteus_spot.bidding.market.money import Micros
from proteus_spot.bidding.market.traces import Int64s

Float64s = NDArray[np.float64]

#: Deltas of a survival model: bidding the price itself, then the paper's.
BID_DELTAS_MICROS: tuple[Micros, ...] = (0, *DELTAS_MICROS)

#: Points of a curve: each minute of an hour, quarters of two hours, then coarser, to a day.
HORIZONS_S: tuple[int, ...] = tuple(
    60 * minutes
    for minutes in (
        *range(61),
        *(75, 90, 105, 120, 150, 180, 210, 240, 300, 360, 420, 480, 600, 720, 840, 960, 1080, 1260, 1440),
    )
)
#: Index of the hour in `HORIZONS_S`.
HOUR = HORIZONS_S.index(HOUR_S)


class Curves(NamedTuple):
    """Survival of bids, as arrays that a compiled loop can read.

    Attributes
    ----------
    deltas_micros : shape (deltas,), rising; a bid between two counts as the lower one, one below the lowest as that.
    horizons_s : shape (horizons,), rising from 0.
    survival : shape (markets, states, deltas, horizons)
        P(the bid is not taken in less than the horizon), in [0, 1]; falls with the horizon, never falls with the delta.
    known : shape (markets,); 0 where the market has no history, and a bid counts as never taken.
    """

    deltas_micros: Int64s
    horizons_s: Int64s
    survival: Float64s
    known: Int64s


def delta_index(deltas_micros: Int64s, delta_micros: ArrayLike) -> Int64s:
    """Return the index of the model's delta that applies to each `delta_micros` (none is negative)."""
    index = np.searchsorted(deltas_micros, np.asarray(delta_micros, dtype=np.int64), side="right") - 1
    return np.maximum(index, 0)


def survival(curves: Curves, market: int, state: ArrayLike, delta_micros: ArrayLike, ahead_s: ArrayLike) -> Float64s:
    """Return P(not taken in less than `ahead_s`), of the shape to which the three arrays broadcast.

    Between two horizons the curve is a straight line; beyond the last one its mean hazard continues. A bid below the
    price is being taken (0); in a market without history none ever is (1).

    Raises
    ------
    ValueError
        If a time is negative or not finite.
    IndexError
        If there is no such state.
    """
    states, deltas, ahead = np.broadcast_arrays(
        np.asarray(state, dtype=np.int64), np.asarray(delta_micros, dtype=np.int64), np.asarray(ahead_s, np.float64)
    )
    if not (np.isfinite(ahead).all() and (ahead >= 0).all()):
        raise ValueError("the time ahead must be a number of seconds, not negative")
    n_states = curves.survival.shape[1]
    if ((states < 0) | (states >= n_states)).any():
        raise IndexError(f"a state that is none of the model's {n_states}")
    if not curves.known[market]:
        return np.ones(ahead.shape)
    horizons = curves.horizons_s
    right = np.clip(np.searchsorted(horizons, ahead, side="right"), 1, len(horizons) - 1)
    rows = curves.survival[market]
    index = delta_index(curves.deltas_micros, deltas)
    low, high = rows[states, index, right - 1], rows[states, index, right]
    share = (np.minimum(ahead, horizons[-1]) - horizons[right - 1]) / (horizons[right] - horizons[right - 1])
    lived = low + (high - low) * share
    lived = np.power(lived, np.maximum(ahead / horizons[-1], 1.0))
    return np.where(deltas < 0, 0.0, lived)


def falling(shares: Float64s) -> Float64s:
    """Return `shares` made to fall along the last axis, by their running minimum."""
    lowest: Float64s = np.minimum.accumulate(shares, axis=-1)
    return lowest


def never_falling_with_delta(shares: Float64s) -> Float64s:
    """Return curves, shape (…, deltas, horizons), that never fall with the delta, by their running maximum."""
    highest: Float64s = np.maximum.accumulate(shares, axis=-2)
    return highest
