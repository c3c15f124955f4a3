"""What the market bills for what it sold, from its own record and prices.

It is written from the rules alone and shares no code with the ledger's billing models, so that the two can be compared
to the micro-dollar. Every machine is billed by itself, and each amount of an hour is rounded half to even.

*Differs* from EC2: a machine is billed from its launch, not from the second in which it runs.
"""

from collections.abc import Callable
from dataclasses import dataclass

from proteus_spot.bidding.market.model import EndCause, InstanceType, Market
from proteus_spot.bidding.market.money import Micros
from proteus_spot.bidding.market.traces import Trace
from proteus_spot.infra.simulated_ec2.held_instances import HeldInstance
from proteus_spot.infra.simulated_ec2.market import SimSpotMarket

_HOUR_S = 3600
#: Least seconds paid of a start.
_LEAST_S = 60


@dataclass(frozen=True, slots=True)
class Usage:
    """What one machine used.

    Parameters
    ----------
    spans : [from, until) in market seconds in which it was on; empty for a launch that failed.
    price_at : returns the hourly price of a second.
    spot : whether it is a spot machine.
    evicted : whether the market took it, at the end of the last span.
    """

    spans: tuple[tuple[int, int], ...]
    price_at: Callable[[int], Micros]
    spot: bool
    evicted: bool = False


def usage_of(
    held: HeldInstance, until_s: int, prices: Trace | None, sold: Callable[[Market], InstanceType | None]
) -> Usage:
    """Return what a machine has used by `until_s`.

    Parameters
    ----------
    prices : the price trace of its market; None where it has none.
    sold : returns the type of a market, whose on-demand price is the present one.
    """
    market = held.request.market

    def price_at(at_s: int) -> Micros:
        kind = sold(market)
        assert kind is not None, f"{market} was sold"
        if not held.is_spot:
            return kind.on_demand_micros
        price_micros = None if prices is None else prices.price_at(at_s)
        assert price_micros is not None, f"{market} was sold without a price"
        return price_micros

    return Usage(held.used(until_s), price_at, held.is_spot, held.end_cause is EndCause.EVICTED)


def bill_of(
    market: SimSpotMarket, spot: Callable[[Usage], Micros], on_demand: Callable[[Usage], Micros]
) -> dict[str, Micros]:
    """Return what each instance of a market has cost by now, by its id, under two of the rules below.

    The on-demand price is the present one of its type.
    """
    market.log()  # up to now
    return {
        held.instance_id: (spot if held.is_spot else on_demand)(
            usage_of(held, market.now_s, market.traces.get(held.request.market), market.sold)
        )
        for held in market._machines
    }


def by_hour(usage: Usage) -> Micros:
    """Return the bill of the bid era: each hour that begins is paid at the price of that second.

    An eviction gives a spot machine's hour in progress back.
    """
    total = 0
    for from_s, until_s in usage.spans:
        for hour_s in range(from_s, until_s, _HOUR_S):
            broken_off = usage.spot and usage.evicted and until_s < hour_s + _HOUR_S
            total += 0 if broken_off else usage.price_at(hour_s)
    return total


def by_second(usage: Usage) -> Micros:
    """Return today's bill: the seconds used, at least 60 of each start.

    A spot machine pays each hour at the price of its first second; one that the market took within its first hour is
    free.
    """
    total = 0
    for from_s, until_s in usage.spans:
        if usage.spot and usage.evicted and until_s - from_s < _HOUR_S:
            continue
        for hour_s in range(from_s, until_s, _HOUR_S):
            seconds = min(until_s - hour_s, _HOUR_S)
            if hour_s == from_s:
                seconds = max(seconds, _LEAST_S)
            total += _share(usage.price_at(hour_s), seconds)
    return total


def flat(price_micros: Micros) -> Callable[[Usage], Micros]:
    """Return the bill of a market with one price: the seconds used, nothing given back."""

    def bill(usage: Usage) -> Micros:
        hours = [
            min(until_s - hour_s, _HOUR_S)
            for from_s, until_s in usage.spans
            for hour_s in range(from_s, until_s, _HOUR_S)
        ]
        return sum(_share(price_micros, seconds) for seconds in hours)

    return bill


def _share(price_micros: Micros, seconds: int) -> Micros:
    """Return an hourly price's share of some seconds, rounded half to even."""
    doubled = 2 * price_micros * seconds
    whole = (doubled + _HOUR_S) // (2 * _HOUR_S)
    return whole - (whole % 2 if (doubled + _HOUR_S) % (2 * _HOUR_S) == 0 else 0)
