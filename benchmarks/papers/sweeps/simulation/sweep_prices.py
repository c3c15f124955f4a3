"""The markets of simulated sweeps: prices and averages at every tick, looked up once for all sweeps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from proteus_spot.bidding.market.model import HOUR_S, MINUTE_S, InstanceType, Market
from proteus_spot.bidding.market.money import Micros
from proteus_spot.bidding.market.traces import Int64s, Trace, TraceSet

#: Seconds from one decision point to the next.
TICK_S = 2 * MINUTE_S
#: Price of a market of which none is known.
UNKNOWN = -1


@dataclass(frozen=True, eq=False)
class SweepPrices:
    """Recorded prices, with tables of what each tick of [from_s, until_s] offers.

    Attributes
    ----------
    traces : the prices of the markets, from an hour before `from_s` to `until_s`, where they are known.
    markets : in a fixed order, that of the tables' columns.
    types : the types of the markets, by name.
    from_s, until_s : ticks are at `from_s` + n * `tick_s`, up to `until_s`.
    prices_micros : shape (ticks, markets)
        `UNKNOWN` where no price is known.
    averages_micros : shape (ticks, markets)
        Time-weighted mean price of the hour before, or of the part of it with a known price; rounded down.
    """

    traces: TraceSet
    markets: tuple[Market, ...]
    types: Mapping[str, InstanceType]
    from_s: int
    until_s: int
    prices_micros: Int64s
    averages_micros: Int64s
    tick_s: int = TICK_S

    def tick_index(self, at_s: int) -> int:
        """Return the number of the first tick at or after `at_s`."""
        return -((self.from_s - at_s) // self.tick_s)

    def tick_at_s(self, index: int) -> int:
        """Return the time of a tick."""
        return self.from_s + index * self.tick_s

    @cached_property
    def vcpus(self) -> Int64s:
        """The vCPUs of each market's type, shape (markets,)."""
        return np.array([self.types[market.instance_type].vcpu for market in self.markets], dtype=np.int64)

    @cached_property
    def on_demand_micros(self) -> tuple[Micros, ...]:
        """The hourly on-demand price of each market's type."""
        return tuple(self.types[market.instance_type].on_demand_micros for market in self.markets)


def sweep_prices(
    traces: TraceSet,
    markets: Sequence[Market],
    types: Mapping[str, InstanceType],
    from_s: int,
    until_s: int,
    tick_s: int = TICK_S,
) -> SweepPrices:
    """Return the tables of `markets`, in their sorted order.

    Raises
    ------
    KeyError
        If a market has no trace, or its type is not among `types`.
    ValueError
        If there is no market, or `until_s` is not after `from_s`.
    """
    chosen = tuple(sorted(markets))
    if not chosen:
        raise ValueError("there is no market to deploy a trial on")
    if until_s <= from_s or tick_s < 1:
        raise ValueError(f"no tick of {tick_s} s in [{from_s}, {until_s}]")
    for market in chosen:
        types[market.instance_type]
    held = {market: traces[market].between(from_s - HOUR_S, until_s) for market in chosen}
    ticks_s = np.arange(from_s, until_s + 1, tick_s, dtype=np.int64)
    prices = np.stack([_prices_at(held[market], ticks_s) for market in chosen], axis=1)
    averages = np.stack([_averages_at(held[market], ticks_s) for market in chosen], axis=1)
    return SweepPrices(TraceSet(held), chosen, dict(types), from_s, until_s, prices, averages, tick_s)


def _prices_at(trace: Trace, ticks_s: Int64s) -> Int64s:
    events = np.searchsorted(trace.times_s, ticks_s, side="right") - 1
    return np.where(events >= 0, trace.prices_micros[events], UNKNOWN)


def _averages_at(trace: Trace, ticks_s: Int64s) -> Int64s:
    """Return the mean price of the hour before each tick; the price itself where none was known before."""
    starts_s = np.maximum(ticks_s - HOUR_S, trace.times_s[0])
    lengths_s = ticks_s - starts_s
    areas = _areas(trace, ticks_s) - _areas(trace, starts_s)
    means = areas // np.maximum(lengths_s, 1)
    return np.where(lengths_s > 0, means, _prices_at(trace, ticks_s))


def _areas(trace: Trace, at_s: Int64s) -> Int64s:
    """Return the sum of the prices of each second from the first event to each moment."""
    sums = np.concatenate([[0], np.cumsum(np.diff(trace.times_s) * trace.prices_micros[:-1])])
    events = np.maximum(np.searchsorted(trace.times_s, at_s, side="right") - 1, 0)
    areas: Int64s = sums[events] + (at_s - trace.times_s[events]) * trace.prices_micros[events]
    return areas
