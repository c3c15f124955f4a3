"""The standard strategy: the cheapest market now, bid the on-demand price, stay until it is taken."""

from bidding.backtest.compiled import part
from bidding.backtest.view import NOTHING, View, on_sale


@part
def acquire(view: View) -> tuple[int, int, int]:
    """Return (market, instances, bid) of `parameters[0]` vCPUs of the cheapest market, where nothing is held."""
    if view.holds > 0:
        return NOTHING
    wanted = int(view.parameters[0])
    best = NOTHING
    best_price, best_vcpu = 0, 1
    for market in range(len(view.markets.facts)):
        facts = view.markets.facts[market]
        now = on_sale(view, market) if facts.vcpus <= wanted else -1
        if now >= 0 and (best[0] < 0 or now * best_vcpu < best_price * facts.vcpus):
            best = (market, wanted // facts.vcpus, facts.on_demand_micros)
            best_price, best_vcpu = now, facts.vcpus
    return best


@part
def renews(view: View, slot: int) -> bool:
    """Return True."""
    return True
