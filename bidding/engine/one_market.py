"""A policy that buys in one market a decision, as the engine asks it: with the deadline's machines on demand."""

from dataclasses import dataclass

from proteus_spot.bidding.market.model import Allocation
from proteus_spot.bidding.policies.base import Choice, Decision, MachineRelease, MarketView, Policy
from proteus_spot.bidding.policies.limits import is_on_demand, on_demand_purchase, on_demand_releases, purchase_of_use


@dataclass(frozen=True, slots=True)
class OneMarket:
    """Decisions of a policy that knows no machines on demand: the deadline's are bought when its slack is gone."""

    policy: Policy

    def purchases(self, view: MarketView) -> tuple[Decision, ...]:
        """Return the one decision."""
        return (on_demand_purchase(view) or purchase_of_use(self.policy.acquisition(view), view),)

    def releases(self, view: MarketView) -> tuple[MachineRelease, ...]:
        """Return the machines on demand that the job may not pay any more; others go at the end of an hour."""
        return on_demand_releases(view)

    def renewal(self, view: MarketView, allocation: Allocation) -> Decision:
        """Return the policy's decision; what was bought on demand stays."""
        if is_on_demand(allocation):
            for release in on_demand_releases(view):
                if release.allocation_id == allocation.allocation_id:
                    return release.decision
            return Decision(Choice.RENEW, "it is held on demand until the job is done", float("inf"))
        return self.policy.renewal(view, allocation)
