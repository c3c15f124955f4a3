"""The cheapest market on sale, shared by `standard` and `just_above`."""

from proteus_spot.bidding.backtest.view import SchemeView, on_sale
from proteus_spot.bidding.jit import inline_jit
from proteus_spot.bidding.policies.rules import is_cheaper


@inline_jit
def cheapest_market(view: SchemeView, vcpus: int) -> int:
    """Return the market on sale that costs least per vCPU, of machines of at most `vcpus`; -1 where there is none.

    Ties go to the earlier market.
    """
    best, best_price, best_vcpu = -1, 0, 1
    for market in range(len(view.markets.facts)):
        now = on_sale(view, market, vcpus)
        vcpu = view.markets.facts[market].vcpus
        if now >= 0 and (best < 0 or is_cheaper(now, vcpu, best_price, best_vcpu)):
            best, best_price, best_vcpu = market, now, vcpu
    return best
