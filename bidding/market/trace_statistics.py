"""Figures of a price history that decide how schemes rank on it.

A bid above the price loses its machines to rises; just below, it wins refunds by them. So the relevant figures beside
the level are how often prices change, how far they rise, and whether rises are predictable: whether busy hours follow
busy ones, and whether a price that has just changed is about to rise.
"""

from dataclasses import dataclass

import numpy as np

from proteus_spot.bidding.market.model import HOUR_S
from proteus_spot.bidding.market.money import Micros
from proteus_spot.bidding.market.traces import Trace

_GRID_S = 60
_SOON_S = 600
#: Seconds within which a price has just changed; one older than an hour is old.
_YOUNG_S = 600
#: Maximum number of changes counted per hour: what matters is whether it was busy.
_BUSY = 5


@dataclass(frozen=True, slots=True)
class TraceStatistics:
    """One market over one window; by minutes where shares and quantiles are of time.

    Attributes
    ----------
    level : median price as a share of on-demand.
    low, high : 5th and 95th percentile of the price, as multiples of its median.
    changes_per_hour : how often the price changes.
    share_rises : share of the changes that are upwards.
    median_rise, large_rise : median and 90th percentile of the logarithm of the rises.
    rise_in_hour : share of minutes after which the price rises within the hour.
    soon_if_young, soon_if_old : share of minutes after which it rises within ten, of those at which the price has stood
        for less than ten minutes, and for more than an hour; NaN where there are none.
    busy_after_busy : correlation of the changes of an hour (five at the most) with those of the hour before.
    share_above : share of the time in which the price is above on-demand.
    """

    level: float
    low: float
    high: float
    changes_per_hour: float
    share_rises: float
    median_rise: float
    large_rise: float
    rise_in_hour: float
    soon_if_young: float
    soon_if_old: float
    busy_after_busy: float
    share_above: float


def statistics(trace: Trace, on_demand_micros: Micros, from_s: int, until_s: int) -> TraceStatistics:
    """Return the figures of a trace over [from_s, until_s].

    Raises
    ------
    ValueError
        If the price does not both rise and fall, or the window leaves less than two hours of prices.
    """
    held = trace.between(from_s, until_s)
    changed = np.diff(held.prices_micros, prepend=-1) != 0  # rows that repeat a price are none
    times_s, prices = held.times_s[changed], held.prices_micros[changed]
    steps = np.diff(np.log(prices))
    begin_s = max(from_s, int(times_s[0])) if len(times_s) else until_s
    if until_s - begin_s < 2 * HOUR_S or not (steps > 0).any() or not (steps < 0).any():
        raise ValueError(f"too little happens from {from_s} to {until_s} to tell what the market is like")
    minutes_s = np.arange(begin_s, until_s - HOUR_S, _GRID_S)
    index = np.searchsorted(times_s, minutes_s, side="right") - 1
    shares, ages_s = prices[index] / on_demand_micros, minutes_s - times_s[index]
    rises_s = np.append(times_s[1:][steps > 0], np.iinfo(np.int64).max)
    next_s = rises_s[np.searchsorted(rises_s, minutes_s, side="right")] - minutes_s
    level = float(np.median(shares))
    low, high = np.quantile(shares, (0.05, 0.95)) / level
    hourly = np.minimum(np.histogram(times_s[1:], np.arange(begin_s, until_s, HOUR_S))[0], _BUSY)
    return TraceStatistics(
        level=level,
        low=float(low),
        high=float(high),
        changes_per_hour=len(steps) / (until_s - begin_s) * HOUR_S,
        share_rises=float(np.mean(steps > 0)),
        median_rise=float(np.median(steps[steps > 0])),
        large_rise=float(np.quantile(steps[steps > 0], 0.9)),
        rise_in_hour=float(np.mean(next_s < HOUR_S)),
        soon_if_young=_share(next_s[ages_s < _YOUNG_S]),
        soon_if_old=_share(next_s[ages_s > HOUR_S]),
        busy_after_busy=_correlation(hourly),
        share_above=float(np.mean(shares > 1)),
    )


def _share(next_s: np.ndarray) -> float:
    return float(np.mean(next_s < _SOON_S)) if len(next_s) else float("nan")


def _correlation(hourly: np.ndarray) -> float:
    """Return the correlation of neighbours; NaN where all hours are alike."""
    before, after = hourly[:-1], hourly[1:]
    if len(before) == 0 or before.std() == 0 or after.std() == 0:
        return float("nan")
    return float(np.corrcoef(before, after)[0, 1])
