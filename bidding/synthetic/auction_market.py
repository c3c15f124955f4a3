"""Generated prices of a market as a sequence of auctions, on which schemes rank as on the real markets.

At each auction a pressure meets a book of bids, a staircase that turns pressure into a price. The pressure moves
slowly, and jitters from auction to auction: between two edges of the book the price stands still, at an edge it
flickers, so that a market is busy for hours and then calm for hours, and a price that has just changed is likely to
change again. Below the lowest edge the price is the market's floor; high up the steps grow, which makes the hills and,
at their tops, the prices above on-demand. Now and then the book is replaced. Markets are independent, but types have
one floor for a vCPU.

The process depends neither on absolute time nor on the name of a market.
"""

from dataclasses import dataclass, fields
from itertools import pairwise
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from proteus_spot.bidding.jit import compiled
from proteus_spot.bidding.market.model import HOUR_S
from proteus_spot.bidding.market.money import Micros
from proteus_spot.bidding.market.traces import Int64s

Floats = NDArray[np.float64]

#: End of a book: a pressure above its mean that is never reached.
_TOP = 8.0
#: Prices are found in the logarithm; more than this above the floor is beyond any cap.
_HIGHEST = 12.0


@dataclass(frozen=True, slots=True)
class AuctionClimate:
    """Parameters of a market's auctions. The defaults are near the medians of us-east-1 in 2015 and 2016.

    Pressure has no unit: its standard deviation about its mean is 1, and everything else is given in that.

    Attributes
    ----------
    vcpu_floor_micros : float
        Minimum price of a vCPU for an hour: in 2015 and 2016 it was the same for most types, whatever they cost on
        demand.
    floor_share : float
        Minimum price as a share of on-demand, where that is more.
    vcpu_on_demand_micros : float
        On-demand price of a vCPU, for types whose number of vCPUs is not given.
    auction_s : (low, high)
        Seconds from one auction to the next; each market draws its own mean, log-uniform.
    mean, mean_spread : float
        Mean pressure above the edge at which steps have their middle height, and how much it differs between markets.
    reversion_s : float
        Time in which a departure of the pressure from its mean shrinks to 1/e, in seconds.
    jitter, jitter_spread, jitter_tail : float
        Standard deviation of each auction's addition to the pressure; how much its logarithm differs between markets;
        and from one auction to the next.
    lowest, step_width : float
        The book's lowest edge, and the mean distance of two edges.
    step_height, step_growth, step_spread : float
        Median of the logarithm by which the price rises at an edge at pressure 0; how fast the median's logarithm grows
        with pressure; and the standard deviation of that logarithm.
    book_s : float
        Mean life of a book, in seconds.
    """

    vcpu_floor_micros: float = 8050.0
    floor_share: float = 0.09
    vcpu_on_demand_micros: float = 65_000.0
    auction_s: tuple[float, float] = (120.0, 600.0)
    mean: float = 0.8
    mean_spread: float = 1.0
    reversion_s: float = 24.0 * HOUR_S
    jitter: float = 0.04
    jitter_spread: float = 1.2
    jitter_tail: float = 1.0
    lowest: float = -1.0
    step_width: float = 0.1
    step_height: float = 0.0012
    step_growth: float = 1.2
    step_spread: float = 1.5
    book_s: float = 72.0 * HOUR_S

    def __post_init__(self) -> None:
        low, high = self.auction_s
        if not (0 < low <= high and isfinite(high)):
            raise ValueError(f"auction_s is ({low}, {high}): it must be a low and a high, both above 0")
        for name in (
            "vcpu_floor_micros",
            "vcpu_on_demand_micros",
            "reversion_s",
            "step_width",
            "step_height",
            "book_s",
        ):
            if not (getattr(self, name) > 0 and isfinite(getattr(self, name))):
                raise ValueError(f"{name} is {getattr(self, name)}: it must be above 0")
        for name in ("floor_share", "mean_spread", "jitter", "jitter_spread", "jitter_tail", "step_spread"):
            if not (getattr(self, name) >= 0 and isfinite(getattr(self, name))):
                raise ValueError(f"{name} is {getattr(self, name)}: it cannot be negative")
        for each in fields(self):
            if each.name in ("mean", "lowest", "step_growth") and not isfinite(getattr(self, each.name)):
                raise ValueError(f"{each.name} is {getattr(self, each.name)}: it must be a number")

    def floor_micros(self, on_demand: Micros, vcpus: int | None) -> float:
        """Return the least hourly price of a machine."""
        counted = on_demand / self.vcpu_on_demand_micros if vcpus is None else vcpus
        return max(self.floor_share * on_demand, self.vcpu_floor_micros * counted)


def auction_prices(
    floor_micros: float, span_s: int, rng: np.random.Generator, climate: AuctionClimate
) -> tuple[Int64s, Floats]:
    """Return the moments of a market's auctions in [0, span_s], strictly rising from 0, and the price at each.

    Returns
    -------
    times_s : ndarray of int64, shape (n,)
    prices : ndarray of float64, shape (n,)
        Micro-dollars, neither rounded nor capped.
    """
    every_s = np.exp(rng.uniform(*np.log(climate.auction_s)))
    mean = climate.mean + climate.mean_spread * rng.standard_normal()
    jitter = climate.jitter * np.exp(climate.jitter_spread * rng.standard_normal())
    # Evenly spaced but for a third of the distance, as auctions are; whole seconds.
    count = int(span_s / every_s) + 1
    times_s = np.append(0, (np.arange(count) + rng.uniform(0.0, 0.3, count)) * every_s).astype(np.int64)
    times_s = np.unique(times_s[times_s <= span_s])
    count = len(times_s)
    slow = mean_reverting(times_s, rng.standard_normal(count), 1.0, climate.reversion_s)
    quick = jitter * rng.standard_normal(count) * np.exp(climate.jitter_tail * rng.standard_normal(count))
    return times_s, floor_micros * np.exp(_heights(times_s, mean + slow + quick, span_s, rng, climate))


def _heights(
    times_s: Int64s, pressures: Floats, span_s: int, rng: np.random.Generator, climate: AuctionClimate
) -> Floats:
    """Return the logarithm of price over floor at each auction, by the book in force."""
    turns_s = np.sort(rng.uniform(0.0, span_s, rng.poisson(span_s / climate.book_s)))
    bounds = np.concatenate([[0], np.searchsorted(times_s, turns_s), [len(times_s)]])
    heights = np.empty(len(times_s))
    steps = int((climate.mean + _TOP - climate.lowest) / climate.step_width) + 1
    for first, last in pairwise(bounds):
        edges = climate.lowest + np.cumsum(rng.exponential(climate.step_width, steps))
        spread = climate.step_spread * rng.standard_normal(steps)
        logs = np.log(climate.step_height) + climate.step_growth * edges + spread
        book = np.append(0.0, np.cumsum(np.exp(np.minimum(logs, _HIGHEST))))
        heights[first:last] = book[np.searchsorted(edges, pressures[first:last], side="right")]
    return np.minimum(heights, _HIGHEST)


@compiled
def mean_reverting(times_s: Int64s, normals: Floats, deviation: float, reversion_s: float) -> Floats:
    """Return a mean-reverting (Ornstein-Uhlenbeck) process at irregular times, exactly, from independent normals."""
    values = np.empty(len(times_s))
    values[0] = deviation * normals[0]
    for i in range(1, len(times_s)):
        decay = np.exp(-(times_s[i] - times_s[i - 1]) / reversion_s)
        values[i] = decay * values[i - 1] + deviation * np.sqrt(1.0 - decay * decay) * normals[i]
    return values
