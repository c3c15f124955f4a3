"""Fit of the model `capacity`, for markets where bids decide nothing: EC2 since the end of 2017, GCE.

In these a machine is taken when its capacity is needed, whatever was bid. So the curves have a single delta, 0, for any
bid that is not below the price. They come from an advisor's bands (a share of the machines taken in a month) or from
availability traces (whether a machine was available, step by step).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from proteus_spot.bidding.evictions.curve_model import BY_CAPACITY, CurveModel
from proteus_spot.bidding.evictions.curves import HORIZONS_S, Curves, Float64s
from proteus_spot.bidding.evictions.fit_survival import fit_survival
from proteus_spot.bidding.evictions.states import one_state
from proteus_spot.bidding.market.model import Market
from proteus_spot.bidding.market.money import Micros
from proteus_spot.bidding.market.time_window import TimeWindow
from proteus_spot.bidding.market.traces import Int64s, Trace, TraceSet

#: Period of an advisor's shares, in seconds.
MONTH_S = 30 * 86_400
#: "Prices" of an availability trace: a bid of 0 lives while the machine is available.
UP, DOWN = 0, 1
#: More machines than anybody asks a market for.
MANY = 1_000_000
#: The hourly price of a market without capacity in `with_capacity`: $10,000, so that no bid reaches it.
NO_CAPACITY_MICROS: Micros = 10**10
#: Share used for a band without an upper end, `>20%`.
OPEN_BAND = 0.3


@dataclass(frozen=True, slots=True)
class Band:
    """A share of the machines that is taken in a month, in [low, high); `high` None if the band has no end."""

    low: float
    high: float | None

    def __post_init__(self) -> None:
        if not 0 <= self.low < (1 if self.high is None else self.high) <= 1:
            raise ValueError(f"not a band of shares: {self.low} to {self.high}")

    def share(self, open_band: float = OPEN_BAND) -> float:
        """Return the middle; of a band without an end `open_band`, which must not be below it."""
        if self.high is not None:
            return (self.low + self.high) / 2
        if not self.low <= open_band < 1:
            raise ValueError(f"the share of the open band must be in [{self.low:g}, 1), not {open_band:g}")
        return open_band


def hazard_per_s(share: float, over_s: float = MONTH_S) -> float:
    """Return the constant rate of evictions under which `share` of the machines is taken in `over_s`."""
    return float(-np.log1p(-share) / over_s)


def of_bands(bands: Mapping[Market, Band], *, open_band: float = OPEN_BAND) -> CurveModel:
    """Return a model with a constant hazard for each market: that of the middle of its band.

    Notes
    -----
    An advisor gives the share of machines taken in the month before, not when in their life; the hazard is assumed to
    be constant, and a machine to be held for the month. It is not a forecast: it lags by up to a month.
    """
    markets = tuple(sorted(bands))
    horizons = np.array(HORIZONS_S, dtype=np.float64)
    rates = np.array([hazard_per_s(bands[market].share(open_band)) for market in markets])
    lived = np.exp(-rates[:, None] * horizons).reshape(len(markets), 1, 1, len(horizons))
    return _model(markets, None, lived, np.zeros((len(markets), 1, 1), np.int64), {"open_band": open_band})


def availability_trace(up: Sequence[int], gap_s: int, begins_s: int = 0) -> Trace:
    """Return an availability trace as prices: UP while a machine was available, DOWN while not.

    Parameters
    ----------
    up : one entry per step; number of machines available.
    gap_s : seconds from one step to the next.

    Raises
    ------
    ValueError
        If there is no step, or a step takes no time.
    """
    if not len(up) or gap_s <= 0:
        raise ValueError("an availability trace needs steps that take time")
    state = np.where(np.asarray(up) > 0, UP, DOWN).astype(np.int64)
    return Trace(begins_s + gap_s * np.arange(len(state), dtype=np.int64), state)


def capacity_trace(there: Sequence[int], gap_s: int, begins_s: int = 0) -> Trace:
    """Return the number of machines that a market has over time, as the "prices" of a trace.

    Parameters
    ----------
    there : one entry per step. Entries that are all 0 or 1 say only whether there are machines: 1 is any number then.
    gap_s : seconds from one step to the next.

    Raises
    ------
    ValueError
        If there is no step, or a step takes no time.
    """
    if not len(there) or gap_s <= 0:
        raise ValueError("a capacity trace needs steps that take time")
    counts = np.ceil(there).astype(np.int64)
    if counts.max() <= 1:
        counts = counts * MANY
    return Trace(begins_s + gap_s * np.arange(len(counts), dtype=np.int64), counts)


def with_capacity(prices: Trace, availability: Trace) -> Trace:
    """Return the prices of a market whose machines are not always available, for code that knows prices only.

    Parameters
    ----------
    availability : of `availability_trace`. The result covers the time of both traces, to the last step of this one.

    Notes
    -----
    Without capacity the price is one that no bid reaches. So nothing is bought then, held machines are taken when the
    capacity ends, and no hour is ever charged at that price.
    """
    begins_s, ends_s = max(prices.times_s[0], availability.times_s[0]), availability.times_s[-1]
    times = np.union1d(prices.times_s, availability.times_s)
    times = np.union1d(times[(times >= begins_s) & (times <= ends_s)], [begins_s] if begins_s <= ends_s else [])

    def at(trace: Trace) -> Int64s:
        return trace.prices_micros[np.searchsorted(trace.times_s, times, side="right") - 1]

    now = np.where(at(availability) == UP, at(prices), NO_CAPACITY_MICROS)
    changes = np.append(True, now[1:] != now[:-1])
    changes[-1:] = True  # the last event marks the end of the covered time
    return Trace(times[changes[: len(times)]], now[changes[: len(times)]])


def fit_availability(traces: TraceSet, window: TimeWindow) -> CurveModel:
    """Return a model of the share of machines that lived for each horizon, of those available at a minute of `window`.

    Parameters
    ----------
    traces : of `availability_trace`; a change between two steps is seen at the second.
    """
    plain = fit_survival(traces, window, deltas_micros=(UP,), highest_micros=UP)
    return _model(plain.markets, window, plain.curves.survival, plain.grants, {})


def joined(first: CurveModel, second: CurveModel) -> CurveModel:
    """Return a model with the markets of both capacity models; `first` takes precedence."""
    rows = {market: (model, row) for model in (second, first) for row, market in enumerate(model.markets)}
    markets = tuple(sorted(rows))
    lived = [rows[market][0].curves.survival[rows[market][1]] for market in markets]
    grants = [rows[market][0].grants[rows[market][1]] for market in markets]
    fitted = first.fitted or second.fitted
    return _model(markets, fitted, np.stack(lived), np.stack(grants), {**second.notes, **first.notes})


def _model(
    markets: tuple[Market, ...], fitted: TimeWindow | None, lived: Float64s, grants: Any, notes: Mapping[str, Any]
) -> CurveModel:
    known = np.ones(len(markets), dtype=np.int64)
    curves = Curves(np.zeros(1, np.int64), np.array(HORIZONS_S, dtype=np.int64), lived, known)
    return CurveModel(BY_CAPACITY, markets, fitted, curves, one_state(len(markets)), grants, notes)
