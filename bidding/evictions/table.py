"""`EvictionTable`: β and median time to an eviction by market and bid delta, fitted to a price history.

It depends on the present only by the market and the delta. A table is an immutable value, stored with the job that uses
it.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proteus_spot.bidding.jit import compiled
from proteus_spot.bidding.market.model import HOUR_S, MINUTE_S, Market
from proteus_spot.bidding.market.money import Micros, to_micros
from proteus_spot.bidding.market.traces import Int64s, TraceSet

#: Bid deltas of the paper's table: geometric from 0.0001 to 0.4 dollars.
DELTAS_MICROS: tuple[Micros, ...] = tuple(
    int(delta) for delta in np.rint(np.geomspace(to_micros("0.0001"), to_micros("0.4"), 25))
)


@dataclass(frozen=True)
class EvictionTable:
    """β and the median time to eviction, per market and bid delta.

    Attributes
    ----------
    deltas_micros : tuple of int
        Bid deltas, rising.
    rows : mapping of Market to a pair for each delta
        (β in [0, 1], median seconds from the grant to an eviction, given that one comes within the hour). If none ever
        came the median is the whole hour.
    bids_decide : bool
        False where machines are taken when their capacity is needed, whatever was bid
        (`bidding.evictions.fit_capacity`).
    """

    deltas_micros: tuple[Micros, ...]
    rows: Mapping[Market, tuple[tuple[float, float], ...]] = field(hash=False)
    bids_decide: bool = True

    def __post_init__(self) -> None:
        if not self.deltas_micros or any(low >= high for low, high in pairwise(self.deltas_micros)):
            raise ValueError("the bid deltas of an eviction table must rise")
        rows = {market: tuple(self.rows[market]) for market in sorted(self.rows)}
        for market, row in rows.items():
            if len(row) != len(self.deltas_micros):
                raise ValueError(f"{market}: {len(row)} entries for {len(self.deltas_micros)} bid deltas")
            if not all(0 <= beta <= 1 and isfinite(median) and median >= 0 for beta, median in row):
                raise ValueError(f"{market}: a probability outside [0, 1], or a time that is none")
        object.__setattr__(self, "rows", rows)

    @property
    def markets(self) -> tuple[Market, ...]:
        """The markets of the table, sorted."""
        return tuple(self.rows)

    def lookup(self, market: Market, delta_index: int) -> tuple[float, float]:
        """Return (β, median seconds to an eviction) of the delta `deltas_micros[delta_index]`.

        Raises
        ------
        KeyError
            If `market` had no price in the window of the fit.
        IndexError
            If there is no such delta.
        """
        return self.rows[market][delta_index]

    def of_bid(self, market: Market, delta_micros: Micros) -> tuple[float, float]:
        """Return (β, median seconds) of a bid that stands `delta_micros` above the price.

        Between two deltas the lower one applies, below the lowest one that; a bid below the price is being taken:
        (1, 0). A market without history counts as never taken: (0, an hour).
        """
        if market not in self.rows:
            return 0.0, float(HOUR_S)
        if delta_micros < 0:
            return 1.0, 0.0
        return self.rows[market][max(bisect_right(self.deltas_micros, delta_micros) - 1, 0)]

    def grid(self, markets: Sequence[Market]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return (β, median seconds), each of shape (markets, deltas)."""
        cells = np.array([self.rows[market] for market in markets], dtype=np.float64)
        return cells[..., 0], cells[..., 1]

    def to_json(self) -> dict[str, Any]:
        """Return the table as JSON-able values; `from_json` gives the same table again, to the last bit."""
        return {
            "deltas_micros": list(self.deltas_micros),
            "markets": {
                str(market): {"beta": [beta for beta, _ in row], "median_tte_s": [median for _, median in row]}
                for market, row in self.rows.items()
            },
            "bids_decide": self.bids_decide,
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "EvictionTable":
        """Return the table that `to_json` wrote; `ValueError` for any other input."""
        try:
            rows = {
                Market.parse(name): tuple(
                    (float(beta), float(median)) for beta, median in zip(row["beta"], row["median_tte_s"], strict=True)
                )
                for name, row in record["markets"].items()
            }
            deltas = tuple(int(delta) for delta in record["deltas_micros"])
            return cls(deltas, rows, bool(record["bids_decide"]))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not an eviction table: {error!r}") from None


def fit(traces: TraceSet, from_s: int, until_s: int) -> EvictionTable:
    """Return the table fitted to the prices of [from_s, until_s].

    Every minute of the window at which a price is known, and after which a whole hour is left in the window, is a grant
    at the price of that moment; a market without such a minute is not in the table.

    Notes
    -----
    β is the share of these grants whose bid, price + delta, is passed by the price less than an hour later (an eviction
    on the hour refunds nothing). The time to eviction is exact to the second.

    Source: Proteus (EuroSys 2017), section 4.1, "Estimating Evictions".
    """
    deltas = np.array(DELTAS_MICROS, dtype=np.int64)
    rows = {}
    for market, trace in traces.items():
        # Grants keep to the window's own minutes, so that all markets are asked at the same moments.
        unknown = max(int(trace.times_s[0]) - from_s, 0)
        first_s = from_s + -(-unknown // MINUTE_S) * MINUTE_S
        grants = (until_s - HOUR_S - first_s) // MINUTE_S + 1
        if grants > 0:
            taken = _count_evictions(trace.times_s, trace.prices_micros, deltas, first_s, grants)
            betas = taken.sum(axis=1) / grants
            rows[market] = tuple(zip(betas.tolist(), _medians(taken).tolist(), strict=True))
    return EvictionTable(DELTAS_MICROS, rows)


def _medians(taken: Int64s) -> NDArray[np.float64]:
    """Return the median second of each histogram row, shape (deltas, 3600); the hour for an empty row."""
    running = np.cumsum(taken, axis=1)
    total = running[:, -1:]
    # The middle two of an even number, twice the middle one of an odd number.
    low = (running > (total - 1) // 2).argmax(axis=1)
    high = (running > total // 2).argmax(axis=1)
    return np.where(total[:, 0] > 0, (low + high) / 2, float(HOUR_S))


@compiled
def _count_evictions(
    times_s: Int64s, prices_micros: Int64s, deltas_micros: Int64s, first_s: int, grants: int
) -> Int64s:
    """Return the number of grants taken after each number of seconds, shape (deltas, 3600).

    Deltas rise, so a price that passes one bid has passed all lower ones: each event is visited once per grant.
    """
    taken = np.zeros((len(deltas_micros), HOUR_S), dtype=np.int64)
    after = 0
    for grant in range(grants):
        at_s = first_s + grant * MINUTE_S
        while after < len(times_s) and times_s[after] <= at_s:
            after += 1
        price = prices_micros[after - 1]
        lowest = 0  # the lowest delta that still stands
        event = after
        while event < len(times_s) and times_s[event] < at_s + HOUR_S and lowest < len(deltas_micros):
            while lowest < len(deltas_micros) and prices_micros[event] > price + deltas_micros[lowest]:
                taken[lowest, times_s[event] - at_s] += 1
                lowest += 1
            event += 1
    return taken
