"""Many machines and a deadline: which to hold until the next decision, of which markets, and how many on demand.

Two questions, one after the other. The safety net says how many machines on demand are needed so that, if all spot is
lost before the next decision, on demand still finishes in time. The rest may be spot: the cheapest work first, but none
that is dearer than what is expected to be had later.
"""

from dataclasses import dataclass
from math import inf
from typing import Final

import numpy as np

from proteus_spot.bidding.jit import jitable
from proteus_spot.bidding.market.model import HOUR_S
from proteus_spot.bidding.policies.deadline.spot_spells import Floats

#: Share by which more work is counted on than is left, because spot has worse days than its usual ones.
MARGIN: Final = 1.15


@dataclass(frozen=True, slots=True)
class SpotOffer:
    """What is known of a market at a decision.

    Attributes
    ----------
    price_usd_per_h : of one spot machine.
    held : spot machines held here.
    seen : machines that could be had by the last answers, those held included.
    usual : mean of `seen` over the time that is known.
    loss_per_h : hazard of a held machine.
    boot_s : seconds that a new machine is paid for before it works.
    joining_usd : dollars that a new machine costs once, such as for data between zones.
    """

    market: str
    price_usd_per_h: float
    held: int
    seen: int
    usual: float
    loss_per_h: float
    boot_s: float = 180.0
    joining_usd: float = 0.0


@dataclass(frozen=True, slots=True)
class RemainingJob:
    """What is known of a job at a decision.

    Attributes
    ----------
    left_machine_h : work left, in hours of one machine.
    time_left_h : until the deadline; None: there is none.
    gap_s : until the next decision.
    machines : most machines that help, by the engine's measure.
    on_demand_held : machines on demand that work already.
    on_demand_usd_per_h, on_demand_boot_s : of one machine on demand.
    value_of_time_usd_per_h : dollars that an hour less is worth; counts without a deadline.
    """

    left_machine_h: float
    time_left_h: float | None
    gap_s: float
    machines: int
    on_demand_held: int = 0
    on_demand_usd_per_h: float = inf
    on_demand_boot_s: float = 180.0
    value_of_time_usd_per_h: float = 0.0


@dataclass(frozen=True, slots=True)
class Fleet:
    """Machines to hold until the next decision.

    Attributes
    ----------
    spot : by market, also those with 0; an ask is what exceeds `SpotOffer.held`.
    on_demand : machines on demand.
    highest_usd_per_h : dollars of an hour of work above which it is expected to be had cheaper later.
    """

    spot: dict[str, int]
    on_demand: int
    highest_usd_per_h: float


@jitable
def least_on_demand(left_s: float, time_left_s: float, gap_s: float, boot_s: float, machines: int, held: int) -> int:
    """Return the least number of machines on demand for this gap with which the deadline is sure.

    Sure is: if spot does nothing in this gap and is lost, all `machines` on demand finish in time. New ones boot first;
    two boots are counted, so that a machine that is let go can be asked for again.
    """
    if left_s <= 0.0:
        return 0
    after_s = time_left_s - gap_s
    for count in range(machines):
        kept = min(count, held)
        works_s = kept * gap_s + (count - kept) * max(gap_s - boot_s, 0.0)
        boots_s = (machines - kept) * boot_s + max(held - count, 0) * boot_s
        if left_s - works_s + boots_s <= machines * after_s:
            return count
    return machines


@jitable
def paced_on_demand(left_s: float, time_left_s: float, usual: float) -> int:
    """Return the machines on demand that the usual spot leaves to be held from now to the deadline.

    Later ones would cost the same, but would take the places of spot machines: together they are no more than help.
    """
    if time_left_s <= 0.0 or time_left_s == np.inf:
        return 0
    return int(max(left_s / time_left_s - usual, 0.0))


@jitable
def work_price(price: float, joining: float, loss_per_s: float, boot_s: float, needed_s: float) -> float:
    """Return the dollars of a second of work of a new machine that lives until it is lost or not needed any more."""
    life_s = needed_s
    if loss_per_s > 0.0:
        life_s = min(1.0 / loss_per_s, needed_s)
    if life_s <= boot_s:
        return np.inf
    return (price * life_s + joining) / (life_s - boot_s)


@jitable
def highest_price(prices: Floats, usual: Floats, needed: float, machines: int) -> float:
    """Return the price up to which the usual machines suffice for `needed` ones on average; infinite: none does."""
    highest, supply = 0.0, 0.0
    while supply < needed:
        following = np.inf
        for market in range(len(prices)):
            if highest < prices[market] < following:
                following = prices[market]
        if following == np.inf or supply >= machines:
            return np.inf
        for market in range(len(prices)):
            if prices[market] == following:
                supply += usual[market]
        highest = following
        if supply > machines:
            supply = float(machines)
    return highest


@jitable
def fill(
    held_prices: Floats, new_prices: Floats, held: Floats, seen: Floats, machines: int, highest: float,
    value_of_time: float, wanted: Floats,
) -> None:  # fmt: skip
    """Write the machines to hold, the cheapest work first.

    Parameters
    ----------
    held_prices, new_prices : dollars of a second of work of a held and of a new machine; shape (markets,) each.
    highest : nothing dearer is taken.
    value_of_time : dollars of a second less; below 0: there is a deadline, and time has no value of its own.
    """
    wanted[:] = 0.0
    left, spent, count = machines, max(value_of_time, 0.0), 0
    floor = -1.0
    while left > 0:
        best = np.inf
        for market in range(len(held)):
            if min(held[market], seen[market]) > 0 and floor < held_prices[market] < best:
                best = held_prices[market]
            if seen[market] > held[market] and floor < new_prices[market] < best:
                best = new_prices[market]
        if best == np.inf or best > highest:
            return
        for market in range(len(held)):
            kept = min(held[market], seen[market])
            offered = 0.0
            if held_prices[market] == best:
                offered += kept
            if new_prices[market] == best:
                offered += max(seen[market] - held[market], 0.0)
            while offered > 0.0 and left > 0:
                if value_of_time >= 0.0 and best * count > spent * (1.0 + 1e-9):
                    return
                wanted[market] += 1.0
                offered -= 1.0
                left -= 1
                spent += best
                count += 1
        floor = best


def fleet(job: RemainingJob, markets: tuple[SpotOffer, ...]) -> Fleet:
    """Return the machines to hold until the next decision."""
    left_s = job.left_machine_h * HOUR_S
    held, seen, usual = (np.array([float(getattr(one, name)) for one in markets]) for name in ("held", "seen", "usual"))
    prices = np.array([one.price_usd_per_h / HOUR_S for one in markets])
    needed_s = left_s / max(job.machines, 1)
    fresh = np.array(
        [
            work_price(one.price_usd_per_h / HOUR_S, one.joining_usd, one.loss_per_h / HOUR_S, one.boot_s, needed_s)
            for one in markets
        ]
    )
    on_demand, paced, highest, value = 0, 0, inf, job.value_of_time_usd_per_h / HOUR_S
    if job.time_left_h is not None:
        time_left_s = job.time_left_h * HOUR_S
        on_demand = least_on_demand(
            left_s, time_left_s, job.gap_s, job.on_demand_boot_s, job.machines, job.on_demand_held
        )
        paced = paced_on_demand(left_s, time_left_s, float(usual.sum()))
        highest = highest_price(fresh, usual, MARGIN * left_s / max(time_left_s, 1.0), job.machines)
        value = -1.0
    wanted = np.zeros(len(markets))
    if left_s > 0:
        fill(prices, fresh, held, seen, job.machines - on_demand, highest, value, wanted)
    on_demand = max(on_demand, min(paced, job.machines - int(wanted.sum())))
    return Fleet(
        {one.market: int(count) for one, count in zip(markets, wanted, strict=True)}, on_demand, highest * HOUR_S
    )
