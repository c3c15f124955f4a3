"""Prices over time: step functions on sorted arrays.

A price holds from its event until the market's next one. Before the first event no price is known; after the last event
its price holds. Of several events in one second the last in file order counts.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from proteus_spot.bidding.market.model import Market
from proteus_spot.bidding.market.money import Micros

Int64s = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Trace:
    """The prices of one market.

    Attributes
    ----------
    times_s : ndarray of int64, shape (n,)
        Strictly rising times of the events.
    prices_micros : ndarray of int64, shape (n,)
        Hourly price from each event on.
    """

    times_s: Int64s
    prices_micros: Int64s

    def __post_init__(self) -> None:
        times = np.ascontiguousarray(self.times_s, dtype=np.int64)
        prices = np.ascontiguousarray(self.prices_micros, dtype=np.int64)
        if times.ndim != 1 or times.shape != prices.shape:
            raise ValueError(f"times and prices must be equally long rows, not {times.shape} and {prices.shape}")
        steps = np.diff(times)
        if (steps < 0).any():
            raise ValueError("the events of a trace must be in time order")
        if (steps == 0).any():
            last = np.append(steps != 0, True)
            times, prices = times[last], prices[last]
        for name, values in (("times_s", times), ("prices_micros", prices)):
            own = values.copy() if values.flags.writeable else values  # the caller may still change its own array
            own.setflags(write=False)
            object.__setattr__(self, name, own)

    def __len__(self) -> int:
        return len(self.times_s)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Trace)
            and np.array_equal(self.times_s, other.times_s)
            and np.array_equal(self.prices_micros, other.prices_micros)
        )

    def price_at(self, at_s: float) -> Micros | None:
        """Return the price at `at_s`; None before the first event."""
        index = int(np.searchsorted(self.times_s, at_s, side="right")) - 1
        return int(self.prices_micros[index]) if index >= 0 else None

    def first_above(self, bid_micros: Micros, after_s: float) -> int | None:
        """Return the time of the first event strictly after `after_s` whose price is above the bid, or None."""
        start = int(np.searchsorted(self.times_s, after_s, side="right"))
        above = self.prices_micros[start:] > bid_micros
        index = int(above.argmax()) if above.size else 0
        return int(self.times_s[start + index]) if above.size and above[index] else None

    def between(self, from_s: float, until_s: float) -> "Trace":
        """Return the events in [from_s, until_s], and the one that held at `from_s` before them."""
        start = max(int(np.searchsorted(self.times_s, from_s, side="right")) - 1, 0)
        end = int(np.searchsorted(self.times_s, until_s, side="right"))
        return Trace(self.times_s[start:end], self.prices_micros[start:end])


class TraceSet(Mapping[Market, Trace]):
    """The traces of many markets, in the markets' order. Immutable; empty traces are left out."""

    def __init__(self, traces: Mapping[Market, Trace]) -> None:
        self._traces = {market: traces[market] for market in sorted(traces) if len(traces[market])}

    def __getitem__(self, market: Market) -> Trace:
        return self._traces[market]

    def __iter__(self) -> Iterator[Market]:
        return iter(self._traces)

    def __len__(self) -> int:
        return len(self._traces)

    def __repr__(self) -> str:
        return f"TraceSet({len(self)} markets, {sum(map(len, self.values()))} events)"

    @property
    def markets(self) -> tuple[Market, ...]:
        """The markets, sorted."""
        return tuple(self._traces)

    @property
    def first_s(self) -> int:
        """Time of the earliest event; `ValueError` if there is none."""
        return min(int(trace.times_s[0]) for trace in self._traces.values())

    @property
    def last_s(self) -> int:
        """Time of the latest event; `ValueError` if there is none."""
        return max(int(trace.times_s[-1]) for trace in self._traces.values())

    def prices_at(self, at_s: float) -> dict[Market, Micros]:
        """Return the price of every market that has one at `at_s`."""
        prices = ((market, trace.price_at(at_s)) for market, trace in self._traces.items())
        return {market: price for market, price in prices if price is not None}

    def between(self, from_s: float, until_s: float) -> "TraceSet":
        """Return `Trace.between` of every market."""
        return TraceSet({market: trace.between(from_s, until_s) for market, trace in self._traces.items()})
