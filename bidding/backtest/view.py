"""`SchemeView`: the input of a scheme, the present and the past.

A scheme must not read `markets.events` directly: they include the future.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from proteus_spot.bidding.backtest.eviction_arrays import EvictionArrays
from proteus_spot.bidding.backtest.price_arrays import Markets, Records
from proteus_spot.bidding.billing import expected
from proteus_spot.bidding.jit import inline_jit
from proteus_spot.bidding.policies.rules import Refusal, refusal

#: A scheme's answer that buys nothing: (market, instances, bid).
NOTHING = (-1, 0, 0)
_NO_REFUSAL = int(Refusal.NONE)

#: One allocation: market's row, instances, their vCPUs together, bid, start; end of the last hour that was decided for;
#: 1 where that hour is the last (it works on, but the footprint is counted without it).
HELD = np.dtype(
    [(name, np.int64) for name in ("market", "count", "vcpus", "bid_micros", "launched_s", "paid_until_s", "lapsing")],
    align=True,
)

#: One market as the job has followed it: its last event; end of its cooldown, because it takes what it sold.
FOLLOWED = np.dtype([("event", np.int64), ("cool_s", np.int64)], align=True)

#: The present, the job's start, and how many allocations are held.
MOMENT = np.dtype([(name, np.int64) for name in ("now_s", "started_s", "holds")], align=True)


class SchemeView(NamedTuple):
    """Everything that a decision may depend on.

    Attributes
    ----------
    moment : one record of MOMENT, shape (1,)
        An array, so that one view serves a whole job.
    held : records of HELD, of which `moment[0].holds` count
        In the order of the grants.
    setting : one record of SETTING, shape (1,).
    followed : records of FOLLOWED, shape (markets,)
    parameters : the scheme's own.
    scratch : shape (rows, columns)
        Buffer of the scheme, not kept between calls: at least 8 rows; columns for the number of bid deltas of any kind,
        or for two more than the maximum number of allocations, if that is larger.
    """

    moment: Records
    held: Records
    setting: Records
    markets: Markets
    table: EvictionArrays
    followed: Records
    parameters: NDArray[np.float64]
    scratch: NDArray[np.float64]


@inline_jit
def price_at(markets: Markets, followed: Records, market: int, now_s: int) -> int:
    """Return the price at `now_s`, or -1 if none is known; `now_s` must never fall."""
    facts = markets.facts[market]
    event = followed[market].event
    last = facts.end - 1
    while event < last and markets.events[event + 1].at_s <= now_s:
        event += 1
    followed[market].event = event
    return markets.events[event].micros if event >= facts.first else -1


@inline_jit
def price(view: SchemeView, market: int) -> int:
    """Return the market's price now, or -1 if none is known."""
    return price_at(view.markets, view.followed, market, view.moment[0].now_s)


@inline_jit
def on_sale(view: SchemeView, market: int, left_vcpus: int) -> int:
    """Return the market's price if a bid for `left_vcpus` may be made in it, else -1."""
    facts, now_s = view.markets.facts[market], view.moment[0].now_s
    has_history, is_cooling = view.table.known[market] == 1, view.followed[market].cool_s > now_s
    ceiling, now = view.setting[0].ceiling == 1, price(view, market)
    why_not = refusal(has_history, left_vcpus, is_cooling, ceiling, now, facts.on_demand_micros, facts.vcpus)
    return now if why_not == _NO_REFUSAL else -1


@inline_jit
def hour_micros(view: SchemeView, price_micros: int) -> int:
    """Return the cost of an instance-hour that begins at this price of its market."""
    setting = view.setting[0]
    return int(expected.hour_micros(setting.billing, setting.flat_micros, price_micros))


@inline_jit
def footprint_vcpus(view: SchemeView) -> int:
    """Return the vCPUs of the held allocations that do not lapse."""
    total = 0
    for slot in range(view.moment[0].holds):
        if view.held[slot].lapsing == 0:
            total += view.held[slot].vcpus
    return total
