"""Rule `just-above`: the cheapest market at a fixed bid delta; many refunds, many evictions."""

from proteus_spot.bidding.backtest.schemes.cheapest_market import cheapest_market
from proteus_spot.bidding.backtest.view import NOTHING, SchemeView, footprint_vcpus, price
from proteus_spot.bidding.jit import inline_jit


@inline_jit
def acquire(view: SchemeView) -> tuple[int, int, int]:
    """Return (market, instances, bid) of the next allocation, until the cap is reached.

    The bid is `parameters[0]` micro-dollars above the price of the market that costs least per vCPU.

    Source: Proteus (EuroSys 2017), section 6.3, "always bidding just above the market price".
    """
    setting = view.setting[0]
    left = min(setting.allocation_vcpus, setting.max_spot_vcpus - footprint_vcpus(view))
    market = cheapest_market(view, left)
    if market < 0:
        return NOTHING
    return market, left // view.markets.facts[market].vcpus, price(view, market) + int(view.parameters[0])


@inline_jit
def renews(view: SchemeView, slot: int) -> bool:
    """Return True: while the price allows it the allocation lives, and when it does not the market takes it."""
    return True
