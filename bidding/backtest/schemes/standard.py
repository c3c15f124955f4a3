"""Rule `standard`: the cheapest market, bid at the on-demand price, held until the market takes it."""

from proteus_spot.bidding.backtest.schemes.cheapest_market import cheapest_market
from proteus_spot.bidding.backtest.view import NOTHING, SchemeView
from proteus_spot.bidding.jit import inline_jit


@inline_jit
def acquire(view: SchemeView) -> tuple[int, int, int]:
    """Return (market, instances, bid) of `parameters[0]` vCPUs of the cheapest market, where nothing is held."""
    if view.moment[0].holds > 0:
        return NOTHING
    wanted = int(view.parameters[0])
    market = cheapest_market(view, wanted)
    if market < 0:
        return NOTHING
    facts = view.markets.facts[market]
    return market, wanted // facts.vcpus, facts.on_demand_micros


@inline_jit
def renews(view: SchemeView, slot: int) -> bool:
    """Return True."""
    return True
