"""The cheapest market: what several rules buy."""

from bidding.backtest.jit import inline_jit
from bidding.backtest.view import SchemeView, on_sale


@inline_jit
def cheapest_market(view: SchemeView, vcpus: int) -> int:
    """Return the market on sale that costs least per vCPU, of machines of at most `vcpus`; -1 where there is none.

    Ties go to the earlier market. Prices per vCPU are compared by cross-multiplication, hence exactly.
    """
    best = -1
    best_price, best_vcpu = 0, 1
    for market in range(len(view.markets.facts)):
        vcpu = view.markets.facts[market].vcpus
        now = on_sale(view, market) if vcpu <= vcpus else -1
        if now >= 0 and (best < 0 or now * best_vcpu < best_price * vcpu):
            best, best_price, best_vcpu = market, now, vcpu
    return best
