"""Generated price histories, from a seed and a climate, for use without a price file.

There are two kinds of climate. In an `AuctionClimate` (`bidding.synthetic.auction_market`) schemes rank and cost about
as on the real markets. A `MarketClimate` is for demonstrations with spikes at chosen times: each market has a level, a
fraction of its on-demand price, about which it moves in small steps that come in bursts with calm stretches between;
now and then it leaps to several times on-demand and falls back. Markets are independent.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from proteus_spot.bidding.market.model import DAY_S, HOUR_S, Market
from proteus_spot.bidding.market.money import Micros
from proteus_spot.bidding.market.traces import Int64s, Trace, TraceSet
from proteus_spot.bidding.synthetic.auction_market import AuctionClimate, auction_prices, mean_reverting

Floats = NDArray[np.float64]

#: Prices are multiples of this (0.0001 dollars), as on EC2.
PRICE_STEP_MICROS: Micros = 100

#: Maximum price as a multiple of on-demand, since no bid could be higher.
_CAP = 10.0


@dataclass(frozen=True, slots=True)
class MarketClimate:
    """Parameters of a market with a level, noise about it and spikes.

    Attributes
    ----------
    base_share : (low, high)
        A market's level as a share of its on-demand price; each market draws its own.
    noise : float
        Relative standard deviation about the level, outside spikes.
    reversion_s : float
        Time in which a departure from the level shrinks to 1/e, in seconds.
    step_every_s, busy_s, calm_s : float
        Mean seconds between steps in a burst; mean length of a burst, and of the calm between (0: no calm).
    spike_every_s : float
        Mean seconds from the start of one spike to that of the next.
    spike_regularity : float
        Shape of that (gamma) distribution: 1 has no memory, and its standard deviation is mean / sqrt(shape).
    spike_spread : float
        How much `spike_every_s` differs between markets: standard deviation of its logarithm.
    spike_s, spike_height : (low, high)
        Length of a spike in seconds, and its height in multiples of on-demand; log-uniform.
    rush_s : float or None
        If given, the markets spike together: all in the same rushes, each up to `rush_s` seconds after its beginning.
    """

    base_share: tuple[float, float] = (0.10, 0.26)
    noise: float = 0.07
    reversion_s: float = 3.0 * HOUR_S
    step_every_s: float = 150.0
    busy_s: float = 0.75 * HOUR_S
    calm_s: float = 1.5 * HOUR_S
    spike_every_s: float = 48.0 * HOUR_S
    spike_regularity: float = 1.0
    spike_spread: float = 1.2
    spike_s: tuple[float, float] = (180.0, 2.0 * HOUR_S)
    spike_height: tuple[float, float] = (1.1, 10.0)
    rush_s: float | None = None

    def __post_init__(self) -> None:
        for name in ("base_share", "spike_s", "spike_height"):
            low, high = getattr(self, name)
            if not (0 < low <= high and isfinite(high)):
                raise ValueError(f"{name} is ({low}, {high}): it must be a low and a high, both above 0")
        for name in ("reversion_s", "step_every_s", "busy_s", "spike_every_s", "spike_regularity"):
            if not (getattr(self, name) > 0 and isfinite(getattr(self, name))):
                raise ValueError(f"{name} is {getattr(self, name)}: it must be above 0")
        for name in ("noise", "calm_s", "spike_spread", *(["rush_s"] if self.rush_s is not None else [])):
            if not (getattr(self, name) >= 0 and isfinite(getattr(self, name))):
                raise ValueError(f"{name} is {getattr(self, name)}: it cannot be negative")


#: A market like those of 2015 and 2016: the results of schemes on it are in benchmarks/papers/economics.md.
TYPICAL = AuctionClimate()

#: For a demonstration of two hours: in nearly any two hours a market takes every bid that was made in it, however far
#: above the price (the bid deltas end at 0.4 dollars, and a policy that can outbid the spikes does), while about half
#: of all single hours are survived. Hence the regular spikes and their height. Between them the price hardly moves, and
#: they are short, so that something can always be bought.
LIVELY = MarketClimate(
    noise=0.004,
    step_every_s=600.0,
    spike_every_s=116.0 * 60,
    spike_regularity=400.0,
    spike_spread=0.0,
    spike_s=(180.0, 600.0),
    spike_height=(5.0, 9.0),
)

#: For `proteus run`: prices are constant except for a rush every 95 minutes, so that a purchase after a rush comes up
#: for renewal at an hour's end, and is lost soon after; in a rush some markets spike later than others.
RUSH_HOURS = replace(LIVELY, noise=0.0, spike_every_s=95.0 * 60, spike_regularity=1600.0, rush_s=480.0)

#: Prices of today, which follow supply and demand of months: they hardly move, and never leap. Evictions come from an
#: availability trace.
QUIET = replace(LIVELY, base_share=(0.25, 0.45), noise=0.001, step_every_s=2.0 * HOUR_S, spike_every_s=1e12)


def generate(
    on_demand_micros: Mapping[Market, Micros],
    from_s: int,
    until_s: int,
    rng: np.random.Generator,
    *,
    climate: AuctionClimate | MarketClimate = TYPICAL,
    vcpus: Mapping[str, int] | None = None,
) -> TraceSet:
    """Return the traces of generated markets over [from_s, until_s].

    Parameters
    ----------
    on_demand_micros : mapping of Market to Micros
        The markets, with the hourly on-demand price of their type.
    from_s, until_s : int
        Every market has an event at `from_s`, and none after `until_s`.
    rng : numpy.random.Generator
        Each market, in sorted order, gets its own generator from it: the same seed, markets and times give the same
        traces.
    climate : AuctionClimate or MarketClimate
    vcpus : mapping of str to int
        vCPUs of the instance types, which have a floor price in an `AuctionClimate`; without it, or for a type that is
        not in it, they are estimated from the on-demand price. A `MarketClimate` ignores it.

    Raises
    ------
    ValueError
        If `until_s` is not after `from_s`, or a price is not above 0.
    """
    if until_s <= from_s:
        raise ValueError(f"a market cannot last from {from_s} to {until_s}")
    markets = sorted(on_demand_micros)
    for market in markets:
        if on_demand_micros[market] <= 0:
            raise ValueError(f"{market}: the on-demand price is {on_demand_micros[market]}: it must be above 0")
    streams = zip(markets, rng.spawn(len(markets)), strict=True)
    rushes = None
    if isinstance(climate, MarketClimate) and climate.rush_s is not None:
        rushes = _spike_starts(until_s - from_s, rng, climate)
    vcpus_by_type = vcpus or {}
    made = {}
    for market, stream in streams:
        on_demand = on_demand_micros[market]
        if isinstance(climate, AuctionClimate):
            floor_micros = climate.floor_micros(on_demand, vcpus_by_type.get(market.instance_type))
            times_s, prices = auction_prices(floor_micros, until_s - from_s, stream, climate)
        else:
            times_s, prices = _levels_and_spikes(on_demand, until_s - from_s, stream, climate, rushes)
        made[market] = _trace(on_demand, from_s, times_s, prices, again=isinstance(climate, AuctionClimate))
    return TraceSet(made)


def _trace(on_demand: Micros, from_s: int, times_s: Int64s, prices: Floats, *, again: bool) -> Trace:
    """Return the changes of prices, capped and in steps as on EC2; `times_s` count from `from_s`.

    With `again`, an unchanged price is reported again once a day, as on EC2: otherwise two markets with constant prices
    would look like a hole in the file.
    """
    capped = np.minimum(prices, _CAP * on_demand)
    micros = np.maximum(np.rint(capped / PRICE_STEP_MICROS), 1).astype(np.int64) * PRICE_STEP_MICROS
    reported = np.append(True, np.diff(micros) != 0)
    if again:
        reported |= np.diff(times_s // DAY_S, prepend=0) != 0
    return Trace(from_s + times_s[reported], micros[reported])


def _levels_and_spikes(
    on_demand: Micros, span_s: int, rng: np.random.Generator, climate: MarketClimate, rushes: Floats | None
) -> tuple[Int64s, Floats]:
    """Return the moments of one market in [0, span_s] and its prices in micro-dollars, neither rounded nor capped."""
    level = on_demand * rng.uniform(*climate.base_share)
    steps_s = _step_times(span_s, rng, climate)
    quiet = level * np.exp(
        mean_reverting(steps_s, rng.standard_normal(len(steps_s)), climate.noise, climate.reversion_s)
    )
    if rushes is None or climate.rush_s is None:
        starts_s = _spike_starts(span_s, rng, climate)
    else:
        starts_s = rushes + climate.rush_s * rng.uniform(size=len(rushes))
    bounds_s, heights = _spikes(starts_s, rng, climate)

    times_s = np.unique(np.concatenate([steps_s, bounds_s]))
    times_s = times_s[(times_s >= 0) & (times_s <= span_s)]
    prices = quiet[np.searchsorted(steps_s, times_s, side="right") - 1]
    passed = np.searchsorted(bounds_s, times_s, side="right")
    spiking = passed % 2 == 1
    prices[spiking] += on_demand * heights[passed[spiking] // 2] - level
    return times_s, prices


def _step_times(span_s: int, rng: np.random.Generator, climate: MarketClimate) -> Int64s:
    """Return the seconds of the small steps, rising; the first is 0."""
    steps = _renewals(0.0, span_s, climate.step_every_s, 1.0, rng)
    if climate.calm_s > 0:
        cycles = int(2 * span_s / (climate.busy_s + climate.calm_s)) + 8
        turns = np.cumsum(rng.exponential((climate.busy_s, climate.calm_s), (cycles, 2)).ravel())
        # Begin somewhere in the life of the market rather than always with a burst.
        turns -= rng.uniform(0.0, climate.busy_s + climate.calm_s)
        steps = steps[np.searchsorted(turns, steps, side="right") % 2 == 0]
    return np.unique(np.append(0, steps.astype(np.int64)))


def _spike_starts(span_s: int, rng: np.random.Generator, climate: MarketClimate) -> Floats:
    """Return when spikes begin, rising."""
    every_s = climate.spike_every_s * rng.lognormal(0.0, climate.spike_spread)
    return _renewals(-every_s * rng.uniform(), span_s, every_s, climate.spike_regularity, rng)


def _spikes(starts_s: Floats, rng: np.random.Generator, climate: MarketClimate) -> tuple[Int64s, Floats]:
    """Return start and end of each spike in turn, shape (2 n,), and the heights, shape (n,); none overlaps another."""
    starts = np.unique(starts_s.astype(np.int64))
    lengths = _log_uniform(climate.spike_s, len(starts), rng)
    ends = starts + np.maximum(lengths, 1.0).astype(np.int64)
    ends[:-1] = np.minimum(ends[:-1], starts[1:])
    return np.stack([starts, ends], axis=1).ravel(), _log_uniform(climate.spike_height, len(starts), rng)


def _renewals(from_s: float, until_s: float, mean_s: float, shape: float, rng: np.random.Generator) -> Floats:
    """Return the moments in (from_s, until_s] of a process with gamma gaps."""
    parts = []
    last_s = from_s
    while last_s <= until_s:
        draws = int((until_s - last_s) / mean_s * 1.1) + 16
        part = last_s + np.cumsum(rng.gamma(shape, mean_s / shape, draws))
        parts.append(part)
        last_s = float(part[-1])
    moments = np.concatenate(parts) if parts else np.empty(0)
    return moments[moments <= until_s]


def _log_uniform(bounds: tuple[float, float], size: int, rng: np.random.Generator) -> Floats:
    return np.exp(rng.uniform(np.log(bounds[0]), np.log(bounds[1]), size))
