"""`MarketFeatures`: the recent past of a market as numbers, and a model's inputs made of them."""

from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass, fields
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from proteus_spot.bidding.jit import compiled
from proteus_spot.bidding.market.model import DAY_S, HOUR_S, Market
from proteus_spot.bidding.market.traces import Int64s, Trace, TraceSet

#: Maximum seconds that a signal looks back.
LOOKBACK_S = 7 * DAY_S
#: Number of features of a signal; see `features`.
FEATURES = 8


@dataclass(frozen=True, slots=True)
class MarketFeatures:
    """State of a market at one moment, beside its on-demand price.

    Attributes
    ----------
    price_micros : the price.
    before_micros : the price before it; the price itself if none is known, or if it has stood for all of the lookback.
    age_s : seconds since the price changed, at most the lookback.
    rises_6h, rises_24h : number of rises of the price in the last 6 and 24 hours.
    mean_1h_micros, mean_24h_micros, mean_7d_micros : time-weighted mean prices; over a shorter time if less is known.
    """

    price_micros: int
    before_micros: int
    age_s: int
    rises_6h: int
    rises_24h: int
    mean_1h_micros: float
    mean_24h_micros: float
    mean_7d_micros: float

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "MarketFeatures":
        """Return the signal that `asdict` wrote."""
        return cls(**record)

    def to_record(self) -> dict[str, Any]:
        """Return the signal as JSON-able values."""
        return asdict(self)

    def features(self, on_demand_micros: int) -> NDArray[np.float64]:
        """Return a model's inputs, shape (FEATURES,); see `features`."""
        out = np.empty(FEATURES)
        _features(np.array(astuple(self), dtype=np.float64), on_demand_micros, out)
        return out


class PriceHistory(NamedTuple):
    """The changes of one market's price, with running sums, so that any window is two look-ups.

    Attributes
    ----------
    times_s, micros : shape (changes,)
        Rows that repeat the price are left out.
    areas : shape (changes,); price x seconds from the first change until this one.
    rises : shape (changes,); changes upwards up to and with this one.
    """

    times_s: Int64s
    micros: Int64s
    areas: Int64s
    rises: Int64s


def price_history_of(trace: Trace) -> PriceHistory:
    """Return the changes of a trace, which is not empty."""
    changes = np.append(True, np.diff(trace.prices_micros) != 0)
    times, micros = trace.times_s[changes], trace.prices_micros[changes]
    areas = np.append(0, np.cumsum(micros[:-1] * np.diff(times)))
    rises = np.append(0, np.cumsum(np.diff(micros) > 0))
    return PriceHistory(times, micros, areas, rises)


def features_of(traces: TraceSet, at_s: int) -> dict[Market, MarketFeatures]:
    """Return the signal of every market that has a price at `at_s`; later events are ignored."""
    found = {market: features_at(price_history_of(trace), at_s) for market, trace in traces.items()}
    return {market: here for market, here in found.items() if here is not None}


def features_at(past: PriceHistory, at_s: int) -> MarketFeatures | None:
    """Return the signal of one market; None before its first price."""
    index = int(np.searchsorted(past.times_s, at_s, side="right")) - 1
    if index < 0:
        return None
    row = np.empty(len(fields(MarketFeatures)))
    _signal(*past, 0, index, at_s, row)
    counts = (int(value) for value in row[:5])
    return MarketFeatures(*counts, *(float(value) for value in row[5:]))


@compiled
def _before(times_s: Int64s, first: int, last: int, at_s: int) -> int:
    """Return the index of the last change at or before `at_s` among [first, last], or `first` where there is none."""
    low, high = first, last + 1
    while low < high:
        middle = (low + high) // 2
        if times_s[middle] <= at_s:
            low = middle + 1
        else:
            high = middle
    return max(low - 1, first)


@compiled
def _mean(times_s: Int64s, micros: Int64s, areas: Int64s, first: int, index: int, at_s: int, back_s: int) -> float:
    """Return the time-weighted mean price over the last `back_s` seconds, or over the known part of them."""
    from_s = max(at_s - back_s, times_s[first])
    if from_s >= at_s:
        return float(micros[index])
    start = _before(times_s, first, index, from_s)
    until = areas[index] + micros[index] * (at_s - times_s[index])
    before = areas[start] + micros[start] * (from_s - times_s[start])
    mean: float = (until - before) / (at_s - from_s)
    return mean


@compiled
def _signal(
    times_s: Int64s,
    micros: Int64s,
    areas: Int64s,
    rises: Int64s,
    first: int,
    index: int,
    at_s: int,
    out: NDArray[np.float64],
) -> None:
    """Write the fields of the `MarketFeatures` at `at_s` to `out`; `index` is the last change at or before it.

    Events before the lookback have no effect: a live job reads no further back, and gets the same signal as from the
    whole history.
    """
    age_s = min(at_s - times_s[index], LOOKBACK_S)
    out[0] = micros[index]
    out[1] = micros[index - 1] if index > first and age_s < LOOKBACK_S else micros[index]
    out[2] = age_s
    out[3] = rises[index] - rises[_before(times_s, first, index, at_s - 6 * HOUR_S)]
    out[4] = rises[index] - rises[_before(times_s, first, index, at_s - DAY_S)]
    out[5] = _mean(times_s, micros, areas, first, index, at_s, HOUR_S)
    out[6] = _mean(times_s, micros, areas, first, index, at_s, DAY_S)
    out[7] = _mean(times_s, micros, areas, first, index, at_s, LOOKBACK_S)


@compiled
def _features(fields: NDArray[np.float64], on_demand: float, out: NDArray[np.float64]) -> None:
    """Write a model's inputs: age, share of on-demand, last step, rises, the price relative to three means."""
    price = max(fields[0], 1.0)
    out[0] = fields[2]
    out[1] = price / on_demand
    out[2] = np.log(price / max(fields[1], 1.0))
    out[3] = fields[3]
    out[4] = fields[4]
    out[5] = np.log(price / max(fields[5], 1.0))
    out[6] = np.log(price / max(fields[6], 1.0))
    out[7] = np.log(price / max(fields[7], 1.0))


#: The compiled functions, for compiled callers.
signal = cast(Any, _signal)
features = cast(Any, _features)
