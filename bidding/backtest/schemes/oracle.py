"""Rule with knowledge of the coming hour's prices, which shows the gain from foresight alone.

Its moves are those that any scheme could make. It reads future prices, which no scheme may. With the clairvoyant bound
it brackets the gain that is left: no scheme does a job for less than the bound, and this rule's schedule is one that a
simulated job really went through.
"""

from proteus_spot.bidding.backtest.view import NOTHING, SchemeView, footprint_vcpus, on_sale
from proteus_spot.bidding.jit import inline_jit
from proteus_spot.bidding.market.model import HOUR_S


@inline_jit
def acquire(view: SchemeView) -> tuple[int, int, int]:
    """Return (market, instances, bid) of all that the cap leaves where it will be free for longest, or `NOTHING`.

    A machine is free until the last event of its first hour whose price is above all since now; the bid is the highest
    price before that event. For less than `parameters[0]` seconds nothing is bought.
    """
    left = view.setting[0].max_spot_vcpus - footprint_vcpus(view)
    events = view.markets.events
    best, longest_s = NOTHING, int(view.parameters[0]) - 1
    for market in range(len(view.markets.facts)):
        facts = view.markets.facts[market]
        highest = on_sale(view, market, left)
        if highest < 0:
            continue
        event = view.followed[market].event + 1
        while event < facts.end and events[event].at_s < view.moment[0].now_s + HOUR_S:
            if events[event].micros > highest:
                free_s = events[event].at_s - view.moment[0].now_s
                if free_s > longest_s:
                    longest_s, best = free_s, (market, left // facts.vcpus, highest)
                highest = events[event].micros
            event += 1
    return best


@inline_jit
def renews(view: SchemeView, slot: int) -> bool:
    """Return False: a second hour may be bought again, under a new bid."""
    return False
