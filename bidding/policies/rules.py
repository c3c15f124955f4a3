"""Rules shared by the live policies and the compiled schemes of the backtest.

The value of a bid or a footprint is computed in `bidding.economics`; this module decides what follows from it.
"""

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from proteus_spot.bidding.jit import jitable
from proteus_spot.bidding.market.money import Micros


class Refusal(IntEnum):
    """Reason why no bid may be made in a market, as a number for compiled callers; the first that holds."""

    NONE = 0
    UNKNOWN = 1  # it has no history
    FULL = 2  # the cap is reached
    COOLING = 3  # it refused recently, or takes what it sold
    CEILING = 4  # its price stands above its on-demand price
    LARGE = 5  # its machines are larger than what may be bought


_NONE, _UNKNOWN, _FULL, _COOLING, _CEILING, _LARGE = map(int, Refusal)


@jitable
def refusal(
    has_history: bool,
    left_vcpus: int,
    is_cooling: bool,
    has_ceiling: bool,
    price_micros: Micros,
    on_demand_micros: Micros,
    vcpus: int,
) -> int:
    """Return why no bid may be made in a market, a `Refusal`.

    Parameters
    ----------
    left_vcpus : maximum size of an allocation, by its own limit and by what the cap leaves.
    is_cooling : whether the market refused recently, or takes what it sold.
    has_ceiling : whether no bid is made above the on-demand price.
    vcpus : of one machine.
    """
    if not has_history:
        return _UNKNOWN
    if left_vcpus < 1:
        return _FULL
    if is_cooling:
        return _COOLING
    if has_ceiling and price_micros > on_demand_micros:
        return _CEILING
    return _LARGE if left_vcpus < vcpus else _NONE


@jitable
def is_cheaper(price_micros: Micros, work: float, than_micros: Micros, than_work: float) -> bool:
    """Return whether work costs less at the first price than at the second; cross-multiplied, hence vCPUs exactly."""
    return price_micros * than_work < than_micros * work


@jitable
def is_worth_keeping(with_it: float, without_it: float) -> bool:
    """Return whether work costs no more with an allocation's next hour than without it.

    A tie keeps it. If no useful work is expected either way, the hour is not worth paying.
    """
    return with_it <= without_it and with_it < np.inf


class HourEndRule(IntEnum):
    """Rule by which `best` judges an allocation at its hour's end, as a number for compiled callers."""

    WEIGHED = 0  # against the best fresh purchase
    PASSED = 1  # the price has passed the bid: the market takes it, and refunds the hour
    FALLEN = 2  # the price has fallen below the bid: a fresh bid is the more likely to be refunded
    CEILING = 3  # the price stands above the on-demand price


_WEIGHED, _PASSED, _FALLEN, _ABOVE_ON_DEMAND = map(int, HourEndRule)


@jitable
def hour_end(
    price_micros: Micros,
    bid_micros: Micros,
    on_demand_micros: Micros,
    is_refunded: bool,
    bids_decide: bool,
    has_ceiling: bool,
) -> int:
    """Return the rule by which `best` judges an allocation at its hour's end, a `HourEndRule`.

    Parameters
    ----------
    is_refunded : whether an eviction would refund a later hour.
    bids_decide : False where machines are taken whatever was bid.
    has_ceiling : whether no bid is made above the on-demand price.
    """
    if price_micros > bid_micros:
        return _PASSED
    if price_micros < bid_micros and is_refunded and bids_decide:
        return _FALLEN
    return _ABOVE_ON_DEMAND if has_ceiling and price_micros > on_demand_micros else _WEIGHED


@jitable
def held_delta(shares: NDArray[np.float64], price_micros: Micros, bid_micros: Micros) -> int:
    """Return the index of the largest bid delta that a bid has at this price, which is not above it.

    `shares` are the bid deltas as shares of the price, rising from 0.
    """
    index = 0
    while index + 1 < len(shares) and price_micros + int(shares[index + 1] * price_micros) <= bid_micros:
        index += 1
    return index


@jitable
def fresh_delta_micros(share: float, price_micros: Micros, on_demand_micros: Micros, bids_decide: bool) -> Micros:
    """Return the bid delta of `best`: a share of the price, or up to on-demand where bids decide nothing."""
    return int(share * price_micros) if bids_decide else max(on_demand_micros - price_micros, 0)
