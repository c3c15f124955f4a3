"""Many machines and a deadline: which to hold until the next decision, of which markets, and how many on demand.

Two questions, one after the other. The safety net says how many machines on demand are needed so that, if all spot is
lost before the next decision, on demand still finishes in time. The rest may be spot: the cheapest work first, but none
that is dearer than what is expected to be had later.
"""

from typing import Final

import numpy as np

from proteus_spot.bidding.jit import jitable
from proteus_spot.bidding.policies.deadline.spot_spells import Floats

#: Share by which more work is counted on than is left, because spot has worse days than its usual ones.
MARGIN: Final = 1.15


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
def highest_price(prices: Floats, usual: Floats, needed: float, room: float) -> float:
    """Return the price up to which the usual machines suffice for `needed` ones on average; infinite: none does."""
    highest, supply = 0.0, 0.0
    while supply < needed:
        following = _following(prices, usual, -1.0, highest)
        if following == np.inf or supply >= room:
            return np.inf
        for market in range(len(prices)):
            if prices[market] == following:
                supply += usual[market]
        highest = following
        supply = min(supply, room)
    return highest


@jitable
def least_average(prices: Floats, usual: Floats, waiting: float, works: float, room: float) -> float:
    """Return the least dollars of a second of work that the usual machines allow: what is dearer makes it dearer.

    Parameters
    ----------
    waiting : dollars of a second in which nothing is bought: of time, and of what works already.
    works : machines that work already, whatever is bought.
    """
    highest = cheapest = _following(prices, usual, 0.0, -1.0)
    cost, supply, average = waiting, 0.0, np.inf
    while highest < average and supply < room:
        for market in range(len(prices)):
            if prices[market] == highest:
                more = min(usual[market], room - supply)
                cost += more * highest
                supply += more
        average = cost / (works + supply)
        highest = _following(prices, usual, 0.0, highest)
    return max(average, cheapest)


@jitable
def _following(prices: Floats, usual: Floats, more_than: float, after: float) -> float:
    """Return the lowest price above `after`, of markets that usually have more than so many machines."""
    lowest = np.inf
    for market in range(len(prices)):
        if after < prices[market] < lowest and usual[market] > more_than:
            lowest = prices[market]
    return lowest


@jitable
def fill(
    held_prices: Floats, new_prices: Floats, sizes: Floats, held: Floats, seen: Floats, room: float, highest: float,
    wanted: Floats,
) -> float:  # fmt: skip
    """Write the machines to hold, the cheapest work first; return the room that is left.

    Parameters
    ----------
    held_prices, new_prices : dollars of a second of work of a held and of a new machine; shape (markets,) each.
    room : machines on demand that they may replace at most.
    highest : nothing dearer is taken.
    """
    wanted[:] = 0.0
    left, floor = room, -1.0
    while left > 0.0:
        best = np.inf
        for market in range(len(held)):
            if min(held[market], seen[market]) > 0 and floor < held_prices[market] < best:
                best = held_prices[market]
            if seen[market] > held[market] and floor < new_prices[market] < best:
                best = new_prices[market]
        if best == np.inf or best > highest * (1.0 + 1e-9):  # both were rounded
            break
        for market in range(len(held)):
            kept = min(held[market], seen[market])
            offered = 0.0
            if held_prices[market] == best:
                offered += kept
            if new_prices[market] == best:
                offered += max(seen[market] - held[market], 0.0)
            while offered > 0.0 and left > sizes[market] - 1e-9:
                wanted[market] += 1.0
                offered -= 1.0
                left -= sizes[market]
        floor = best
    return left


@jitable
def choose(
    left_s: float, sure_left_s: float, time_left_s: float, gap_s: float, machines: int, on_demand_held: int,
    boot_s: float, on_demand: float, waiting: float, works: float, room: float, held_prices: Floats,
    new_prices: Floats, sizes: Floats, held: Floats, seen: Floats, usual: Floats, wanted: Floats,
) -> tuple[int, float]:  # fmt: skip
    """Write the spot machines to hold until the next decision, by market.

    Machines, work and prices are counted in machines on demand: a second of work is what one of them does.

    Parameters
    ----------
    left_s, sure_left_s : work left, as it is expected and as it is at most.
    time_left_s, gap_s : until the deadline, infinite without one, and until the next decision.
    machines : most machines on demand that help, by the engine's measure.
    on_demand_held : machines on demand that work already.
    boot_s : seconds that a new machine is paid for before it works.
    on_demand : dollars of a second of a machine on demand; spot that is dearer is never taken.
    waiting, works : see `least_average`.
    room : machines on demand that spot may replace at most.
    held_prices, new_prices : dollars of a second of work of a held and of a new machine; shape (markets,) each.
    sizes : machines on demand that one machine of a market works as; shape (markets,).
    held, seen : spot machines that are held, and that could be had by the last answers (held ones included); shape
        (markets,) each.
    usual : the mean of what could be had over the time that is known, times the sizes; shape (markets,).
    wanted : receives the spot machines to hold; shape (markets,).

    Returns
    -------
    (int, float)
        The machines on demand to hold; the price up to which spot was taken.
    """
    net = least_on_demand(sure_left_s, time_left_s, gap_s, boot_s, machines, on_demand_held)
    highest = highest_price(new_prices, usual, MARGIN * left_s / max(time_left_s, 1.0), room)
    highest = min(max(highest, least_average(new_prices, usual, waiting, works, room)), on_demand)
    left = fill(held_prices, new_prices, sizes, held, seen, room - net, highest, wanted)
    supply = 0.0
    for market in range(len(usual)):
        if held_prices[market] <= on_demand:
            supply += usual[market]
    paced = paced_on_demand(MARGIN * left_s, time_left_s, supply)
    return max(net, min(paced, int(left + net + 1e-9))), highest
