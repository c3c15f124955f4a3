"""Offers of the markets to the clairvoyant, by bins of time: the cheapest hour, and the free lives of machines.

A machine is free from its purchase to an eviction less than an hour later. With all prices known, a bid can place the
eviction at any of the market's *records*: an event whose price is above all since the purchase. So a bid is described
by its record, and a bin by the best purchase in any of its seconds, in any market. Computed once for all jobs of a
backtest.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from proteus_spot.bidding.backtest.parameters import JobParameters
from proteus_spot.bidding.backtest.price_arrays import Markets
from proteus_spot.bidding.jit import compiled
from proteus_spot.bidding.market.model import HOUR_S
from proteus_spot.bidding.market.traces import Int64s

Floats = NDArray[np.float64]


class HourlyOffers(NamedTuple):
    """The best of all markets, for each bin of `grid_s` seconds.

    Attributes
    ----------
    first_s, grid_s : bin k is [first_s + k grid_s, first_s + (k + 1) grid_s).
    fresh_micros : shape (bins,)
        Lowest price of a vCPU-hour that is bought in the bin; infinite where nothing may be bought.
    renewed_micros : shape (bins,)
        The same with the markets that stand above on-demand, where nothing new is bought but hours are renewed.
    free_s : shape (bins, ahead + 1)
        At [k, j]: seconds from the beginning of bin k to the last eviction in bin k + j of a purchase in bin k; 0 if
        none. [k, ahead] stands for all later ones too: a lapsing machine leaves the cap before its hour ends.
    renewed_free_s : the same for machines that may only be renewed.
    owed_s : shape (bins,)
        Maximum seconds from the beginning of a bin to an eviction in it, over this bin and the bins whose hours lead
        to it.
    """

    first_s: int
    grid_s: int
    fresh_micros: Floats
    renewed_micros: Floats
    free_s: Int64s
    renewed_free_s: Int64s
    owed_s: Int64s


def offers(markets: Markets, setting: JobParameters, from_s: int, until_s: int, grid_s: int) -> HourlyOffers:
    """Return the offers of [from_s, until_s], which begin with a whole number of bins since the epoch.

    Raises
    ------
    ValueError
        If an hour is not a whole number of bins, or a machine could lapse from the cap in the bin of its purchase.
    """
    if grid_s < 1 or HOUR_S % grid_s:
        raise ValueError(f"grid_s is {grid_s}: an hour must be a whole number of bins")
    ahead = (HOUR_S - setting.renewal_lead_s) // grid_s
    if ahead < 1:
        raise ValueError(
            f"renewal_lead_s is {setting.renewal_lead_s}: at most {HOUR_S - grid_s} with bins of {grid_s} s"
        )
    first_s = from_s - from_s % grid_s
    bins = (until_s - first_s) // grid_s + 1
    found = HourlyOffers(
        first_s,
        grid_s,
        np.full(bins, np.inf),
        np.full(bins, np.inf),
        np.zeros((bins, ahead + 1), dtype=np.int64),
        np.zeros((bins, ahead + 1), dtype=np.int64),
        np.zeros(bins, dtype=np.int64),
    )
    _look(markets, setting.ceiling == 1, found)
    return found


@compiled
def _look(markets: Markets, ceiling: bool, found: HourlyOffers) -> None:
    events, first_s, grid_s = markets.events, found.first_s, found.grid_s
    bins, columns = found.free_s.shape
    end_s = first_s + bins * grid_s
    for market in range(len(markets.facts)):
        facts = markets.facts[market]
        for event in range(facts.first, facts.end):
            at_s, micros = events[event].at_s, events[event].micros
            until_s = end_s if event + 1 == facts.end else events[event + 1].at_s
            if until_s <= first_s:
                continue
            if at_s >= end_s:
                break
            # what an hour costs that begins under this price
            each = micros / facts.vcpus
            for k in range(max(at_s - first_s, 0) // grid_s, (min(until_s, end_s) - 1 - first_s) // grid_s + 1):
                found.renewed_micros[k] = min(found.renewed_micros[k], each)
                if not ceiling or micros <= facts.on_demand_micros:
                    found.fresh_micros[k] = min(found.fresh_micros[k], each)
            if at_s >= first_s and event > facts.first and micros > events[event - 1].micros:
                k = (at_s - first_s) // grid_s
                found.owed_s[k] = max(found.owed_s[k], at_s - first_s - k * grid_s)
            # whose record it is: back to a price that is as high, or to the hour before
            earliest_s = max(at_s - HOUR_S + 1, first_s)
            before, next_s = event - 1, at_s
            while before >= facts.first and next_s > earliest_s and events[before].micros < micros:
                since_s = max(events[before].at_s, earliest_s)
                fresh = not ceiling or events[before].micros <= facts.on_demand_micros
                free_s = found.free_s if fresh else found.renewed_free_s
                for k in range((since_s - first_s) // grid_s, (next_s - 1 - first_s) // grid_s + 1):
                    _note(free_s[k], at_s - first_s - k * grid_s, grid_s)
                next_s = events[before].at_s
                before -= 1
    hour = HOUR_S // grid_s
    for k in range(columns - 1, bins):
        found.owed_s[k] = max(found.owed_s[k], found.owed_s[k - columns + 1], found.owed_s[max(k - hour, 0)])


@compiled
def _note(free_s: Int64s, taken_s: int, grid_s: int) -> None:
    """Record an eviction `taken_s` seconds after the beginning of the bin of the purchase."""
    column = min(taken_s // grid_s, len(free_s) - 1)
    free_s[column] = max(free_s[column], taken_s)
