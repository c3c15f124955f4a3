"""The on-demand cluster that costs and run times are relative to, and start times of jobs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from proteus_spot.bidding.backtest.parameters import window_s
from proteus_spot.bidding.market.model import HOUR_S, InstanceType, Market
from proteus_spot.bidding.market.money import Micros
from proteus_spot.bidding.market.traces import Int64s

#: Types too small to build a cluster of.
TOO_SMALL = ("m1.small", "t1.micro")


@dataclass(frozen=True, slots=True)
class Reference:
    """The on-demand cluster whose run time is the length of the job.

    Attributes
    ----------
    instance_type : gives the price per vCPU; the cluster need not be a whole number of machines.
    vcpus : of the whole cluster.
    """

    instance_type: InstanceType
    vcpus: int = 512

    def micros(self, vcpus: int) -> Micros:
        """Return the hourly price of `vcpus`, rounded half to even."""
        return round(self.instance_type.on_demand_micros * vcpus / self.instance_type.vcpu)

    def job_micros(self, hours: int) -> float:
        """Return the cost of a job of `hours` on demand, in micro-dollars."""
        return self.instance_type.on_demand_micros / self.instance_type.vcpu * self.vcpus * hours


def cheapest(markets: Iterable[Market], types: Mapping[str, InstanceType], vcpus: int = 512) -> Reference:
    """Return the cluster of the type that costs least per vCPU on demand among those of `markets`.

    Raises
    ------
    ValueError
        If no market's type is in `types`, or all are `TOO_SMALL`.
    """
    names = sorted({market.instance_type for market in markets} - set(TOO_SMALL))
    candidates = [types[name] for name in names if name in types]
    if not candidates:
        raise ValueError("no market's type has an on-demand price to compare with")
    return Reference(min(candidates, key=lambda kind: kind.on_demand_micros / kind.vcpu), vcpus)


def draw_starts(rng: np.random.Generator, from_s: int, until_s: int, hours: int, count: int) -> Int64s:
    """Return `count` starts of jobs of `hours`, in time order, uniform over the seconds that leave a job its window.

    Raises
    ------
    ValueError
        If [from_s, until_s] is shorter than the window.
    """
    last_s = until_s - window_s(hours)
    if last_s < from_s:
        raise ValueError(
            f"a job of {hours} h is given {window_s(hours) / HOUR_S:g} h; there are {(until_s - from_s) / HOUR_S:g}"
        )
    return np.sort(rng.integers(from_s, last_s, size=count, endpoint=True))


def by_zone(markets: Iterable[Market]) -> dict[str, tuple[Market, ...]]:
    """Return the markets of each zone, and of ``all`` together; each in their order."""
    every = tuple(sorted(markets))
    zones = sorted({market.zone for market in every})
    return {zone: tuple(market for market in every if market.zone == zone) for zone in zones} | {"all": every}
