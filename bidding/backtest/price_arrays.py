"""Price histories as arrays, and two look-ups in them: the price now, and when it next passes a bid."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from proteus_spot.bidding.forecast.features import price_history_of
from proteus_spot.bidding.jit import inline_jit
from proteus_spot.bidding.market.model import InstanceType, Market
from proteus_spot.bidding.market.traces import Int64s, TraceSet

#: Later than anything that happens.
NEVER_S = np.iinfo(np.int64).max

#: log2 of the number of events per entry of `highest`.
_BLOCK_BITS = 6
_BLOCK = 1 << _BLOCK_BITS

#: An array of records, or one of them.
Records = Any

EVENT = np.dtype([("at_s", np.int64), ("micros", np.int64)], align=True)
FACTS = np.dtype([(name, np.int64) for name in ("first", "end", "vcpus", "on_demand_micros")], align=True)


class Markets(NamedTuple):
    """The price events of all markets, concatenated.

    Attributes
    ----------
    events : records of EVENT, shape (events,)
        Those that repeat the price before them are left out.
    highest : shape (blocks,)
        The highest price of each 64 events, so that a search can skip them.
    areas, rises : shape (events,)
        Running sums within each market; see `bidding.forecast.features.PriceHistory`.
    facts : records of FACTS, shape (markets,)
        A market's events are first to end; vCPUs and on-demand price are those of one instance.
    """

    events: Records
    highest: Int64s
    areas: Int64s
    rises: Int64s
    facts: Records


def pack(traces: TraceSet, markets: Sequence[Market], types: Mapping[str, InstanceType]) -> Markets:
    """Return `markets` as arrays, in their order; ties of a decision go to the earlier market.

    Raises
    ------
    KeyError
        If a market has no trace, or its type is not among `types`.
    """
    runs, facts, end = [np.empty(0, dtype=EVENT)], np.empty(len(markets), dtype=FACTS), 0
    areas, rises = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    for row, market in enumerate(markets):
        trace, kind = traces[market], types[market.instance_type]
        past = price_history_of(trace)
        run = np.empty(len(past.times_s), dtype=EVENT)
        run["at_s"], run["micros"] = past.times_s, past.micros
        runs.append(run)
        areas.append(past.areas)
        rises.append(past.rises)
        facts[row] = (end, end + len(run), kind.vcpu, kind.on_demand_micros)
        end += len(run)
    events = np.concatenate(runs)
    padded = np.zeros(-(-len(events) // _BLOCK) * _BLOCK, dtype=np.int64)
    padded[: len(events)] = events["micros"]
    highest = padded.reshape(-1, _BLOCK).max(axis=1)
    return Markets(events, highest, np.concatenate(areas), np.concatenate(rises), facts)


@inline_jit
def event_at(markets: Markets, market: int, at_s: int) -> int:
    """Return the index of the market's last event at or before `at_s`; of the one before its first if there is none."""
    low = markets.facts[market].first
    high = markets.facts[market].end
    while low < high:
        middle = (low + high) // 2
        if markets.events[middle].at_s <= at_s:
            low = middle + 1
        else:
            high = middle
    return int(low - 1)


@inline_jit
def passed_at(markets: Markets, market: int, event: int, bid_micros: int, before_s: int) -> int:
    """Return when the first event after `event` is above the bid; `NEVER_S` if that is not before `before_s`."""
    events = markets.events
    event += 1
    end = markets.facts[market].end
    while event < end:
        if event % _BLOCK == 0 and event + _BLOCK <= end and markets.highest[event >> _BLOCK_BITS] <= bid_micros:
            event += _BLOCK
            continue
        at_s = events[event].at_s
        if at_s >= before_s:
            return NEVER_S
        if events[event].micros > bid_micros:
            return int(at_s)
        event += 1
    return NEVER_S


@inline_jit
def price_seconds(markets: Markets, market: int, from_s: int, until_s: int) -> int:
    """Return the sum of the market's prices of each second in [from_s, until_s); one must be known at `from_s`."""
    return _area(markets, market, until_s) - _area(markets, market, from_s)


@inline_jit
def _area(markets: Markets, market: int, at_s: int) -> int:
    event = event_at(markets, market, at_s)
    last = markets.events[event]
    return int(markets.areas[event] + last.micros * (at_s - last.at_s))
