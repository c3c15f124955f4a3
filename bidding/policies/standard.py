"""Policy `standard`: the cheapest market, bid at the on-demand price, held until the market takes it."""

from proteus_spot.bidding.market.model import Allocation, Market
from proteus_spot.bidding.market.money import Micros
from proteus_spot.bidding.policies.base import Choice, Decision, MarketView
from proteus_spot.bidding.policies.cheapest_market import cheapest, kept


class StandardPolicy:
    """One allocation in the market that costs least per vCPU, as large as an allocation and the cap may be.

    Nothing is bought beside it, also where the market took some of its machines. An allocation with a notice of
    eviction is replaced when the market has taken it: until then it counts in the cap.

    Source: Proteus (EuroSys 2017), section 6.3, the standard strategy.
    """

    def acquisition(self, view: MarketView) -> Decision:
        """Return the purchase of the cheapest market where nothing is held, else WAIT."""
        if view.spot_vcpus:
            reason = (
                f"{view.spot_vcpus} spot {view.job.unit_name}s are held: nothing is bought until the market takes them"
            )
            return Decision(Choice.WAIT, reason, float("inf"))
        return cheapest(view, view.left_vcpus, _on_demand)

    def renewal(self, view: MarketView, allocation: Allocation) -> Decision:
        """Return RENEW."""
        return kept(view, allocation)


def _on_demand(view: MarketView, market: Market) -> Micros:
    return view.types[market.instance_type].on_demand_micros
